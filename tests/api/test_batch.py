"""Batches: who is in a minibatch, what rides along, what a mean is."""

from __future__ import annotations

import pytest
import torch

from srl.api.batch import Batch, Origin, Ranks
from srl.api.minibatches import Pool
from srl.api.slab import Window


def _batch(steps: int = 8, width: int = 6, invalid: float = 0.3, seed: int = 0, **more: torch.Tensor) -> Batch:
    noise = torch.Generator().manual_seed(seed)
    place = torch.arange(steps * width).view(steps, width)
    batch = Batch.of(
        obs=torch.randn(steps + 1, width, 3, generator=noise),
        reward=torch.randn(steps, width, generator=noise),
        valid=torch.rand(steps, width, generator=noise) >= invalid,
        extra={"value": torch.randn(steps + 1, width, generator=noise)},
        place=place,
        **more,
    )
    batch.origin = Origin(seed=3, update=1, pool=Pool())
    return batch


@pytest.mark.parametrize("invalid", [0.0, 0.3])
@pytest.mark.parametrize("rows", [1, 7, 48, 1_000])
def test_every_valid_row_is_in_each_epoch_once_with_all_of_its_leaves(rows: int, invalid: float) -> None:
    batch = _batch(invalid=invalid)
    places, sizes = [], []
    for mini in batch.minibatches(rows, 2):
        place = mini.place.flatten()
        torch.testing.assert_close(mini.obs[0], batch.obs[:-1].flatten(0, 1)[place])
        torch.testing.assert_close(mini.extra["value"][0], batch.extra["value"][:-1].flatten()[place])
        torch.testing.assert_close(mini.reward[0], batch.reward.flatten()[place])
        assert mini.lead == mini.reward.shape == mini.valid.shape and mini.valid.all()
        places.append(place.clone())
        sizes.append(len(place))
    wanted = batch.valid.flatten().nonzero()[:, 0]
    half = len(sizes) // 2
    for part in (places[:half], places[half:]):
        torch.testing.assert_close(torch.cat(part).sort().values, wanted)
    assert max(sizes) <= rows and max(sizes) - min(sizes) <= 1
    if rows > 1:
        assert not torch.equal(torch.cat(places[:half]), torch.cat(places[half:]))


def test_the_order_depends_on_seed_update_and_tag_alone() -> None:
    def order(seed: int, update: int) -> list[int]:
        batch = _batch()
        batch.origin = Origin(seed=seed, update=update)
        torch.manual_seed(torch.seed() % 1000)
        return [int(place) for mini in batch.minibatches(5) for place in mini.place.flatten()]

    assert order(1, 1) == order(1, 1)
    assert order(1, 1) != order(1, 2) != order(2, 2)
    batch = _batch()
    assert torch.rand(1, generator=batch.rng("a")) == torch.rand(1, generator=batch.rng("a"))
    assert torch.rand(1, generator=batch.rng("a")) != torch.rand(1, generator=batch.rng("b"))


def test_a_mean_counts_valid_rows_only_even_beside_nan() -> None:
    batch = _batch()
    x = batch.reward.clone()
    expected = x[batch.valid].mean()
    x[~batch.valid] = torch.nan
    torch.testing.assert_close(batch.mean(x), expected)
    where = batch.reward > 0
    torch.testing.assert_close(batch.mean(x, where), x[batch.valid & where].mean())
    assert batch.count(where) == (batch.valid & where).sum()
    assert batch.mean(x, torch.zeros_like(where)) == 0.0


def test_gradients_of_ranks_add_up_to_those_of_one_batch() -> None:
    """30 valid rows here and 8 there: an average of averages would be wrong."""

    class Both(Ranks):
        def total(self, count: torch.Tensor) -> torch.Tensor:
            return torch.tensor(38.0)

    weight = torch.tensor(2.0, requires_grad=True)
    whole, parts = torch.zeros(()), []
    for rows in (30, 8):
        batch = Batch.of(reward=torch.arange(float(rows))[None])
        batch.origin = Origin(ranks=Both(0, 2))
        parts.append(torch.autograd.grad(batch.mean(weight * batch.reward), weight)[0])
        whole = whole + batch.reward.sum()
    torch.testing.assert_close(sum(parts), whole / 38.0)


def test_columns_that_were_added_ride_into_minibatches_and_kept_ones_outlive_them() -> None:
    batch = _batch().add(twice=torch.arange(48.0).view(8, 6) * 2)
    kept = batch.keep("twice")
    for mini in batch.minibatches(10):
        torch.testing.assert_close(mini.twice, mini.place * 2.0)
    batch.twice.zero_()
    torch.testing.assert_close(kept.twice, torch.arange(48.0).view(8, 6) * 2)
    assert kept.mean(kept.twice) > 0


def test_flags_are_derived_by_the_rules_of_the_row_layout() -> None:
    batch = Batch.of(
        reward=[[1.0], [1.0], [1.0]], terminated=[[True], [False], [False]], truncated=[[False], [False], [True]],
        valid=[[True], [False], [True]],
    )  # fmt: skip
    assert batch.cut.flatten().tolist() == [True, True, True]
    assert batch.choice is batch.valid


def test_sequences_train_every_row_once_behind_their_burn_in() -> None:
    batch = _batch(steps=12, invalid=0.2)
    memories = torch.arange(6 * 6).view(6, 6)  # recorded at every second row
    batch.add(memories={"h": memories})
    batch.origin = Origin(memory_every=2)
    trained = []
    for mini in batch.minibatches(8, window=Window(2, 4)):
        assert mini.lead[0] == 6 and mini.lead[1] <= 2
        time, column = mini.place // 6, mini.place % 6
        assert (time.diff(dim=0) == 1).all() and (column == column[:1]).all()
        torch.testing.assert_close(mini.memory["h"], memories[time[0] // 2, column[0]])
        trained.append(mini.place[mini.valid])
    torch.testing.assert_close(torch.cat(trained).sort().values, batch.valid.flatten().nonzero()[:, 0])


def test_windows_have_rows_behind_and_are_moved_inside_a_slab() -> None:
    batch = _batch(steps=12, invalid=0.0)
    trained = []
    for mini in batch.minibatches(8, window=Window(2, 4, 2)):
        time = mini.place // 6
        assert mini.lead[0] == 8 and (time.diff(dim=0) == 1).all()
        assert (mini.valid.sum(0) == 4).all()
        assert set(time[0].tolist()) <= {0, 2, 4}  # 0 - 2, 4 - 2 and 8 - 2, moved to have 8 rows in 0..11
        trained.append(mini.place[mini.valid])
    torch.testing.assert_close(torch.cat(trained).sort().values, torch.arange(72))


def test_chunks_that_do_not_fit_are_refused_with_their_sizes() -> None:
    with pytest.raises(ValueError, match=r"slabs of 8 rows .* length=3"):
        list(_batch().minibatches(8, window=Window(length=3)))


def test_joint_minibatches_keep_the_agents_of_an_env_together() -> None:
    valid = torch.rand(4, 5, 3) > 0.5
    valid[1, 2] = False
    batch = Batch.of(reward=torch.randn(4, 5, 3), valid=valid, place=torch.arange(60).view(4, 5, 3), state=torch.randn(5, 5, 2))
    seen = []
    for mini in batch.minibatches(9):
        assert mini.lead == (1, mini.lead[1], 3) and mini.lead[1] <= 3
        assert torch.equal(mini.valid, valid.flatten()[mini.place])
        torch.testing.assert_close(mini.state[0], batch.state[:-1].flatten(0, 1)[mini.place[0, :, 0] // 3])
        torch.testing.assert_close(mini.mean(mini.reward), mini.reward[mini.valid].mean())
        seen.append(mini.place[mini.valid])
    torch.testing.assert_close(torch.cat(seen).sort().values, valid.flatten().nonzero()[:, 0])


def test_gathered_memory_is_used_again() -> None:
    batch = _batch()
    where = {mini.obs.data_ptr() for _ in range(3) for mini in batch.minibatches(48)}
    assert len(where) == 1


def test_the_engine_looks_at_its_mail_after_every_minibatch() -> None:
    batch = _batch(invalid=0.0)
    looked: list[int] = []
    batch.origin.between = lambda: looked.append(1)
    assert len(list(batch.minibatches(12, 2))) == len(looked) == 8
