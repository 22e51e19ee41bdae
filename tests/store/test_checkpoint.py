"""Checkpoints are whole or absent, verified when read, and hold every kind of array."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from srl.core.tree import leaves
from srl.store import checkpoint
from tests.errors import raises


def arrays(step: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"weight": np.full((64, 64), step, np.float32), "bias": np.arange(64, dtype=np.float64) + step}


def write(folder: Path, step: int) -> Path:
    return checkpoint.write(folder, step, {"policy": arrays(step), "optimizer": arrays(-step)}, {"updates": step})


def assert_whole(path: Path) -> int:
    read = checkpoint.read(path)
    for group, sign in (("policy", 1), ("optimizer", -1)):
        for name, array in arrays(sign * read.step).items():
            np.testing.assert_array_equal(read.groups[group][name], array)
    assert read.state == {"updates": read.step}
    return read.step


TRAPS: dict[str, Any] = {
    "zero_d": np.array(3.5, np.float32),
    "numpy_scalar": np.float64(2.25),
    "transposed": np.arange(12, dtype=np.float32).reshape(3, 4).T,
    "strided": np.arange(20, dtype=np.int32)[::3],
    "reversed": np.arange(5, dtype=np.int16)[::-1],
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "broadcast": np.broadcast_to(np.float32(7), (2, 3)),
    "uint64": np.array([0, 2**64 - 1, 2**63], np.uint64),
    "empty": np.zeros((0, 5), np.float32),
    "bool": np.array([True, False]),
    "half": np.array([1.5, -0.25], np.float16),
    "big_endian": np.arange(4, dtype=">f8"),
    "unaligned": np.frombuffer(bytes(1) + np.arange(3, dtype="<f4").tobytes(), dtype=np.uint8)[1:].view("<f4"),
}


@pytest.mark.parametrize("name", TRAPS)
def test_an_array_comes_back_as_it_was(tmp_path: Path, name: str) -> None:
    path = checkpoint.write(tmp_path, 1, {"policy": {"a": TRAPS[name], "other": np.ones(3)}}, {})
    array = checkpoint.read(path).groups["policy"]["a"]
    assert array.shape == np.shape(TRAPS[name])
    assert array.dtype == np.asarray(TRAPS[name]).dtype.newbyteorder("=")
    np.testing.assert_array_equal(array, TRAPS[name])


def test_tied_arrays_are_stored_under_both_names(tmp_path: Path) -> None:
    shared = np.arange(8, dtype=np.float32)
    group = checkpoint.read(
        checkpoint.write(tmp_path, 1, {"policy": {"embed": shared, "head": shared, "part": shared[2:5]}}, {})
    ).groups
    np.testing.assert_array_equal(group["policy"]["head"], shared)
    np.testing.assert_array_equal(group["policy"]["part"], shared[2:5])


def test_arrays_that_were_read_can_be_written_to(tmp_path: Path) -> None:
    array = checkpoint.read(write(tmp_path, 1)).groups["policy"]["weight"]
    array += 1
    assert array[0, 0] == 2


def test_empty_groups_and_several_policies_are_kept_apart(tmp_path: Path) -> None:
    groups = {"policy.hider": {"w": np.ones(2)}, "policy.seeker": {"w": np.zeros(2)}, "optimizer.hider": {}}
    read = checkpoint.read(checkpoint.write(tmp_path, 7, groups, {}))
    assert set(read.groups) == set(groups)
    assert read.groups["optimizer.hider"] == {}
    assert read.groups["policy.hider"]["w"][0] == 1 and read.groups["policy.seeker"]["w"][0] == 0


def test_a_checkpoint_travels_as_bytes(tmp_path: Path) -> None:
    groups = {"policy": {"a/b": np.arange(6, dtype=np.float32).reshape(2, 3), "c": np.array(True)}, "optimizer": {}}
    saved = checkpoint.read(checkpoint.write(tmp_path, 7, groups, {"updates": 3, "source": {"x": [1, 2]}}))
    found = checkpoint.from_bytes(checkpoint.to_bytes(saved))
    assert found.step == 7 and found.state == saved.state and found.groups.keys() == groups.keys()
    for name, array in saved.groups["policy"].items():
        np.testing.assert_array_equal(found.groups["policy"][name], array, strict=True)
        assert found.groups["policy"][name].flags.writeable


def test_a_tree_comes_back_as_a_tree(tmp_path: Path) -> None:
    tree = {"carry": {"obs": np.ones((2, 3)), "memory": {"h": np.zeros(4, np.float32)}}, "tick": np.array(5)}
    back = checkpoint.read(checkpoint.write(tmp_path, 1, {"actor-0": tree}, {})).tree("actor-0")
    assert [path for path, _ in leaves(back)] == [path for path, _ in leaves(tree)]
    np.testing.assert_array_equal(back["carry"]["memory"]["h"], tree["carry"]["memory"]["h"])


@pytest.mark.parametrize("group", ["", "a/b", "../up", ".hidden"])
def test_a_group_name_that_is_no_file_name_is_refused(tmp_path: Path, group: str) -> None:
    with pytest.raises(ValueError, match="a name is made of"):
        checkpoint.write(tmp_path, 1, {group: {}}, {})


def test_what_safetensors_cannot_hold_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="optimizer: net/name: <U3 cannot be stored"):
        checkpoint.write(tmp_path, 1, {"optimizer": {"net": {"name": np.array("abc")}}}, {})
    with pytest.raises(ValueError, match="the name 'a/b' is used twice"):
        checkpoint.write(tmp_path, 1, {"policy": {"a": {"b": np.ones(1)}, "a/b": np.ones(1)}}, {})
    assert checkpoint.latest(tmp_path) is None


def flip_a_byte(path: Path) -> str:
    file = path / "policy.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    return r"policy\.safetensors\n  found: changed after writing: sha256 \w{12}\.\.\.\n  expected: sha256"


def cut_a_file(path: Path) -> str:
    os.truncate(path / "optimizer.safetensors", 100)
    return r"optimizer\.safetensors\n  found: cut off or overwritten: 100 bytes\n  expected: [\d,]+ bytes"


def lose_a_file(path: Path) -> str:
    (path / "state.json").unlink()
    return r"state\.json\n  found: missing"


def tear_the_manifest(path: Path) -> str:
    os.truncate(path / "manifest.json", 40)
    return r"manifest\.json\n  found: not JSON"


def point_outside(path: Path) -> str:
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"]["../../secret"] = {"size": 0, "sha256": ""}
    (path / "manifest.json").write_text(json.dumps(manifest))
    return "found: the file name"


def come_from_the_future(path: Path) -> str:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "format": checkpoint.FORMAT + 1}))
    return f"found: format {checkpoint.FORMAT + 1} .*\n  expected: format {checkpoint.FORMAT} or an older"


@pytest.mark.parametrize("damage", [flip_a_byte, cut_a_file, lose_a_file, tear_the_manifest, point_outside, come_from_the_future])
def test_damage_is_named_and_refused(tmp_path: Path, damage: Callable[[Path], str]) -> None:
    path = write(tmp_path, 5)
    with raises("E15", match=damage(path)):
        checkpoint.read(path)


def test_a_half_written_checkpoint_is_named_and_refused(tmp_path: Path) -> None:
    write(tmp_path, 5)
    aside = tmp_path / ".tmp-step_000000006-1234"
    aside.mkdir()
    with raises("E15") as caught:
        checkpoint.read(aside)
    assert caught.value.format() == (
        "error[E15]: checkpoint '.tmp-step_000000006-1234' cannot be used\n"
        f"  file: {aside}\n"
        "  found: half-written: its writer was stopped before it finished\n"
        f"  try: another checkpoint of {tmp_path}: step_000000005"
    )


def test_latest_is_the_last_written_even_after_going_back(tmp_path: Path) -> None:
    write(tmp_path, 300)
    earlier = write(tmp_path, 100)
    assert checkpoint.latest(tmp_path) == earlier


def test_latest_without_a_pointer_is_the_newest_whole_one(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path) is None
    newest = [write(tmp_path, step) for step in (1, 2)][-1]
    (tmp_path / "latest").unlink()
    assert checkpoint.latest(tmp_path) == newest


def test_writing_a_step_again_leaves_the_first_alone(tmp_path: Path) -> None:
    first, second = write(tmp_path, 10), write(tmp_path, 10)
    assert (first.name, second.name) == ("step_000000010", "step_000000010.2")
    assert assert_whole(first) == assert_whole(second) == 10
    assert checkpoint.latest(tmp_path) == second


def test_best_lies_beside_the_others_with_its_score(tmp_path: Path) -> None:
    assert checkpoint.best(tmp_path) is None and checkpoint.best_score(tmp_path) is None
    write(tmp_path, 5)
    for step, score in ((1, -3.5), (2, 475.25)):
        checkpoint.write_best(tmp_path, step, {"policy": {"w": np.ones(2)}}, score)
    assert checkpoint.best(tmp_path) == tmp_path / "best" / "step_000000002"
    assert checkpoint.best_score(tmp_path) == 475.25
    assert len(checkpoint.checkpoints(tmp_path / "best")) == 1
    assert checkpoint.latest(tmp_path) == tmp_path / "step_000000005"


def test_prune_keeps_the_newest_and_the_latest(tmp_path: Path) -> None:
    for step in range(1, 7):
        write(tmp_path, step)
    checkpoint.write_best(tmp_path, 2, {"policy": {"w": np.ones(2)}}, 1.0)
    (tmp_path / ".tmp-step_000000099-77").mkdir()
    checkpoint.prune(tmp_path, keep=2)
    assert [checkpoint.step_of(path) for path in checkpoint.checkpoints(tmp_path)] == [5, 6]
    assert checkpoint.best(tmp_path) is not None
    assert checkpoint.half_written(tmp_path) == []


def test_prune_keeps_by_time_not_by_step(tmp_path: Path) -> None:
    for step in (500, 600, 100, 200):
        write(tmp_path, step)
    checkpoint.prune(tmp_path, keep=2)
    assert [checkpoint.step_of(path) for path in checkpoint.checkpoints(tmp_path)] == [100, 200]


def kill_before(call: int) -> None:
    """End this process with signal 9 before its `call`-th call that changes the disk."""
    count = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def replacement(*arguments: Any, **keywords: Any) -> Any:
            nonlocal count
            count += 1
            if count == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **keywords)

        return replacement

    for name in ("fsync", "rename", "replace", "mkdir"):
        setattr(os, name, counted(getattr(os, name)))


def test_a_kill_at_any_disk_call_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    seen: set[int] = set()
    for call in range(1, 40):
        folder = tmp_path / str(call)
        write(folder, 1)
        child = os.fork()
        if child == 0:
            kill_before(call)
            write(folder, 2)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        path = checkpoint.latest(folder)
        assert path is not None
        seen.add(assert_whole(path))
        assert {assert_whole(each) for each in checkpoint.checkpoints(folder)} <= {1, 2}
        if os.WIFEXITED(status):
            break
    assert seen == {1, 2}
    assert 10 < call < 39  # the write ended by itself once all its calls had been tried


WRITER = """
import sys
from pathlib import Path
import numpy as np
from srl.store import checkpoint
folder, step = Path(sys.argv[1]), int(sys.argv[2])
while True:
    step += 1
    arrays = {"weight": np.full((64, 64), step, np.float32), "bias": np.arange(64, dtype=np.float64) + step}
    minus = {"weight": np.full((64, 64), -step, np.float32), "bias": np.arange(64, dtype=np.float64) - step}
    checkpoint.write(folder, step, {"policy": arrays, "optimizer": minus}, {"updates": step})
    checkpoint.prune(folder, keep=3)
    print(step, flush=True)
"""


def test_latest_is_whole_whenever_a_writing_process_is_killed(tmp_path: Path) -> None:
    chance = random.Random(5)
    last = 0
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(last)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        reported = 0
        for _ in range(chance.randint(1, 4)):
            reported = int(writer.stdout.readline())
        select.select([], [], [], chance.random() * 0.01)  # a random moment of the next write
        writer.kill()
        writer.communicate()
        path = checkpoint.latest(tmp_path)
        assert path is not None
        last = assert_whole(path)
        assert last >= reported > 0
        assert all(assert_whole(each) for each in checkpoint.checkpoints(tmp_path))


def test_reading_and_writing_import_no_torch() -> None:
    program = "import sys, srl.store.checkpoint, srl.store.run_folder; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
