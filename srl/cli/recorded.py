"""`srl replay FOLDER`: what a recording holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from srl.cli.parsing import Parser
from srl.core.errors import UserError
from srl.core.text import aligned, count, figure, size
from srl.core.tree import Array


def replay(argv: list[str]) -> int:
    """Rows and episodes of the files that `record` wrote; `replay.data=FOLDER` trains on them."""
    about = "show what a recording holds: the folder that `record` of a run named. replay.data=FOLDER plays it back"
    parser = Parser(prog="srl replay", description=about)
    parser.add_argument("folder", help="the folder of `record`")
    folder = Path(parser.parse_args(argv).folder)
    from srl.replay.recording import PREFIX, columns_of, files_of

    files = files_of(folder) if folder.is_dir() else []
    if not files:
        raise UserError(
            f"there is no recording in {folder}", ("expected", "files such as 000000.npz, which `record: FOLDER` writes")
        )
    rows, slabs, joined = 0, 0, True
    returns: list[float] = []
    shapes: dict[str, str] = {}
    for file in files:
        with np.load(file, allow_pickle=False) as data:
            arrays = {name.removeprefix(PREFIX): data[name] for name in data.files}
        slabs, joined = slabs + len(arrays["valid"]), joined and "origin" in arrays
        for column in columns_of(arrays):
            shapes |= {
                name: f"{leaf.dtype} {leaf.shape[1:]}" for name, leaf in column.items() if name.partition("/")[0] in _SHOWN
            }
            rows += len(column["reward"])
            returns += _returns(column)
    lines = [
        ("files", f"{len(files)}, {size(sum(file.stat().st_size for file in files))}, {files[0].name} to {files[-1].name}"),
        ("rows", f"{rows:,} in {count(slabs, 'slab')}"),
        *shapes.items(),
        ("episodes", f"{len(returns):,} whole ones{', mean return ' + figure(float(np.mean(returns))) if returns else ''}"),
        *([] if joined else [("", "of an on-policy run: those that lie within one slab")]),
    ]
    print(aligned(lines))
    return 0


def _returns(column: Mapping[str, Array]) -> list[float]:
    """Of the episodes that are there from their first row to their last."""
    ends = np.flatnonzero(column["terminated"] | column["truncated"])
    if not len(ends):
        return []
    starts = np.append(0, ends[:-1] + 1)
    whole = column["begins"][starts] & column["ended"][ends]
    return [float(column["reward"][low : high + 1].sum()) for low, high in zip(starts[whole], ends[whole], strict=True)]


_SHOWN = ("obs", "action", "mask", "state")
