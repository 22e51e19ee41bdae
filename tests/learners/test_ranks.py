"""Several learners that train one policy together: real processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from srl.algorithms.ddpg import DDPG
from srl.algorithms.impala import Impala
from srl.algorithms.sac import SAC
from srl.algorithms.td3 import TD3
from srl.api.batch import Batch, Ranks
from srl.learners.ranks import Meeting
from srl.learners.single import SingleLearner
from srl.nets.recurrent import Recurrent
from tests.algorithms.slabs import make, record
from tests.algorithms.transitions import learner as actor_and_critics
from tests.algorithms.transitions import transitions

ENVS, UPDATES = 8, 3
WHOLE: dict[str, Any] = {"epochs": 3, "minibatch": 100_000, "lr": 1e-3, "entropy": 0.01}
CASES: dict[str, dict[str, Any]] = {
    "ppo": {"config": WHOLE, "mask": True},
    "normalisers": {"config": {**WHOLE, "normalize_value": True}, "policy_config": {"normalize_obs": True}},
    "minibatch": {"config": {**WHOLE, "normalize_advantage": "minibatch"}},
    "early stop": {"config": {**WHOLE, "epochs": 30, "lr": 0.01, "target_kl": 1e-3}},
    "recurrent": {
        "config": {**WHOLE, "window": {"length": 4, "burn_in": 4}}, "policy": Recurrent, "memory_every": 4,
        "policy_config": {"normalize_obs": True},
    },
    "impala": {"algorithm": Impala},
}  # fmt: skip
UNEVEN = ("ppo", "recurrent")
REPLAYED = {"sac": SAC, "td3": TD3, "ddpg": DDPG, "sac in sequence": SAC}
DRAWN = 24
"""Rows of a batch of a replay, of all ranks together."""


def rows_of(case: str, update: int) -> dict[str, Any]:
    """What all ranks have together: the first half of the envs has many ends, so the halves have unequal valid rows."""
    rows = record(make(envs=ENVS, **CASES[case]), seed=update, ends=0.02)
    noise = np.random.default_rng(update)
    gone = noise.random(rows["valid"].shape) < 0.6
    gone[:, ENVS // 2 :] = False
    rows["valid"] &= ~gone
    if "choice" in rows:
        rows["choice"] &= rows["valid"]
    return rows


def part(tree: Any, rank: int) -> Any:
    half = ENVS // 2
    if isinstance(tree, dict):
        return {name: part(one, rank) for name, one in tree.items()}
    return tree if tree.ndim == 1 else np.ascontiguousarray(tree[:, rank * half : (rank + 1) * half])


def drawn(update: int) -> dict[str, Any]:
    return transitions(update, DRAWN)


def half_of(rows: dict[str, Any], rank: int) -> dict[str, Any]:
    """The rows that the replay of one rank would have drawn: `[T, B, ...]`, or `[B]`."""
    own = slice(rank * DRAWN // 2, (rank + 1) * DRAWN // 2)
    return {name: np.ascontiguousarray(leaf[own] if leaf.ndim == 1 else leaf[:, own]) for name, leaf in rows.items()}


def replayed(case: str, rows: int, ranks: Ranks | None = None) -> SingleLearner:
    made = SingleLearner(replace(actor_and_critics(REPLAYED[case], rows=rows, lr=1e-3).task, ranks=ranks))
    made.algorithm.order = "sequential" if "sequence" in case else "simultaneous"  # type: ignore[assignment]
    return made


def trained(learner: SingleLearner, rows: Callable[[int], Any]) -> dict[str, Any]:
    steps = 0
    made = learner._optimizers[0]
    step = made._step

    def counted(scale: Any) -> None:
        nonlocal steps
        steps += 1
        step(scale)

    made._step = counted  # type: ignore[method-assign]
    for update in range(UPDATES):
        learner.clock.updates = update
        learner.update(rows(update))
    groups, _ = learner.state()
    arrays = {f"{group}/{name}": array for group, named in groups.items() for name, array in named.items() if name != "torch_rng"}
    return {**arrays, **{f"metrics/{name}": np.array(one) for name, one in learner.metrics().items()}, "steps": np.array(steps)}


def rank(number: int, folder: str) -> None:
    """One of two processes: every case, one after the other."""
    torch.set_num_threads(1)
    meeting = Meeting(Path(folder, "meet"), number, 2)
    meeting.wait()
    for case in CASES:
        run_case(meeting.ranks, case, folder, uneven=False)
    for case in UNEVEN:
        run_case(meeting.ranks, case, folder, uneven=True)
    for case in REPLAYED:
        learner = replayed(case, DRAWN // 2, meeting.ranks)
        found = trained(learner, lambda update: half_of(drawn(update), number))
        np.savez(f"{folder}/{case} False {number}.npz", **found)
    meeting.close()


def run_case(ranks: Ranks, case: str, folder: str, *, uneven: bool) -> None:
    settings = dict(CASES[case])
    if uneven:
        settings["config"] = {**settings["config"], "minibatch": 8, "epochs": 2}
    number = ranks.index
    learner = SingleLearner(replace(make(envs=ENVS // 2, **settings).task, ranks=ranks))

    def rows(update: int) -> Any:
        own = part(rows_of(case, update), number)
        if uneven and number == 0:  # almost nothing to train here
            own["valid"][...] = False
            own["valid"][:2, 0] = True
        return own

    np.savez(f"{folder}/{case} {uneven} {number}.npz", **trained(learner, rows))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both ranks have after all cases."""
    folder = tmp_path_factory.mktemp("ranks")
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=rank, args=(number, str(folder))) for number in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(100)
        process.kill()
    assert [process.exitcode for process in ranks] == [0, 0]
    return folder


def found(folder: Path, case: str, *, uneven: bool) -> list[dict[str, Any]]:
    return [dict(np.load(folder / f"{case} {uneven} {number}.npz")) for number in range(2)]


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_on_halves_are_one_on_the_whole_batch(case: str, folder: Path) -> None:
    first, second = found(folder, case, uneven=False)
    whole = trained(make(envs=ENVS, **CASES[case]), lambda update: rows_of(case, update))
    assert first.keys() == second.keys() == whole.keys()
    for name, array in whole.items():
        if name.startswith("metrics/"):  # each rank estimates them
            first[name] = (first[name] + second[name]) / 2
        else:
            np.testing.assert_array_equal(first[name], second[name], err_msg=name)
        np.testing.assert_allclose(first[name], array, atol=2e-4, rtol=2e-3, err_msg=name)
    if case == "early stop":
        assert first["steps"] < 30 * UPDATES


@pytest.mark.parametrize("case", REPLAYED)
def test_two_ranks_on_batches_of_two_replays_are_one_on_both(case: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given the same rows and noise. Each rank draws noise of its own."""
    one = Batch.normal

    def both(batch: Batch, tag: str, *sizes: int) -> torch.Tensor:
        parts = []
        for rank in range(2):
            part = Batch.of(reward=torch.zeros(1, DRAWN // 2))
            part.origin = replace(batch.origin, seed=batch.origin.seed ^ rank << 32)
            parts.append(one(part, tag, *sizes))
        assert not torch.equal(*parts)
        return torch.cat(parts)

    first, second = found(folder, case, uneven=False)
    monkeypatch.setattr(Batch, "normal", both)
    whole = trained(replayed(case, DRAWN), drawn)
    assert first.keys() == second.keys() == whole.keys()
    for name, array in whole.items():
        if name.startswith("metrics/"):
            first[name] = (first[name] + second[name]) / 2
        else:
            np.testing.assert_array_equal(first[name], second[name], err_msg=name)
        np.testing.assert_allclose(first[name], array, atol=2e-6, rtol=2e-4, err_msg=name)


@pytest.mark.parametrize("case", UNEVEN)
def test_ranks_without_rows_make_as_many_steps_as_the_others(case: str, folder: Path) -> None:
    first, second = found(folder, case, uneven=True)
    assert first["steps"] == second["steps"] > 2 * UPDATES
    for name in (name for name in first if not name.startswith("metrics/")):
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
