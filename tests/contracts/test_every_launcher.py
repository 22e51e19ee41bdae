"""What all launchers promise: those of the package, and one of a third party. Each as far as it can be run here."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from srl.control.controller import Controller
from srl.core.errors import UserError
from srl.core.load import load
from srl.core.registry import REGISTRIES
from srl.core.types import Component, HostGroup
from srl.graph.hosts import sockets_lines
from srl.graph.spec import Graph
from srl.launchers.backend import LaunchedBackend
from srl.launchers.base import Launcher, Submitter, launcher_of
from srl.launchers.piped import PipedLauncher
from srl.observe.ledger import table
from srl.store.run_folder import RunFolder
from tests.cluster.slurm_cluster import SlurmCluster
from tests.cluster.slurm_cluster import missing as missing_slurm
from tests.cluster.test_ray import PYTHON as RAY_PYTHON
from tests.cluster.test_ray import RayNodes
from tests.cluster.two_hosts import TwoHosts
from tests.cluster.two_hosts import missing as missing_ssh
from tests.control.rig import derived, graph, with_node
from tests.waiting import run_while

EXPERIMENT = "env: CartPole-v1\n"


@dataclass(frozen=True, kw_only=True)
class OwnArgs:
    greeting: str = "hello"


class Own(PipedLauncher):
    """Of a third party."""

    Args = OwnArgs

    def check(self) -> str:
        return "127.0.0.1:0"

    def command(self, host: int) -> list[str]:
        words = [sys.executable, "-m", "srl.cluster.supervisor", "--lifeline", "--host", str(host)]
        return ["env", f"GREETING={self.args.greeting}", *words]


OWN = "tests.contracts.test_every_launcher:Own"
SETTINGS: dict[str, dict[str, Any]] = {
    "loopback": {},
    "ssh": {},
    "slurm": {},
    "ray": {"ray_python": "python-of-ray"},
    "kubernetes": {"image": "registry.lab/srl:1"},
    "sky": {"accelerators": {"gpu": "L4"}},
    "external": {"folder": "shared/join"},
    OWN: {},
}
PROGRAMS = {"ssh": "ssh", "slurm": "sbatch", "ray": "python-of-ray", "kubernetes": "kubectl", "sky": "sky"}
"""What each needs on this machine."""
KINDS = pytest.mark.parametrize("kind", list(SETTINGS))


def work(kind: str, settings: Mapping[str, Any] | None = None, groups: Mapping[str, HostGroup] | None = None) -> Graph:
    """Two counters on two hosts of one group, an adder on a host of another; `groups` has the first one alone: at home."""
    both = {"cpu": HostGroup(addresses=("a", "b"), cores=2, memory=4), "gpu": HostGroup(addresses=("c",), cores=1, gpus=1)}
    given = Component(kind, {**SETTINGS[kind], **(settings or {})})
    made: Graph = graph(counters=2, via="zmq", hosts=groups or both, launcher=given, stop={"env_steps": 2000})
    made = with_node(made, "counter", hosts="cpu")
    return made if groups else with_node(made, "adder", hosts="gpu")


def rendered(made: Graph) -> Mapping[str, str]:
    launcher = launcher_of(made)
    return launcher.render(EXPERIMENT) if isinstance(launcher, Submitter) else launcher.render()


def test_every_launcher_of_the_package_is_tested_here() -> None:
    assert set(REGISTRIES["launcher"].names()) <= set(SETTINGS)


@KINDS
def test_a_setting_that_does_not_exist_is_refused_by_name(kind: str) -> None:
    with pytest.raises(UserError, match="colour") as refused:
        launcher_of(work(kind, {"colour": "red"}))
    assert refused.value.path is not None and refused.value.path[0] == "launcher"


@KINDS
def test_settings_have_words(kind: str) -> None:
    cls = REGISTRIES["launcher"].resolve(kind).Args
    own = [one for one in fields(cls) if not one.metadata and one.name != "home" and kind != OWN]
    assert cls.__doc__ and not own


@KINDS
def test_what_is_rendered_holds_no_secret_and_needs_no_program(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    def never(*_: Any) -> str:
        raise AssertionError("a secret is made")

    monkeypatch.setattr(secrets, "token_urlsafe", never)
    text = "\n".join([*(files := rendered(work(kind))), *files.values()])
    assert "BEGIN" not in text and "PRIVATE" not in text


@KINDS
def test_what_is_rendered_starts_a_supervisor_for_each_host(kind: str) -> None:
    text = "\n".join(rendered(work(kind)).values())
    group_by_group = text.count("SLURM_PROCID") + text.count("JOB_COMPLETION_INDEX") + text.count("SKYPILOT_NODE_RANK")
    assert text.count("srl.cluster.supervisor") == (2 if group_by_group else 3)
    assert group_by_group in (0, 2)


@KINDS
def test_a_start_without_the_program_says_what_to_install(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    launcher = launcher_of(work(kind))
    if kind not in PROGRAMS:
        assert isinstance(launcher, Launcher) and ":" in launcher.check()
        return
    with pytest.raises(UserError, match=PROGRAMS[kind]) as refused:
        launcher.check()
    assert "try" in dict(refused.value.facts)


@KINDS
def test_the_plan_says_who_connects_to_whom(kind: str) -> None:
    port = "port 6400" if kind in ("kubernetes", "sky") else "any free port"
    assert sockets_lines(work(kind)).splitlines() == [
        f"supervisors of 3 hosts connect to home, {port}, by TLS",
        "numbers: counter/0-1 connect to adder/0 at gpu/0, any free port, encrypted",
    ]


@contextlib.contextmanager
def cluster(kind: str, folder: Path) -> Iterator[tuple[dict[str, Any], HostGroup]]:
    """Settings and hosts with which this launcher can be run here, or a skip with the reason."""
    group = HostGroup(count=2, cores=1)
    with contextlib.ExitStack() as stack:
        if kind == "ssh":
            if why := missing_ssh():
                pytest.skip(why)
            pair = stack.enter_context(contextlib.closing(TwoHosts(folder)))
            yield {"options": pair.options}, HostGroup(addresses=("10.78.0.1", "10.78.0.2"))
        elif kind == "slurm":
            if why := missing_slurm():
                pytest.skip(why)
            nodes = stack.enter_context(contextlib.closing(SlurmCluster(folder)))
            with pytest.MonkeyPatch.context() as patch:
                for name in ("SLURM_CONF", "PATH"):
                    patch.setenv(name, nodes.environment[name])
                yield {}, group
        elif kind == "ray":
            if not RAY_PYTHON:
                pytest.skip("needs Ray (pip install ray, or RAY_PYTHON=python of an environment with it)")
            short = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="r")))  # it holds names of sockets
            ray = stack.enter_context(contextlib.closing(RayNodes(short)))
            with pytest.MonkeyPatch.context() as patch:
                for name, value in ray.environment.items():
                    patch.setenv(name, value)
                yield {"ray_python": RAY_PYTHON, "cluster": ray.address}, group
        elif kind == "external":
            yield {"folder": str(folder / "join"), "address": "127.0.0.1"}, group
        else:
            yield {}, group


@pytest.mark.parametrize(
    "kind",
    ["external", OWN, *(pytest.param(one, marks=pytest.mark.long) for one in ("loopback", "ssh", "slurm", "ray"))],
)
@pytest.mark.timeout(400)
def test_a_run_loses_nothing_shows_no_token_and_leaves_nothing(kind: str, tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    with cluster(kind, tmp_path / "cluster") as (settings, group):
        made = work(kind, settings, {"cpu": group})
        folder = RunFolder.create(tmp_path / "runs", "rig", 1)
        backend = LaunchedBackend(made, folder.path)
        token, launcher = backend.remote.join.token, backend.launcher
        by_hand = [
            subprocess.Popen(shlex.split(command), stderr=subprocess.DEVNULL)
            for command in (launcher.render().values() if kind == "external" else ())
        ]
        shown: list[str] = []
        controller = Controller(made, folder=folder, derived=derived(made), backend=lambda: backend)
        result = run_while(controller, lambda: shown.extend(with_text(token)))
        assert result.kind == "done", result.format()
        assert not shown
        (ledger,) = controller.totals.ledgers()
        assert ledger.balanced, table([ledger])
        assert launcher.poll() == []
        launcher.stop(0.0)
        assert [one.wait(20) for one in by_hand] == [0] * len(by_hand)
        held = [file for file in (tmp_path / "runs").rglob("*") if file.is_file() and token.encode() in file.read_bytes()]
        assert not held, "the token is gone with the run"
        if kind == "external":
            assert not (tmp_path / "cluster/join/join.json").exists()


REFUSES = "#!/bin/sh\ncat > /dev/null\necho 'quota exceeded' >&2\nexit 1\n"


@pytest.mark.parametrize("kind", ["kubernetes", "sky"])
def test_a_submission_that_is_refused_shows_why_and_leaves_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program := tmp_path / PROGRAMS[kind]).write_text(REFUSES)
    program.chmod(0o755)
    (scratch := tmp_path / "scratch").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    launcher = launcher_of(work(kind))
    assert isinstance(launcher, Submitter)
    launcher.check()
    with pytest.raises(UserError, match="does not accept") as refused:
        launcher.submit(EXPERIMENT)
    assert "quota exceeded" in dict(refused.value.facts)["cause"]
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("kind", ["kubernetes", "sky"])
def test_what_a_submitter_starts_at_home_is_a_launcher_with_its_settings(kind: str) -> None:
    launcher = launcher_of(work(kind))
    assert isinstance(launcher, Submitter)
    there = dict(launcher.there)
    external = REGISTRIES["launcher"].resolve(there.pop("use"))
    assert issubclass(external, Launcher)
    assert load(external.Args, there).port == 6400


def with_text(text: str) -> list[str]:
    """Processes with this in their arguments or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and text.encode() in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found
