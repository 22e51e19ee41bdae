"""Returns against sums written out by hand, on slabs with every kind of end."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from srl.algorithms.returns import discounted, gae, n_step, vtrace

GAMMA, LAM = 0.97, 0.9


class Slab:
    """A random slab that follows the row layout: an episode's last observation is a row that is not valid."""

    def __init__(self, noise: np.random.Generator) -> None:
        self.steps, self.width = int(noise.integers(1, 12)), int(noise.integers(1, 4))
        shape = (self.steps, self.width)
        self.reward = noise.normal(size=shape).astype(np.float32)
        self.values = noise.normal(size=(self.steps + 1, self.width)).astype(np.float32)
        self.log_ratio = noise.normal(size=shape).astype(np.float32)
        ends = noise.random(shape) < 0.3
        kind = noise.integers(0, 3, shape)  # terminated wins when an env sets both: the engine clears the other
        self.terminated = ends & (kind != 0)
        self.truncated = ends & (kind != 1) & ~self.terminated
        self.valid = np.ones(shape, bool)
        for t in range(self.steps - 1):
            self.valid[t + 1] = ~(self.valid[t] & ends[t])
        if noise.random() < 0.3:
            self.valid[0] = noise.random(self.width) < 0.5  # the slab before ended an episode
        self.terminated &= self.valid
        self.truncated &= self.valid
        self.reward[~self.valid] = 0.0
        self.cut = self.terminated | self.truncated | ~self.valid

    def tensors(self, *names: str) -> list[torch.Tensor]:
        return [torch.from_numpy(getattr(self, name)) for name in names]

    def delta(self, t: int, b: int) -> float:
        beyond = 0.0 if self.terminated[t, b] else float(self.values[t + 1, b])
        return float(self.reward[t, b]) + GAMMA * beyond - float(self.values[t, b])


def slabs() -> list[Slab]:
    noise = np.random.default_rng(0)
    return [Slab(noise) for _ in range(2_000)]


def test_gae_is_the_discounted_sum_of_errors_up_to_the_cut() -> None:
    for slab in slabs():
        found = gae(*slab.tensors("reward", "values", "terminated", "cut"), GAMMA, LAM).numpy()
        for t, b in zip(*np.nonzero(slab.valid), strict=True):
            expected, weight = 0.0, 1.0
            for s in range(t, slab.steps):
                expected += weight * slab.delta(s, b)
                weight *= GAMMA * LAM
                if slab.cut[s, b]:
                    break
            assert found[t, b] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("lam", [1.0, 0.8])
def test_vtrace_is_the_sum_of_clipped_errors_up_to_the_cut(lam: float) -> None:
    for slab in slabs():
        rows = slab.tensors("reward", "values", "terminated", "cut", "log_ratio")
        found = vtrace(*rows, GAMMA, lam=lam, clip_rho=1.2, clip_c=0.9, clip_advantage=1.1)
        ratio = np.exp(slab.log_ratio.astype(np.float64))
        targets = slab.values.astype(np.float64).copy()
        for b in range(slab.width):
            for t in range(slab.steps):
                weight = 1.0
                for s in range(t, slab.steps):
                    targets[t, b] += weight * min(1.2, ratio[s, b]) * slab.delta(s, b)
                    weight *= GAMMA * lam * min(0.9, ratio[s, b])
                    if slab.cut[s, b]:
                        break
        for t, b in zip(*np.nonzero(slab.valid), strict=True):
            assert found.targets[t, b].item() == pytest.approx(targets[t, b], abs=1e-4)
            beyond = slab.values[t + 1, b] if slab.cut[t, b] else targets[t + 1, b]
            beyond = 0.0 if slab.terminated[t, b] else beyond
            advantage = min(1.1, ratio[t, b]) * (slab.reward[t, b] + GAMMA * beyond - slab.values[t, b])
            assert found.advantages[t, b].item() == pytest.approx(advantage, abs=1e-4)


def test_vtrace_on_policy_is_gae() -> None:
    for slab in slabs()[:200]:
        reward, values, terminated, cut = slab.tensors("reward", "values", "terminated", "cut")
        found = vtrace(reward, values, terminated, cut, torch.zeros_like(reward), GAMMA, lam=LAM)
        torch.testing.assert_close(found.targets - values[:-1], gae(reward, values, terminated, cut, GAMMA, LAM))


@pytest.mark.parametrize("steps", [1, 3, 20])
def test_n_step_returns_stop_at_cuts_and_at_the_slab_end(steps: int) -> None:
    for slab in slabs()[:500]:
        found = n_step(*slab.tensors("reward", "values", "terminated", "cut"), GAMMA, steps)
        for t, b in zip(*np.nonzero(slab.valid), strict=True):
            expected, weight = 0.0, 1.0
            for s in range(t, min(t + steps, slab.steps)):
                expected += weight * float(slab.reward[s, b])
                weight *= GAMMA
                last = s
                if slab.cut[s, b]:
                    break
            if not slab.terminated[last, b]:
                expected += weight * float(slab.values[last + 1, b])
            assert found[t, b].item() == pytest.approx(expected, abs=1e-4)


def test_a_truncated_step_keeps_its_bootstrap_and_a_terminated_one_does_not() -> None:
    reward, values = torch.ones(3, 2), torch.tensor([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0], [8.0, 8.0]])
    terminated = torch.tensor([[False, False], [True, False], [False, False]])
    cut = torch.tensor([[False, False], [True, True], [True, True]])  # the second sequence was truncated there
    found = gae(reward, values, terminated, cut, 0.5, 1.0)
    assert found[:2, 0].tolist() == [1 + 0.5 * 2 - 1 + 0.5 * (1 - 2), 1 - 2]
    assert found[:2, 1].tolist() == [1 + 0.5 * 2 - 1 + 0.5 * (1 + 0.5 * 4 - 2), 1 + 0.5 * 4 - 2]


def test_a_discounted_sum_has_the_gradient_of_its_definition() -> None:
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    discount = torch.rand(5, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda rows: discounted(rows, discount), (x,))
    torch.testing.assert_close(discounted(x, discount), discounted(x.detach(), discount), check_dtype=False)
