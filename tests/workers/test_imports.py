"""What the processes of a real run import: memory and seconds of every actor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from srl.core.registry import REGISTRIES

ROOT = Path(__file__).parents[2]
LIMIT = 45
"""Of our own files."""
LISTING = """
import atexit, json, os, sys
from pathlib import Path

def write():
    Path(os.environ["LISTED"], f"{os.getpid()}.json").write_text(json.dumps([sys.argv[1:], list(sys.modules)]))

atexit.register(write)
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Worker -> the modules that its process had imported when it ended, in an ordinary run with an evaluator."""
    words = ["experiment=cartpole", "layout=impala", "sampling.workers=1", "stop.env_steps=16000", "evaluation.every=8000"]
    return run(tmp_path_factory, words)


@pytest.fixture(scope="module")
def off_policy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The same with a replay in a process of its own."""
    words = ["env=CartPole-v1", "algorithm=dqn", "replay.warmup=100", "stop.env_steps=300", "workers.replay.inside=null"]
    return run(tmp_path_factory, words)


def run(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> dict[str, set[str]]:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "listing.py").write_text(LISTING)
    command = [sys.executable, "-m", "srl.launch", *words, f"import={folder / 'listing.py'}", "--runs", str(folder), "--quiet"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "LISTED": str(folder)}, check=True, capture_output=True)
    lists = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    return {argv[0]: set(modules) for argv, modules in lists if argv and argv[0].endswith("/0")}


def ours(modules: set[str]) -> list[str]:
    """Our files that were imported, without the `__init__` of the rooms."""
    mine = sorted(name for name in modules if name.partition(".")[0] == "srl")
    return [name for name in mine if not any(other.startswith(f"{name}.") for other in mine)]


def test_an_actor_with_its_policy_inside_imports_few_modules(imported):
    assert len(ours(imported["actor/0"])) <= LIMIT, "\n".join(ours(imported["actor/0"]))


def test_so_does_one_that_feeds_a_replay_which_needs_no_torch_either(off_policy):
    assert len(ours(off_policy["actor/0"])) <= LIMIT, "\n".join(ours(off_policy["actor/0"]))
    for worker in ("actor/0", "replay/0"):
        assert not {"torch", "yaml", "grpc", "rich", "zmq", "srl.config"} & off_policy[worker], worker
    assert "srl.replay.store" not in off_policy["actor/0"] and "gymnasium" not in off_policy["replay/0"]


@pytest.mark.parametrize(
    ("worker", "unwanted"),
    [
        ("actor/0", {"torch", "yaml", "safetensors", "grpc", "rich", "zmq", "cryptography", "srl.config", "srl.store"}),
        ("evaluator/0", {"torch", "yaml", "grpc", "rich", "zmq", "cryptography", "srl.config"}),
        ("trainer/0", {"gymnasium", "yaml", "grpc", "rich", "zmq", "cryptography", "srl.config", "srl.envs"}),
    ],
)
def test_a_worker_imports_only_what_its_kind_needs(imported, worker, unwanted):
    assert not unwanted & imported[worker]


@pytest.fixture(scope="module")
def known() -> dict[str, list[str]]:
    """Kind of worker -> the modules that are there once a process has resolved it after the kinds before it."""
    code = "import json, sys; from srl.core.registry import REGISTRIES; kinds = REGISTRIES['worker']; resolve = kinds.resolve"
    code += "; print(json.dumps({kind: resolve(kind) and list(sys.modules) for kind in kinds.names()}))"
    return json.loads(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True).stdout)


@pytest.mark.parametrize("kind", REGISTRIES["worker"].names())
def test_knowing_a_kind_of_worker_costs_no_heavy_import(kind, known):
    """The controller resolves every kind of a graph to check it."""
    assert not {"torch", "yaml", "gymnasium", "grpc", "rich", "zmq", "cryptography"} & set(known[kind])
