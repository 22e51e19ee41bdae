"""Strict loading: what fits is converted, what does not is named with its place and a way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srl.core.errors import SettingError, UserError
from srl.core.load import describe, dump, load, option
from srl.core.schedule import Schedule
from srl.core.where import Provenance, Where, dotted
from tests.errors import raises


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = 1
    name: str = "x"


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    kind: ClassVar[str] = "trainer"
    batch_size: int = option(8192, "rows of one update", low=1)
    lr: Schedule = option(Schedule(3e-4), "step size", above=0)
    clip: float = option(0.2, "half width", above=0, below=1)
    mode: Literal["auto", "fast"] | int = "auto"
    """How it goes."""
    hidden: tuple[int, ...] = option((64, 64), low=1)
    pair: tuple[int, str] = (1, "a")
    names: list[str] = field(default_factory=list)
    limits: Mapping[str, float] = field(default_factory=dict)
    inner: Inner = Inner()
    many: Mapping[str, Inner] = field(default_factory=dict)
    maybe: float | None = None
    either: Inner | str = "no"
    anything: Any = None
    flag: bool = False
    folder: Path = Path("runs")
    device: Literal["cpu", "cuda"] = option("cpu", "where")
    derived: int = field(default=7, init=False)


@pytest.mark.parametrize(
    ("key", "data", "value"),
    [
        ("batch_size", 1e6, 1_000_000),
        ("clip", 0.5, 0.5),
        ("maybe", 1, 1.0),
        ("maybe", None, None),
        ("lr", 1, Schedule(1.0)),
        ("lr", {"from": 1, "to": 0.5}, Schedule(1.0, 0.5)),
        ("mode", "fast", "fast"),
        ("mode", 3, 3),
        ("hidden", [1, 2], (1, 2)),
        ("hidden", [], ()),
        ("pair", [2, "b"], (2, "b")),
        ("names", ["a"], ["a"]),
        ("limits", {"a": 1}, {"a": 1.0}),
        ("inner", {"size": 2}, Inner(size=2)),
        ("inner", Inner(size=3), Inner(size=3)),
        ("many", {"a": {}, "b": {"name": "y"}}, {"a": Inner(), "b": Inner(name="y")}),
        ("either", "yes", "yes"),
        ("either", {"size": 4}, Inner(size=4)),
        ("anything", {"a": [1, None]}, {"a": [1, None]}),
        ("flag", True, True),
        ("folder", "a/b", Path("a/b")),
        ("device", "cuda", "cuda"),
    ],
)
def test_what_fits_is_taken(key: str, data: Any, value: Any) -> None:
    config = load(TrainerConfig, {key: data})
    assert getattr(config, key) == value
    assert type(getattr(config, key)) is type(value)
    assert load(TrainerConfig, dump(config)) == config


QUOTED = 'quotes make it text: "1.0"'
MOST = "must be at most 9223372036854775807"


@pytest.mark.parametrize(
    ("data", "code", "path", "facts"),
    [
        ({"batch_sise": 3}, "E02", "batch_sise", ["'trainer' has no setting 'batch_sise'", "batch_size (int, default 8192)?"]),
        ({"derived": 3}, "E02", "derived", ["device (cpu | cuda, default cpu)?"]),
        ({"inner": {"zzz": 3}}, "E02", "inner.zzz", ["'trainer.inner' has no setting 'zzz'", "settings: size, name"]),
        ({"batch_size": "7"}, "E03", "batch_size", ["expects int, found text '7'", "trainer.batch_size=7 (without quotes)"]),
        ({"batch_size": 1.5}, "E03", "batch_size", ["expects int, found float 1.5", "a whole number"]),
        ({"batch_size": True}, "E03", "batch_size", ["expects int, found bool true"]),
        ({"batch_size": None}, "E03", "batch_size", ["expects int, found null"]),
        ({"batch_size": 0}, "E03", "batch_size", ["must be at least 1, found 0", "about: rows of one update"]),
        ({"clip": 1}, "E03", "clip", ["must be above 0 and below 1, found 1"]),
        ({"clip": float("nan")}, "E03", "clip", ["found nan"]),
        ({"clip": 10**400}, "E03", "clip", ["expects float"]),
        ({"lr": {"from": 1, "to": 0}}, "E03", "lr", ["must be above 0, found {from: 1, to: 0}"]),
        ({"lr": "1e-3"}, "E03", "lr", ["'trainer.lr' must be a number, not '1e-3'"]),
        ({"lr": {"to": 1}}, "E03", "lr", ["'trainer.lr' needs `from`"]),
        ({"lr": {"from": 1, "too": 0}}, "E02", "lr.too", ["did you mean: to?"]),
        ({"lr": {"from": 1, "end": 0}}, "E02", "lr.end", ["settings: from, to, kind, until"]),
        ({"lr": {"from": 1, "to": 0, "until": 3}}, "E03", "lr.until", ["must be above 0 and at most 1, not 3.0"]),
        ({"batch_size": 10**26}, "E03", "batch_size", [MOST, "must fit in 64 bits"]),
        ({"batch_size": 10**9999}, "E03", "batch_size", [MOST]),
        ({"batch_size": 1e26}, "E03", "batch_size", [MOST]),
        ({"mode": 1e30}, "E03", "mode", ["expects auto | fast | int, found float 1e+30"]),
        ({"mode": -(2**63) - 1}, "E03", "mode", ["must be at least -9223372036854775808"]),
        ({"mode": "fats"}, "E03", "mode", ["expects auto | fast | int, found text 'fats'", "did you mean: fast?"]),
        ({"hidden": 64}, "E03", "hidden", ["expects list of int, found int 64", "try: trainer.hidden=[64]"]),
        ({"hidden": [1, "x"]}, "E03", "hidden.1", ["expects int, found text 'x'"]),
        ({"hidden": [1, 0]}, "E03", "hidden", ["must be at least 1, found [1, 0]"]),
        ({"pair": [1]}, "E03", "pair", ["expects 2 entries, [int, str], found list [1]"]),
        ({"names": "a"}, "E03", "names", ["expects list of str, found text 'a'", "try: trainer.names=[a]"]),
        ({"limits": [1]}, "E03", "limits", ["expects mapping of float, found list [1]"]),
        ({"limits": {"a": "b"}}, "E03", "limits.a", ["expects float, found text 'b'"]),
        ({"inner": 3}, "E03", "inner", ["expects a mapping with size, name, found int 3"]),
        ({"many": {"a.b": {"size": "x"}}}, "E03", 'many."a.b".size', ["expects int, found text 'x'"]),
        ({"either": {"size": "x"}}, "E03", "either.size", ["expects int, found text 'x'"]),
        ({"flag": "yes"}, "E03", "flag", ["expects bool, found text 'yes'", "try: trainer.flag=true"]),
        ({"flag": 1}, "E03", "flag", ["expects bool, found int 1"]),
        ({"inner": {"name": 1.0}}, "E03", "inner.name", ["expects str, found float 1.0", QUOTED]),
        ({"device": "cud"}, "E03", "device", ["expects cpu | cuda, found text 'cud'", "did you mean: cuda?"]),
    ],
)
def test_what_does_not_fit_is_named(data: Any, code: str, path: str, facts: list[str]) -> None:
    with raises(code) as caught:
        load(TrainerConfig, data, path="trainer")
    error = caught.value
    assert error.path is not None and dotted(error.path) == f"trainer.{path}"
    assert all(fact in error.format() for fact in facts)


def test_a_long_value_is_cut_in_the_message() -> None:
    with raises("E03") as caught:
        load(TrainerConfig, {"clip": list(range(100_000))}, path="trainer")
    assert len(caught.value.format()) < 400


@pytest.mark.parametrize(
    ("data", "place"),
    [({"batch_sise": 3}, 14), ({"batch_size": "7"}, 15), ({"lr": {"from": 1, "too": 0}}, 16), ({"clip": 2}, 1)],
)
def test_the_place_is_that_of_the_setting_or_of_its_section(data: Any, place: int) -> None:
    places = Provenance(
        {
            ("trainer",): Where("my.yaml", 1, 1),
            ("trainer", "batch_sise"): Where("my.yaml", 14, 3),
            ("trainer", "batch_size"): Where("my.yaml", 15, 3),
            ("trainer", "lr", "too"): Where("my.yaml", 16, 9),
        }
    )
    with pytest.raises(UserError) as caught:
        load(TrainerConfig, data, path="trainer")
    assert caught.value.at(places).facts[0][1].startswith(f"my.yaml:{place}:")


def test_without_a_path_the_class_gives_the_name() -> None:
    with raises("E02") as caught:
        load(TrainerConfig, {"zzz": 1})
    assert caught.value.headline == "'trainer' has no setting 'zzz'"


def test_a_setting_without_default_must_be_given() -> None:
    @dataclass(frozen=True)
    class Needy:
        path: str = option(help="what to read")

    with raises("E14") as caught:
        load(Needy, {}, path="replay")
    assert caught.value.format() == (
        "error[E14]: 'replay' needs the setting 'path'\n  expected: path (str): what to read\n  try: replay.path=..."
    )


@dataclass(frozen=True)
class Checked:
    low: int = 0
    high: int = 1

    def __post_init__(self) -> None:
        if self.high <= self.low:
            raise SettingError("high", f"must be above low, not {self.high}")
        if self.low < 0:
            raise ValueError("low must not be negative")


def test_a_class_that_checks_itself_names_its_setting() -> None:
    places = Provenance({("a",): Where("my.yaml", 1, 1), ("a", "high"): Where("my.yaml", 3, 5)})
    with raises("E03") as caught:
        load(Checked, {"low": 4, "high": 2}, path="a")
    assert caught.value.at(places).format() == (
        "error[E03]: 'a.high' must be above low, not 2\n  from: my.yaml:3:5\n  all: python -m srl.launch --help a"
    )


def test_a_value_error_of_a_class_has_the_place_of_its_section() -> None:
    with raises("E03", match="'a': low must not be negative") as caught:
        load(Checked, {"low": -1}, path="a")
    assert caught.value.path == ("a",)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_setting_may_have_another_name_in_files() -> None:
    @dataclass(frozen=True)
    class Stop:
        episode_return: float | None = option(None, "mean return", above=0, key="return")

    assert load(Stop, {"return": 3}) == Stop(3.0) and dump(Stop(3.0)) == {"return": 3.0}
    assert describe(Stop)[0].name == "return"
    for wrong in ({"return": -1}, {"episode_return": 1}):
        with pytest.raises(UserError, match="return"):
            load(Stop, wrong)


def test_a_mutable_default_is_not_shared() -> None:
    @dataclass
    class Holder:
        items: list[int] = option([1])

    Holder().items.append(2)
    assert Holder().items == [1]


def test_settings_are_described() -> None:
    rows = {row.name: row for row in describe(TrainerConfig)}
    assert "derived" not in rows
    assert "kind" not in rows
    assert (rows["batch_size"].type, rows["batch_size"].default) == ("int", "8192")
    assert rows["batch_size"].help == "rows of one update (at least 1)"
    assert (rows["mode"].type, rows["mode"].help) == ("auto | fast | int", "How it goes.")
    assert (rows["hidden"].type, rows["hidden"].default) == ("list of int", "[64, 64]")
    assert (rows["lr"].type, rows["lr"].default) == ("schedule", "0.0003")
    assert rows["device"].type == "cpu | cuda"
    assert rows["limits"].default == "{}"


def test_frozen_classes_stay_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        load(TrainerConfig, {}).flag = True  # type: ignore[misc]


_CONFIGS = st.builds(
    TrainerConfig,
    batch_size=st.integers(1, 2**63 - 1),
    lr=st.builds(Schedule, st.floats(1e-9, 1e3), st.none() | st.floats(1e-9, 1e3), st.sampled_from(["linear", "cosine"])),
    mode=st.sampled_from(["auto", "fast"]) | st.integers(-(2**63), 2**63 - 1),
    hidden=st.lists(st.integers(1, 2**63 - 1)).map(tuple),
    names=st.lists(st.text()),
    limits=st.dictionaries(st.text(), st.floats(allow_nan=False)),
    many=st.dictionaries(st.text(), st.builds(Inner, size=st.integers(-(2**63), 2**63 - 1), name=st.text())),
    maybe=st.none() | st.floats(allow_nan=False),
    either=st.text() | st.builds(Inner),
    flag=st.booleans(),
)


@given(_CONFIGS)
def test_what_is_dumped_loads_equal(config: TrainerConfig) -> None:
    assert load(TrainerConfig, dump(config)) == config
