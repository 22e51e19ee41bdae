"""What the system does not let us write is one error of ours, and nothing is left half done."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from srl.core.errors import CannotWrite
from srl.store import checkpoint
from srl.store.atomic import replace_file


@pytest.fixture
def narrow() -> Iterator[None]:
    """No file may become longer than 4000 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_checkpoint_that_does_not_fit_names_itself_and_leaves_the_one_before(tmp_path: Path, narrow: None) -> None:
    first = checkpoint.write(tmp_path, 1, {"policy": {"w": np.zeros(3)}}, {})
    with pytest.raises(CannotWrite) as caught:
        checkpoint.write(tmp_path, 2, {"policy": {"w": np.zeros(3)}, "big": {"w": np.zeros(4000)}}, {})
    assert caught.value.headline == f"cannot write {tmp_path / 'step_000000002'}"
    assert caught.value.lines[0] == ("found", "File too large") and caught.value.exit_code == 3
    assert checkpoint.latest(tmp_path) == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step_000000001"]


def test_a_file_that_does_not_fit_leaves_the_one_before(tmp_path: Path, narrow: None) -> None:
    replace_file(tmp_path / "status.json", "before")
    with pytest.raises(CannotWrite, match="cannot write"):
        replace_file(tmp_path / "status.json", "x" * 5000)
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]
    assert (tmp_path / "status.json").read_text() == "before"


def test_a_folder_that_is_gone_is_told_too(tmp_path: Path) -> None:
    with pytest.raises(CannotWrite, match="No such file or directory"):
        replace_file(tmp_path / "gone" / "status.json", "{}")
