"""A run folder that somebody damaged or made: every command names the file that is wrong, and none ends in a traceback."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from srl.__main__ import main as verbs
from srl.cli.launch import main as launch
from srl.core.errors import UserError
from srl.loaded import load_run

SMALL = ["mode=inline", "sampling.envs=4", "sampling.steps=8", "stop.updates=2", "~stop.env_steps", "evaluation=null", "--quiet"]
RESUME, EVAL, LOAD, STATUS = "resume", "eval", "load", "status"
WEIGHTS = {RESUME, EVAL, LOAD}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small finished run."""
    root = tmp_path_factory.mktemp("whole")
    assert launch(["cartpole", *SMALL, "--runs", str(root)]) == 0
    return next((root / "cartpole").iterdir())


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "cartpole" / whole.name)
    return tmp_path / "cartpole" / whole.name


def step(run: Path) -> Path:
    return run / "checkpoints" / (run / "checkpoints" / "latest").read_text().strip()


def put(name: str, content: bytes | str) -> Callable[[Path], None]:
    """Other bytes in a file of the run."""

    def damage(run: Path) -> None:
        (run / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return damage


def become(name: str, kind: str) -> Callable[[Path], None]:
    """Something else than a file under its name."""

    def damage(run: Path) -> None:
        path = run / name if "/" in name or (run / name).exists() or name == "lock" else step(run) / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(path.name if kind == "loop" else "nowhere")

    return damage


def within(file: str, **changes: Any) -> Callable[[Path], None]:
    """Other values in a JSON file of the run; `None` takes a key away."""

    def damage(run: Path) -> None:
        path = run / file if (run / file).exists() else step(run) / file
        data = json.loads(path.read_text())
        for key, value in changes.items():
            if value is None:
                data.pop(key)
            else:
                data[key] = value
        path.write_text(json.dumps(data))
        if path.parent == step(run) and file != "manifest.json":
            hashed(path)

    return damage


def raw(file: str, content: bytes) -> Callable[[Path], None]:
    """Other bytes in a file of the checkpoint, with the manifest made to agree."""

    def damage(run: Path) -> None:
        (step(run) / file).write_bytes(content)
        hashed(step(run) / file)

    return damage


def arrays(change: Callable[[dict[str, Any]], Any], group: str = "policy") -> Callable[[Path], None]:
    """Other arrays in a group of the checkpoint, with the manifest made to agree."""

    def damage(run: Path) -> None:
        path = step(run) / f"{group}.safetensors"
        held = {name: np.array(array) for name, array in load_file(path).items()}
        change(held)
        path.write_bytes(save(held))
        hashed(path)

    return damage


def inside(file: str, content: bytes) -> Callable[[Path], None]:
    """Other bytes in a file of the checkpoint; the manifest stays."""
    return lambda run: (step(run) / file).write_bytes(content) and None


def hashed(path: Path) -> None:
    manifest = json.loads((path.parent / "manifest.json").read_text())
    data = path.read_bytes()
    manifest["files"][path.name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (path.parent / "manifest.json").write_text(json.dumps(manifest))


def first(held: dict[str, Any]) -> str:
    return next(name for name, array in held.items() if array.dtype == np.float32 and array.ndim == 2)


def set_first(value: Callable[[Any], Any]) -> Callable[[dict[str, Any]], Any]:
    def change(held: dict[str, Any]) -> None:
        name = first(held)
        held[name] = np.ascontiguousarray(value(held[name]))

    return change


def every(value: Callable[[Any], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda held: held.update({name: np.array(value(one), order="C") for name, one in held.items() if one.ndim})


def renamed(held: dict[str, Any]) -> None:
    for name in list(held):
        held[f"{name}x"] = held.pop(name)


DEEP = b'{"a":' * 50_000 + b"1" + b"}" * 50_000
ENTRY = {"size": 1, "sha256": "x"}

DAMAGE: dict[str, tuple[Callable[[Path], None], set[str], str]] = {
    "status: a list": (put("status.json", "[]"), {STATUS, RESUME}, "status.json"),
    "status: empty": (put("status.json", ""), {STATUS, RESUME}, "status.json"),
    "status: torn": (put("status.json", '{"state": "do'), {STATUS, RESUME}, "status.json"),
    "status: not text": (put("status.json", b"\xff\xfe\x00"), {STATUS, RESUME}, "status.json"),
    "status: deep": (put("status.json", DEEP), {STATUS, RESUME}, "status.json"),
    "status: deep enough": (put("status.json", b'{"a":' * 200 + b"1" + b"}" * 200), {STATUS, RESUME}, "status.json"),
    "status: a large number": (put("status.json", '{"updated": 1' + "0" * 5000 + "}"), {STATUS, RESUME}, "status.json"),
    "status: NaN": (put("status.json", '{"updated": NaN}'), {STATUS, RESUME}, "status.json"),
    "status: infinite": (put("status.json", '{"updated": 1e999}'), {STATUS, RESUME}, "status.json"),
    "status: state is a number": (within("status.json", state=3), {STATUS, RESUME}, "'state'"),
    "status: updated is text": (within("status.json", updated="now"), {STATUS, RESUME}, "'updated'"),
    "status: created is a list": (within("status.json", created=[1]), {STATUS, RESUME}, "'created'"),
    "status: env_steps is text": (within("status.json", env_steps="many"), {STATUS, RESUME}, "'env_steps'"),
    "status: env_steps is negative": (within("status.json", env_steps=-1), {STATUS, RESUME}, "'env_steps'"),
    "status: incarnation is a mapping": (within("status.json", incarnation={}), {STATUS, RESUME}, "'incarnation'"),
    "manifest: a list": (inside("manifest.json", b"[]"), WEIGHTS, "manifest.json"),
    "manifest: torn": (inside("manifest.json", b'{"format": 1, '), WEIGHTS, "manifest.json"),
    "manifest: deep": (inside("manifest.json", DEEP), WEIGHTS, "manifest.json"),
    "manifest: empty": (inside("manifest.json", b"{}"), WEIGHTS, "manifest.json"),
    "manifest: no files": (within("manifest.json", files=None), WEIGHTS, "'files'"),
    "manifest: files is a list": (within("manifest.json", files=["policy.safetensors"]), WEIGHTS, "'files'"),
    "manifest: an entry is text": (within("manifest.json", files={"state.json": "here"}), WEIGHTS, "state.json"),
    "manifest: a size is text": (within("manifest.json", files={"state.json": {"size": "1", "sha256": ""}}), WEIGHTS, "size"),
    "manifest: a file less": (within("manifest.json", files={"policy.safetensors": ENTRY}), WEIGHTS, "state.json"),
    "manifest: a file outside": (within("manifest.json", files={"../x": ENTRY, "state.json": ENTRY}), WEIGHTS, "../x"),
    "manifest: step is text": (within("manifest.json", step="9"), WEIGHTS, "'step'"),
    "manifest: step is negative": (within("manifest.json", step=-9), WEIGHTS, "'step'"),
    "manifest: format is text": (within("manifest.json", format="1"), WEIGHTS, "'format'"),
    "manifest: of the future": (within("manifest.json", format=99), WEIGHTS, "format 99"),
    "manifest: a folder": (become("manifest.json", "folder"), WEIGHTS, ""),
    "state: a list": (raw("state.json", b"[]"), WEIGHTS, "state.json"),
    "state: not JSON": (raw("state.json", b"{"), WEIGHTS, "state.json"),
    "state: deep": (raw("state.json", DEEP), WEIGHTS, "state.json"),
    "state: another hash": (inside("state.json", b"{}"), WEIGHTS, "state.json"),
    "state: a folder": (become("state.json", "folder"), WEIGHTS, "state.json"),
    "state: a pipe": (become("state.json", "pipe"), WEIGHTS, "state.json"),
    "state: updates is text": (within("state.json", updates="2"), WEIGHTS, "'updates'"),
    "state: updates is negative": (within("state.json", updates=-2), WEIGHTS, "'updates'"),
    "state: env_steps is a list": (within("state.json", env_steps=[1]), WEIGHTS, "'env_steps'"),
    "state: the clock is text": (within("state.json", clock="noon"), WEIGHTS, "'clock'"),
    "state: the clock has text": (within("state.json", clock={"env_steps": "x"}), WEIGHTS, "clock.env_steps"),
    "state: the clock is empty": (within("state.json", clock={}), {RESUME}, "state.json"),
    "state: no updates": (within("state.json", updates=None), {RESUME}, "state.json"),
    "state: nothing": (raw("state.json", b"{}"), {RESUME}, "state.json"),
    "state: an array of the old form": (
        raw("state.json", b'{"updates": {"$array": {"dtype": "S1000000000", "shape": [1], "data": ""}}}'),
        WEIGHTS,
        "'updates'",
    ),
    "latest: a loop": (become("checkpoints/latest", "loop"), WEIGHTS, "latest"),
    "latest: a folder": (become("checkpoints/latest", "folder"), WEIGHTS, "latest"),
    "latest: a pipe": (become("checkpoints/latest", "pipe"), WEIGHTS, "latest"),
    "latest: elsewhere": (put("checkpoints/latest", "../../../etc/passwd"), WEIGHTS, "latest"),
    "latest: not text": (put("checkpoints/latest", b"\xff\xff"), WEIGHTS, "latest"),
    "latest: very long": (put("checkpoints/latest", b"step_" + b"9" * 100_000), WEIGHTS, "latest"),
    "events: a folder": (become("events.jsonl", "folder"), {RESUME}, "events.jsonl"),
    "events: a dangling link": (become("events.jsonl", "dangling"), {RESUME}, "events.jsonl"),
    "lock: a folder": (become("lock", "folder"), {RESUME}, "lock"),
    "lock: a dangling link": (become("lock", "dangling"), {RESUME}, "lock"),
    "lock: a pipe": (become("lock", "pipe"), {RESUME}, "lock"),
    "metrics: a folder": (become("metrics.jsonl", "folder"), {RESUME}, "metrics.jsonl"),
    "weights: another shape": (arrays(set_first(lambda array: array[:1])), WEIGHTS, ""),
    "weights: empty": (arrays(set_first(lambda array: array[:0])), WEIGHTS, ""),
    "weights: another type": (arrays(set_first(lambda array: array.astype(np.int8))), WEIGHTS, ""),
    "weights: NaN": (arrays(set_first(lambda array: array * np.nan)), WEIGHTS, "policy.safetensors"),
    "weights: infinite": (arrays(set_first(lambda array: array + np.inf)), WEIGHTS, "policy.safetensors"),
    "weights: a layer less": (arrays(lambda held: held.pop(first(held))), WEIGHTS, ""),
    "weights: none": (arrays(lambda held: held.clear()), WEIGHTS, ""),
    "weights: inside of an array": (arrays(lambda held: held.update({f"{first(held)}/x": np.ones(1)})), WEIGHTS, "policy"),
    "weights: not safetensors": (raw("policy.safetensors", b"x" * 100), WEIGHTS, "policy.safetensors"),
    "weights: a large header": (raw("policy.safetensors", (1 << 62).to_bytes(8, "little")), WEIGHTS, "policy.safetensors"),
    "optimizer: another shape": (
        arrays(every(lambda one: one[..., :0]), "optimizer"),
        {RESUME},
        "",
    ),
    "optimizer: NaN": (arrays(every(lambda one: one * np.float32("nan")), "optimizer"), {RESUME}, "optimizer.safetensors"),
    "generator: cut off": (arrays(lambda held: held.update({"torch_rng": held["torch_rng"][:10]}), "algorithm"), {RESUME}, ""),
    "generator: numbers": (
        arrays(lambda held: held.update({"torch_rng": held["torch_rng"] * np.nan}), "algorithm"),
        {RESUME},
        "",
    ),
    "generator: gone": (arrays(lambda held: held.pop("torch_rng"), "algorithm"), {RESUME}, ""),
    "workers: other shapes": (
        arrays(every(lambda one: one[..., :0]), "workers"),
        {RESUME},
        "",
    ),
    "workers: other names": (
        arrays(renamed, "workers"),
        {RESUME},
        "",
    ),
    "graph: not YAML": (put("graph.yaml", "{"), {EVAL, LOAD}, "graph.yaml"),
    "graph: empty": (put("graph.yaml", ""), {EVAL, LOAD}, "graph.yaml"),
    "graph: a list": (put("graph.yaml", "[1]"), {EVAL, LOAD}, "graph.yaml"),
    "graph: deep": (put("graph.yaml", "[" * 20_000), {EVAL, LOAD}, "graph.yaml"),
    "graph: a pipe": (become("graph.yaml", "pipe"), set(), ""),
    "config: not text": (put("config.yaml", b"\xff"), {RESUME}, "config.yaml"),
    "config: deep": (put("config.yaml", "a: " + "[" * 20_000), {RESUME}, "config.yaml"),
    "overrides: not text": (put("overrides.txt", b"\xff"), {RESUME}, "overrides.txt"),
}


def refused(command: str, run: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says; it must refuse with exit code 2."""
    if command == LOAD:
        with pytest.raises(UserError) as caught:
            load_run(run).policy()
        return str(caught.value)
    words = {
        RESUME: lambda: launch(["--resume", str(run), "stop.updates=3", "--quiet"]),
        EVAL: lambda: verbs(["eval", str(run), "--episodes", "1"]),
        STATUS: lambda: verbs(["status", str(run)]),
    }
    code = words[command]()
    printed = capsys.readouterr()
    said = printed.err + printed.out
    assert code == 2, said
    return said


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_named(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage, commands, fact = DAMAGE[name]
    damage(run)
    for command in sorted(commands):
        capsys.readouterr()
        said = refused(command, run, capsys)
        assert "error[" in said and fact in said and str(run) in said, (command, said)


def test_one_damaged_status_hides_no_other_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(run, run.with_name("other"))
    (run / "status.json").write_text("[]")
    assert verbs(["status", str(run.parent)]) == 0
    said = capsys.readouterr().out
    assert "damaged" in said and "done" in said and "other" in said


def test_lines_of_metrics_that_nobody_can_read_are_left_out(run: Path) -> None:
    before = load_run(run).metrics()
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(DEEP + b'\n[]\n{"wall": "x", "updates": [1], "env_steps": 1e999}\n{"torn')
    assert load_run(run).metrics() == [*before, {}]
    assert launch(["--resume", str(run), "stop.updates=3", "--quiet"]) == 0
