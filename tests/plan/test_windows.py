"""Windows that cannot be cut are refused before the start, and only those."""

import itertools
from dataclasses import replace

import pytest
import torch

from srl.api.batch import Batch
from srl.api.slab import Window
from srl.config.experiment import read_experiment
from srl.core.errors import UserError
from srl.core.machine import Machine
from srl.core.spec import Leaf
from srl.graph.decide import decide
from srl.plan.check import check_windows
from srl.plan.derive import derive
from srl.plan.prepare import prepare

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
    return decide(read_experiment(base | settings), machine=MACHINE).graph


@pytest.fixture(scope="module")
def found():
    return derive(wired())


def refused(graph, derived):
    with pytest.raises(UserError) as caught:
        check_windows(graph, derived)
    return caught.value


def changed(derived, **changes):
    return replace(derived, policies={name: replace(info, **changes) for name, info in derived.policies.items()})


@pytest.mark.parametrize(
    ("window", "code", "fact"),
    [
        (Window(length=5), "E04", "algorithm.window=4, or sampling.steps=20"),
        (Window(length=48), "E04", "algorithm.window=16, or sampling.steps=48"),
        (Window(burn_in=12, length=8), "E03", "sampling.steps=24, or a smaller algorithm.window.burn_in"),
    ],
)
def test_what_does_not_fit_is_named_with_a_way_out(found, window, code, fact):
    error = refused(wired(), changed(found, window=window))
    assert (error.code, error.path, ("try", fact) in error.facts) == (code, ("algorithm", "window"), True)


def test_settings_of_several_policies_are_named_where_they_stand():
    part = {"policy": {"use": "recurrent", "width": 4}, "algorithm": {"use": "ppo", "window": 5}}
    graph = wired(policies={"one": part}, agents={"*": "one"})
    assert refused(graph, derive(graph)).path == ("policies", "one", "algorithm", "window")


def cuts(steps, window, memory):
    """Whether a batch of such slabs gives minibatches."""
    every = window.memory_every
    memories = {"memories": torch.zeros(-(-steps // (every or steps)), 3, 2)} if memory else {}
    batch = Batch.of(reward=torch.zeros(steps, 3), **memories)
    batch.origin.memory_every = every
    try:
        return bool(list(batch.minibatches(12, window=window)))
    except ValueError:
        return False


@pytest.mark.parametrize("memory", [True, False])
def test_the_check_refuses_exactly_what_the_batch_could_not_cut(found, memory):
    graphs = {steps: wired(steps) for steps in (1, 4, 6)}
    spec = {"cell": Leaf((2,), "float32")} if memory else {}
    seen = set()
    windows = [Window(burn_in, length, after) for burn_in, length, after in itertools.product((0, 1, 2, 4), (1, 2, 3, 6), (0, 1))]
    for steps, window in itertools.product(graphs, [Window(), *windows]):
        try:
            check_windows(graphs[steps], changed(found, memory=spec, window=window))
            fine = True
        except UserError:
            fine = False
        assert fine == cuts(steps, window, memory), (steps, window)
        seen.add(fine)
    assert seen == {True, False}


def test_a_dry_run_says_it_with_the_place(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("env: CartPole-v1\npolicy: recurrent\nalgorithm: {use: ppo, window: 48}\nsampling: {envs: 4, steps: 64}\n")
    with pytest.raises(UserError) as caught:
        prepare(file, ["mode=inline"])
    assert "'algorithm.window' must divide the 64 rows of a slab, found 48" in str(caught.value)
    assert f"from: {file}:3:23" in str(caught.value)


def test_settings_of_a_window_are_checked_where_they_are_written():
    with pytest.raises(UserError) as caught:
        prepare("cartpole_memory", ["mode=inline", "algorithm.window={burn_in: 3}"])
    assert "length" in str(caught.value)
    assert prepare("cartpole_memory", ["algorithm.window={burn_in: 8, length: 16}"], inspect=False)


def test_a_policy_with_memory_trains_whole_slabs_where_nothing_is_said(found):
    info = found.policies["main"]
    assert info.window.memory_every is None
    check_windows(wired(), found)
