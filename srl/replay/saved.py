"""A store as files: a folder with one `.npy` for each array. Nothing is copied on the way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np

from srl.core.tree import Array

_SUFFIX = ".npy"


def write(folder: Path, arrays: Mapping[str, Array]) -> None:
    """Write what `Store.state` returned, and other arrays beside it, into a new folder."""
    folder.mkdir(parents=True)
    for name, array in arrays.items():
        np.save(folder / f"{quote(name, safe='')}{_SUFFIX}", array, allow_pickle=False)


def read(folder: Path) -> dict[str, Array]:
    """The arrays by name; they are read when they are looked at."""
    return {
        unquote(file.name.removesuffix(_SUFFIX)): np.load(file, mmap_mode="r", allow_pickle=False)
        for file in sorted(folder.glob(f"*{_SUFFIX}"))
    }
