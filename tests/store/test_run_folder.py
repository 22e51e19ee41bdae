"""The folder of a run: private, whole files, found by its parent."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from srl.core.errors import UserError
from srl.store.lines import LineFile, read_lines
from srl.store.run_folder import RunFolder
from tests.errors import raises


def test_a_new_folder_is_private_and_named_by_time_seed_and_id(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "runs", "atari/pong", 3)
    assert run.path.parent == tmp_path / "runs" / "atari-pong"
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    assert "_s3_" in run.path.name
    assert all(folder.is_dir() for folder in (run.logs, run.tb, run.videos, run.checkpoints))
    assert run.log("actor", 7) == run.path / "logs" / "actor-7.log"


def test_two_runs_in_one_second_have_two_folders(tmp_path: Path) -> None:
    assert len({RunFolder.create(tmp_path, "cartpole", 1).path for _ in range(5)}) == 5


def test_open_takes_a_run_or_the_newest_below(tmp_path: Path) -> None:
    older, newer = (RunFolder.create(tmp_path, name, seed) for name, seed in (("b", 1), ("a", 2)))
    older.write_status({"state": "done"})  # touched last, made first
    assert RunFolder.open(older.path).path == older.path
    assert RunFolder.open(tmp_path).path == newer.path
    assert RunFolder.open(tmp_path / "b").path == older.path


def test_the_runs_of_a_sweep_are_found_from_every_folder_above(tmp_path: Path) -> None:
    sweep = tmp_path / "runs" / "cartpole_sweep" / "20250131-120000"
    runs = {RunFolder.create(sweep / label, "cartpole", 1).path for label in ("seed=1", "seed=2")}
    alone = RunFolder.create(tmp_path / "runs", "cartpole", 3)
    (alone.path / "logs" / "status.json").write_text("{}")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "status.json").write_text("{}")
    for above in (sweep, sweep.parent):
        assert {run.path for run in RunFolder.below(above)} == runs
        assert RunFolder.open(above).path in runs
    assert {run.path for run in RunFolder.below(tmp_path)} == {*runs, alone.path}
    assert RunFolder.open(tmp_path).path == alone.path


@pytest.mark.parametrize(("name", "text"), [("nothing", "does not exist"), ("", "holds no run")])
def test_open_says_what_it_expected(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(UserError, match=f"{text}.*\n.*expected: a run folder such as"):
        RunFolder.open(tmp_path / name)


def test_env_txt_names_versions_and_hides_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRL_TOKEN", "c0ffee-secret")
    text = RunFolder.create(tmp_path, "cartpole", 1).env.read_text()
    assert "numpy: " in text and "python: CPython 3." in text and "git here: " in text and "cores: " in text
    assert "c0ffee" not in text


@pytest.mark.parametrize("root", ["file", "file/below", "/proc/nowhere"])
def test_a_place_where_no_folder_can_be_made_is_a_user_error(root: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError) as caught:
        RunFolder.create(tmp_path / root, "cartpole", 1)
    assert caught.value.headline == f"the folder of the run cannot be made in {tmp_path / root}"
    assert ("try", "--runs DIR") in caught.value.facts


HOLDER = """
import sys
from pathlib import Path
from srl.store.run_folder import RunFolder
run = RunFolder(Path(sys.argv[1]))
run.hold()
run.write_status({"state": "running", "pid": 4711})
print("held", flush=True)
sys.stdin.read()
"""


def test_a_folder_is_held_by_one_process_until_it_ends_however_it_ends(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "cartpole", 1)
    assert not run.is_live and run.state == "created"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    assert run.is_live and run.state == "running"
    with raises("E16") as caught:
        run.hold()
    assert str(run.path) in caught.value.headline and "4711" in caught.value.headline
    assert "srl stop" in dict(caught.value.facts)["try"]
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert not run.is_live and run.state == "died"
    run.hold()
    run.hold()
    run.close()


def test_a_run_that_ends_while_it_is_asked_gives_its_last_facts_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder.create(tmp_path, "cartpole", 1)
    run.write_status({"state": "running"})

    def ends(run: RunFolder) -> bool:
        run.write_status({"state": "interrupted", "checkpoint": "step_1"})
        return False

    monkeypatch.setattr(RunFolder, "is_live", property(ends))
    facts = run.read_facts()
    assert (facts["state"], facts["checkpoint"]) == ("interrupted", "step_1")


STATUS_WRITER = """
import sys
from srl.store.run_folder import RunFolder
run = RunFolder(__import__("pathlib").Path(sys.argv[1]))
number = 0
while True:
    number += 1
    run.write_status({"number": number, "same": number, "filler": "x" * 20000})
    print(number, flush=True)
"""


def test_status_is_whole_whenever_its_writer_is_killed(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "cartpole", 1)
    created = run.read_status()["created"]
    writer = subprocess.Popen([sys.executable, "-c", STATUS_WRITER, str(run.path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.readline()
    for _ in range(200):
        status = run.read_status()
        assert status["number"] == status["same"] and len(status["filler"]) == 20000
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    status = run.read_status()
    assert status["number"] == status["same"] and status["created"] == created <= status["updated"]


def test_events_are_lines_and_survive_a_torn_one(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "cartpole", 1)
    run.append_event("started", workers=3)
    run.close()
    with run.events.open("a") as file:
        file.write('{"event": "torn", "wor')
    run.append_event("died", worker="actor/2", signal=9)
    run.close()
    assert [(row["event"], row.get("worker")) for row in read_lines(run.events)] == [("started", None), ("died", "actor/2")]


def test_two_processes_append_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    children = []
    for name in "ab":
        child = os.fork()
        if child == 0:
            file = LineFile(path)
            for number in range(500):
                file.append({"name": name, "number": number, "filler": name * 500})
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    rows = list(read_lines(path))
    assert [row["number"] for row in rows if row["name"] == "a"] == list(range(500))
    assert len(rows) == 1000 and all(row["filler"] == row["name"] * 500 for row in rows)


def test_eval_rows_keep_their_columns_when_one_is_added(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "cartpole", 1)
    run.append_eval({"step": 100, "return": 20.5})
    run.append_eval({"step": 200, "return": 30.0, "note": 'a "b", c'})
    assert run.read_eval() == [
        {"step": "100", "return": "20.5", "note": ""},
        {"step": "200", "return": "30.0", "note": 'a "b", c'},
    ]


def test_texts_are_put_in_one_step(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "cartpole", 1)
    run.write_text("overrides.txt", "algorithm.lr=1e-3\n")
    assert run.overrides.read_text() == "algorithm.lr=1e-3\n"
    assert not list(run.path.glob(".tmp-*"))
