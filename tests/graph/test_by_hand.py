"""A graph stated by hand: settings that it makes meaningless are refused, and what it runs with can be run again."""

from pathlib import Path

import pytest

from srl.core.errors import SrlError
from srl.core.machine import Machine
from srl.plan.prepare import prepare
from tests.errors import raises

ROOT = Path(__file__).parents[2]
CLIPPED = ROOT / "docs/examples/clipped.yaml"
MACHINE = Machine(cores=2, gpus=0, shared_free=1 << 34)


def clipped(*overrides, file=CLIPPED):
    return prepare(file, overrides, machine=MACHINE, inspect=False)


@pytest.mark.parametrize(
    ("said", "name", "instead"),
    [
        ("staleness.max=0", "staleness.max", "~graph"),
        ("sampling.envs=8", "sampling.envs", "workers.actor.envs"),
        ("sampling.workers=4", "sampling.workers", "~graph"),
        ("layout=seed", "layout", "~graph"),
        ("device=cpu", "device", "~graph"),
        ("evaluation.every=1000", "evaluation.every", "~graph"),
        ("evaluation={}", "evaluation", "~graph"),
        ("opponents={}", "opponents", "~graph"),
    ],
)
def test_what_a_graph_by_hand_makes_meaningless_is_refused(said, name, instead):
    with raises("E11", name) as caught:
        clipped(said)
    assert caught.value.exit_code == 2
    assert dict(caught.value.facts)["from"] == "command line" and instead in dict(caught.value.facts)["try"]


def test_all_that_is_meaningless_is_named_with_its_place(tmp_path):
    file = tmp_path / "more.yaml"
    file.write_text(f"inherit: {CLIPPED}\nstaleness:\n  max: 2\n")
    with pytest.raises(SrlError) as caught:
        clipped("seed=4", "sampling.steps=8", file=file)
    assert caught.value.headline == "'sampling.steps' has no effect together with `graph:`"
    assert dict(caught.value.facts)["also"] == f"staleness.max ({file}:3:3)"


def test_a_default_that_is_written_out_is_no_contradiction():
    assert clipped("layout=auto", "sampling.envs=auto", "workers.trainer.threads=1").graph == clipped().graph


def test_what_a_graph_by_hand_wrote_down_is_launched_again(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    first = clipped("seed=3", "graph.nodes.trainer.args.staleness=0")
    file = tmp_path / "config.yaml"
    file.write_text(first.config_text())
    assert prepare(file, machine=MACHINE, inspect=False).graph == first.graph
    assert prepare(resume=tmp_path, machine=MACHINE, inspect=False).graph == first.graph


@pytest.mark.parametrize(
    ("said", "code", "name", "hint"),
    [
        ("graph.nodes.trainer.threads=200", "E08", "graph.nodes.trainer.threads", "workers.trainer.threads=2"),
        ("graph.nodes.trainer.device=cuda", "E08", "graph.nodes.trainer.device", "workers.trainer.device=cpu"),
        ("graph.nodes.trainer.args.threads=200", "E02", "graph.nodes.trainer.args.threads", "graph.nodes.trainer.threads=200"),
    ],
)
def test_what_the_machine_has_not_is_named_as_the_graph_says_it(said, code, name, hint):
    with raises(code, name) as caught:
        clipped(said)
    assert dict(caught.value.facts)["from"] == "command line" and dict(caught.value.facts)["try"] == hint


def test_a_trainer_by_hand_says_its_device_in_the_plan():
    workers = dict(clipped("graph.nodes.trainer.threads=2").lines())
    assert "on cpu" in workers["workers"]
    assert workers["threads"] == "4 processes, 5 threads on 2 usable cores"
