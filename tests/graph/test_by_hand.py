"""A graph stated by hand: settings that it makes meaningless are refused, and what it runs with can be run again."""

from pathlib import Path

import pytest

from srl.core.errors import SrlError
from srl.core.machine import Machine
from srl.plan.prepare import prepare

ROOT = Path(__file__).parents[2]
CLIPPED = ROOT / "docs/examples/clipped.yaml"
MACHINE = Machine(cores=2, gpus=0, shared_free=1 << 34)


def clipped(*overrides, file=CLIPPED):
    return prepare(file, overrides, machine=MACHINE, look=False)


@pytest.mark.parametrize(
    ("said", "name", "instead"),
    [
        ("staleness.max=0", "staleness.max", "graph.nodes.trainer.args.staleness=0"),
        ("sampling.envs=8", "sampling.envs", "graph.nodes.actor.args.envs=... (envs of each group)"),
        ("sampling.workers=4", "sampling.workers", "graph.nodes.actor.count=4"),
        ("layout=seed", "layout", "take it back, or ~graph"),
        ("device=cpu", "device", "graph.nodes.trainer.device=cpu"),
        ("evaluation.every=1000", "evaluation.every", "a node with worker: evaluator under graph.nodes"),
        ("evaluation={}", "evaluation", "a node with worker: evaluator under graph.nodes"),
        ("opponents={}", "opponents", "take it back, or ~graph"),
        ("actors.on_failure=restart", "actors.on_failure", "graph.nodes.actor.on_failure=restart"),
        ("inference.max_batch=8", "inference.max_batch", "graph.nodes.policy.args.max_batch=8"),
        ("trainer.threads=2", "trainer.threads", "graph.nodes.trainer.threads=2"),
        ("trainer.keep_every=2", "trainer.keep_every", "graph.nodes.trainer.args.keep_every=2"),
    ],
)
def test_what_a_graph_by_hand_makes_meaningless_is_refused(said, name, instead):
    with pytest.raises(SrlError) as caught:
        clipped(said)
    assert caught.value.exit_code == 2
    assert str(caught.value) == f"error[E11]: '{name}' has no effect beside `graph:`\n  from: command line\n  try: {instead}"


def test_all_that_is_meaningless_is_named_with_its_place(tmp_path):
    file = tmp_path / "more.yaml"
    file.write_text(f"inherit: {CLIPPED}\nstaleness:\n  max: 2\n")
    with pytest.raises(SrlError) as caught:
        clipped("seed=4", "sampling.steps=8", file=file)
    assert caught.value.headline == "'sampling.steps' has no effect beside `graph:`"
    assert dict(caught.value.facts)["also"] == f"staleness.max ({file}:3:3)"


def test_a_default_that_is_written_out_is_no_contradiction():
    assert clipped("layout=auto", "sampling.envs=16", "trainer.threads=1").graph == clipped().graph


def test_what_a_graph_by_hand_wrote_down_is_launched_again(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    first = clipped("seed=3", "graph.nodes.trainer.args.staleness=0")
    file = tmp_path / "config.yaml"
    file.write_text(first.config_text())
    assert prepare(file, machine=MACHINE, look=False).graph == first.graph
    assert prepare(resume=tmp_path, machine=MACHINE, look=False).graph == first.graph


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (
            "graph.nodes.trainer.threads=200",
            "error[E08]: 'trainer' wants 200 threads, and this machine has 2 cores to use\n"
            "  from: command line\n"
            "  expected: at most 2 (affinity and cgroup quota counted)\n"
            "  try: graph.nodes.trainer.threads=2",
        ),
        (
            "graph.nodes.trainer.device=cuda",
            "error[E08]: 'trainer' wants device cuda, and this machine has no GPU\n"
            "  from: command line\n"
            "  try: graph.nodes.trainer.device=cpu",
        ),
        (
            "graph.nodes.trainer.args.threads=200",
            "error[E02]: the args of 'trainer' have no setting 'threads': it is one of the node\n"
            "  from: command line\n"
            "  try: graph.nodes.trainer.threads=200",
        ),
    ],
)
def test_what_the_machine_has_not_is_named_as_the_graph_says_it(said, text):
    with pytest.raises(SrlError) as caught:
        clipped(said)
    assert str(caught.value) == text


def test_a_trainer_by_hand_says_its_device_in_the_plan():
    workers = dict(clipped("graph.nodes.trainer.threads=2").lines())
    assert "on cpu" in workers["workers"]
    assert workers["threads"] == "4 processes, 5 threads on 2 usable cores"
