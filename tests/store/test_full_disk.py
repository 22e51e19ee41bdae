"""What the system does not let us write is one error of ours, and nothing is left half done."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from srl.core.errors import CannotWrite
from srl.store import checkpoint
from srl.store.atomic import replace_file

NARROW = """
import json, sys
from pathlib import Path
import numpy as np
from srl.core.errors import CannotWrite
from srl.store import checkpoint
from srl.store.atomic import replace_file
here = Path(sys.argv[1])
try:
    {deed}
except CannotWrite as error:
    print(json.dumps([error.headline, error.facts, error.exit_code]))
"""


def in_narrow_space(deed: str, place: Path) -> Any:
    """What a process says that may write no file beyond 4000 bytes: a limit of this one would end the log of the tests."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))  # noqa: E731
    done = subprocess.run(
        [sys.executable, "-B", "-c", NARROW.format(deed=deed), str(place)],
        preexec_fn=limit, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_a_checkpoint_that_does_not_fit_names_itself_and_leaves_the_one_before(tmp_path: Path) -> None:
    first = checkpoint.write(tmp_path, 1, {"policy": {"w": np.zeros(3)}}, {})
    headline, lines, exit_code = in_narrow_space("checkpoint.write(here, 2, {'big': {'w': np.zeros(4000)}}, {})", tmp_path)
    assert headline == f"cannot write {tmp_path / 'step_000000002'}"
    assert lines[0] == ["found", "File too large"] and exit_code == 3
    assert checkpoint.latest(tmp_path) == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step_000000001"]


def test_a_file_that_does_not_fit_leaves_the_one_before(tmp_path: Path) -> None:
    replace_file(tmp_path / "status.json", "before")
    headline, _, _ = in_narrow_space("replace_file(here / 'status.json', 'x' * 5000)", tmp_path)
    assert headline.startswith("cannot write")
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]
    assert (tmp_path / "status.json").read_text() == "before"


def test_a_folder_that_is_gone_is_told_too(tmp_path: Path) -> None:
    with pytest.raises(CannotWrite, match="No such file or directory"):
        replace_file(tmp_path / "gone" / "status.json", "{}")
