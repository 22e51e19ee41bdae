"""Which past versions are kept when there are more than there is room for."""

from __future__ import annotations

from itertools import pairwise

from srl.streams.param import HISTORY, thinned


def _kept_of(count: int) -> list[int]:
    kept: list[int] = []
    for version in range(count):
        kept.append(version)
        if len(kept) > HISTORY:
            kept.remove(thinned(kept))
    return kept


def test_the_oldest_and_the_newest_stay_and_the_others_are_spread_over_all_time() -> None:
    for count in (HISTORY + 1, 3 * HISTORY, 1000, 4321):
        kept = _kept_of(count)
        assert len(kept) == HISTORY and kept[0] == 0 and kept[-1] == count - 1
        gaps = [after - before for before, after in pairwise(kept)]
        assert max(gaps) <= 4 * count / HISTORY, "no time is forgotten"
