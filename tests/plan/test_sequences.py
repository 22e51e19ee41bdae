"""Sequences that cannot be cut are refused before the start, and only those."""

import itertools
from dataclasses import replace

import pytest
import torch

from srl.api.batch import Batch
from srl.config.experiment import read_experiment
from srl.core.errors import UserError
from srl.core.machine import Machine
from srl.core.spec import Leaf
from srl.graph.layouts import plan
from srl.plan.derive import derive
from srl.plan.prepare import prepare
from srl.plan.sequences import check_sequences
from srl.plan.specs import Derived

MACHINE = Machine(cores=2, gpus=0, shared_free=1 << 34)


def wired(steps=16, **settings):
    base = {
        "env": "CartPole-v1",
        "policy": {"use": "recurrent", "width": 4},
        "algorithm": {"use": "ppo"},
        "sampling": {"envs": 8, "steps": steps, "workers": 2},
    }
    if "policies" in settings:
        del base["policy"], base["algorithm"]
    return plan(read_experiment(base | settings), machine=MACHINE).graph


@pytest.fixture(scope="module")
def found():
    return derive(wired())


def refused(graph, derived):
    with pytest.raises(UserError) as caught:
        check_sequences(graph, derived)
    return str(caught.value)


def changed(derived, **changes):
    return replace(derived, policies={name: replace(info, **changes) for name, info in derived.policies.items()})


def test_rows_alone_of_a_policy_that_remembers_are_refused_with_the_length_to_take(found):
    assert refused(wired(), found) == (
        "error[E03]: 'algorithm.chunk' must be more than 1, found 1: policy 'main' remembers\n"
        "  because: its memory is recorded at the first row of a slab, and a row alone cannot be trained without it\n"
        "  expected: rows of a sequence: a divisor of sampling.steps=16\n"
        "  try: algorithm.chunk=16"
    )


@pytest.mark.parametrize(
    ("steps", "changes", "text"),
    [
        (128, {}, "try: algorithm.chunk=16"),
        (20, {}, "try: algorithm.chunk=10"),
        (13, {}, "try: algorithm.chunk=13"),
        (16, {"chunk": 5}, "try: algorithm.chunk=16, or sampling.steps=15 or sampling.steps=20"),
        (16, {"chunk": 8, "memory_every": 3}, "'algorithm.memory_every' must divide algorithm.chunk=8, found 3"),
        (16, {"chunk": 8, "memory_every": 8, "burn_in": 4}, "try: algorithm.burn_in=0 or algorithm.burn_in=8, or"),
        (16, {"chunk": 8, "memory_every": 8, "burn_in": 16}, "'algorithm.burn_in' must be at most 8, found 16"),
    ],
)
def test_what_does_not_fit_is_named_with_a_way_out(found, steps, changes, text):
    assert text in refused(wired(steps), changed(found, **changes))


def test_settings_of_several_policies_are_named_where_they_stand(found):
    part = {"policy": {"use": "recurrent", "width": 4}, "algorithm": "ppo"}
    graph = wired(policies={"one": part}, agents={"*": "one"})
    assert "'policies.one.algorithm.chunk'" in refused(graph, derive(graph))


def test_what_is_proposed_is_accepted(found):
    for steps in range(2, 40):
        text = refused(wired(steps), found)
        chunk = int(text.rpartition("algorithm.chunk=")[2])
        check_sequences(wired(steps), changed(found, chunk=chunk, memory_every=chunk))


def cuts(steps, chunk, burn_in, every, memory):
    """Whether a batch of such slabs gives minibatches."""
    memories = {"memories": torch.zeros(-(-steps // (every or steps)), 3, 2)} if memory else {}
    batch = Batch.of(reward=torch.zeros(steps, 3), **memories)
    batch.origin.memory_every = every
    try:
        return bool(list(batch.minibatches(12, chunk=chunk, burn_in=burn_in)))
    except ValueError:
        return False


@pytest.mark.parametrize("memory", [True, False])
def test_the_check_refuses_exactly_what_the_batch_could_not_cut(found, memory):
    graphs = {steps: wired(steps) for steps in (1, 4, 6)}
    spec = {"cell": Leaf((2,), "float32")} if memory else {}
    seen = set()
    for steps, chunk, burn_in, every in itertools.product(graphs, (1, 2, 3, 4, 6), (0, 1, 2, 4), (None, 1, 2, 3, 4)):
        derived: Derived = changed(found, memory=spec, chunk=chunk, burn_in=burn_in, memory_every=every)
        try:
            check_sequences(graphs[steps], derived)
            fine = True
        except UserError:
            fine = False
        assert fine == cuts(steps, chunk, burn_in, every, memory), (steps, chunk, burn_in, every)
        seen.add(fine)
    assert seen == {True, False}


def test_an_algorithm_without_sequences_is_left_alone(found):
    check_sequences(wired(), changed(found, chunk=None))


def test_a_dry_run_says_it_with_the_place(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("env: CartPole-v1\npolicy: recurrent\nalgorithm: {use: ppo, chunk: 48}\nsampling: {envs: 4, steps: 64}\n")
    with pytest.raises(UserError) as caught:
        prepare(file)
    assert "'algorithm.chunk' must divide the 64 rows of a slab, found 48" in str(caught.value)
    assert f"from: {file}:3:23" in str(caught.value)
