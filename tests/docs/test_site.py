"""What the site is made of is true: errors, the notebook, curves. `make site` builds it with warnings as errors."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from srl.core.errors import CODES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_the_page_of_errors_has_every_code_with_its_meaning() -> None:
    rows = re.findall(r"^\| ([A-Z]\d\d) \| (.+?) \| (.+?) \|$", (DOCS / "errors.md").read_text(), re.M)
    assert {code: meaning for code, meaning, _ in rows} == CODES
    assert all(len(advice) > 20 for _, _, advice in rows)


@pytest.mark.long
def test_the_notebook_runs_and_says_what_it_said(tmp_path: Path) -> None:
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    words = [sys.executable, str(DOCS / "site" / "notebook.py"), str(DOCS / "first_run.ipynb")]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "balanced for more than 50 steps: True" in ended.stdout
    assert "the return has more than doubled: True" in ended.stdout


@pytest.mark.parametrize("file", sorted((DOCS / "curves").glob("*.json")), ids=lambda file: file.stem)
def test_every_curve_is_of_an_experiment_and_has_a_picture(file: Path) -> None:
    record = json.loads(file.read_text())
    assert (ROOT / "experiments" / f"{record['experiment']}.yaml").is_file() and record["experiment"] == file.stem
    assert file.with_suffix(".svg").read_text().count("<polyline") == len(record["seeds"]) >= 1


def test_curves_are_made_from_runs(tmp_path: Path) -> None:
    from srl import launch

    for seed in (1, 2):
        launch("cartpole", stop={"updates": 12}, seed=seed, mode="inline", evaluation=None, runs=tmp_path / "runs", quiet=True)
    words = [sys.executable, str(DOCS / "site" / "curves.py"), str(tmp_path / "runs"), str(tmp_path)]
    subprocess.run(words, check=True, capture_output=True, timeout=100)
    record = json.loads((tmp_path / "cartpole.json").read_text())
    assert record["expect"] == 475 and [one["seed"] for one in record["seeds"]] == [1, 2]
    assert all(one["curve"][-1][2] == pytest.approx(one["return"], abs=1e-3) for one in record["seeds"])
    assert (tmp_path / "cartpole.svg").read_text().count("<polyline") == 2
