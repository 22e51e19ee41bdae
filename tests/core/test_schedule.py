"""Schedules over the progress of a run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srl.core.errors import SettingError
from srl.core.schedule import Schedule

_FINITE = st.floats(-1e6, 1e6)


@pytest.mark.parametrize(
    ("plain", "progress", "value"),
    [
        (3e-4, 0.0, 3e-4),
        (3e-4, 1.0, 3e-4),
        ({"from": 1.0, "to": 0.0}, 0.25, 0.75),
        ({"from": 1, "to": 0}, 2.0, 0.0),
        ({"from": 1, "to": 0}, -1.0, 1.0),
        ({"from": 1.0, "to": 0.0, "kind": "cosine"}, 0.5, 0.5),
        ({"from": 1.0, "to": 0.0, "kind": "cosine"}, 1 / 3, 0.75),
        ({"from": 1.0, "to": 0.0, "until": 0.5}, 0.25, 0.5),
        ({"from": 1.0, "to": 0.0, "until": 0.5}, 0.75, 0.0),
        ({"from": 2}, 0.5, 2.0),
    ],
)
def test_values(plain: Any, progress: float, value: float) -> None:
    assert Schedule.from_plain(plain).at(progress) == pytest.approx(value, abs=1e-12)


@given(_FINITE, st.none() | _FINITE, st.sampled_from(["linear", "cosine"]), st.floats(0.01, 1.0), st.floats(-1, 2))
def test_plain_data_reads_back_equal_and_values_stay_in_bounds(
    start: float, end: float | None, kind: str, until: float, progress: float
) -> None:
    schedule = Schedule(start, end, kind, until)
    assert Schedule.from_plain(schedule.to_plain()) == schedule
    low, high = schedule.bounds
    assert low - 1e-6 <= schedule.at(progress) <= high + 1e-6
    assert schedule.at(0.0) == start
    assert schedule.at(1.0) == pytest.approx(start if end is None else end, abs=1e-6)


@pytest.mark.parametrize(
    ("plain", "setting", "must"),
    [
        ("1e-4", (), "must be a number, not '1e-4'"),
        (True, (), "must be a number"),
        ({"to": 1}, (), "needs `from`"),
        ({"from": 1, "to": "x"}, ("to",), "must be a number"),
        ({"from": 1, "kind": "step"}, ("kind",), "linear, cosine"),
        ({"from": 1, "until": 0}, ("until",), "above 0 and at most 1"),
    ],
)
def test_what_is_no_schedule_is_refused(plain: Any, setting: tuple[str, ...], must: str) -> None:
    with pytest.raises(SettingError, match=must) as caught:
        Schedule.from_plain(plain)
    assert caught.value.path == setting
