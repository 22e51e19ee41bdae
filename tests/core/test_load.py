"""Strict loading: what fits is converted, what does not is named with its place and a way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srl.core.errors import UserError
from srl.core.load import describe, dump, live_settings, load, option
from srl.core.schedule import Schedule
from srl.core.where import Provenance, Where
from tests.errors import raises


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = 1
    name: str = "x"


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    kind: ClassVar[str] = "trainer"
    batch_size: int = option(8192, "rows of one update", low=1)
    lr: Schedule = option(Schedule(3e-4), "step size", above=0, live=True)
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
    device: str = option("cpu", "where", choices=("cpu", "cuda"))
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


HELP = "\n  all: python -m srl.launch --help trainer"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"batch_sise": 3},
            "error[E02]: 'trainer' has no setting 'batch_sise'\n  from: my.yaml:14:3\n"
            "  did you mean: batch_size (int, default 8192)?    all: python -m srl.launch --help trainer",
        ),
        (
            {"derived": 3},
            "error[E02]: 'trainer' has no setting 'derived'\n  from: my.yaml:1:1\n"
            "  did you mean: device (str, default cpu)?    all: python -m srl.launch --help trainer",
        ),
        (
            {"inner": {"zzz": 3}},
            "error[E02]: 'trainer.inner' has no setting 'zzz'\n  from: my.yaml:1:1\n"
            "  settings: size, name    all: python -m srl.launch --help trainer",
        ),
        (
            {"batch_size": "7"},
            "error[E03]: 'trainer.batch_size' expects int, found text '7'\n  from: my.yaml:15:3\n"
            "  try: trainer.batch_size=7 (without quotes)" + HELP,
        ),
        (
            {"batch_size": 1.5},
            "error[E03]: 'trainer.batch_size' expects int, found float 1.5\n  from: my.yaml:15:3\n  try: a whole number" + HELP,
        ),
        ({"batch_size": True}, "error[E03]: 'trainer.batch_size' expects int, found bool true\n  from: my.yaml:15:3" + HELP),
        ({"batch_size": None}, "error[E03]: 'trainer.batch_size' expects int, found null\n  from: my.yaml:15:3" + HELP),
        (
            {"batch_size": 0},
            "error[E03]: 'trainer.batch_size' must be at least 1, found 0\n  from: my.yaml:15:3\n  about: rows of one update",
        ),
        (
            {"clip": 1},
            "error[E03]: 'trainer.clip' must be above 0 and below 1, found 1\n  from: my.yaml:1:1\n  about: half width",
        ),
        (
            {"clip": float("nan")},
            "error[E03]: 'trainer.clip' must be above 0 and below 1, found nan\n  from: my.yaml:1:1\n  about: half width",
        ),
        (
            {"lr": {"from": 1, "to": 0}},
            "error[E03]: 'trainer.lr' must be above 0, found {from: 1, to: 0}\n  from: my.yaml:1:1\n  about: step size",
        ),
        (
            {"lr": "1e-3"},
            "error[E03]: 'trainer.lr' expects schedule: it must be a number, not '1e-3'\n  from: my.yaml:1:1" + HELP,
        ),
        (
            {"lr": {"from": 1, "too": 0}},
            "error[E02]: 'trainer.lr' has no setting 'too'\n  from: my.yaml:16:9\n"
            "  did you mean: to?    all: python -m srl.launch --help trainer",
        ),
        (
            {"lr": {"from": 1, "end": 0}},
            "error[E02]: 'trainer.lr' has no setting 'end'\n  from: my.yaml:1:1\n"
            "  settings: from, to, kind, until    all: python -m srl.launch --help trainer",
        ),
        (
            {"lr": {"from": 1, "to": 0, "until": 3}},
            "error[E03]: 'trainer.lr.until': until must be above 0 and at most 1, not 3.0\n  from: my.yaml:17:9" + HELP,
        ),
        (
            {"batch_size": 10**26},
            "error[E03]: 'trainer.batch_size' must be at most 9223372036854775807, found 100000000000000000000000000\n"
            "  from: my.yaml:15:3\n  about: whole numbers have 64 bits",
        ),
        (
            {"batch_size": 1e26},
            "error[E03]: 'trainer.batch_size' must be at most 9223372036854775807, found 100000000000000004764729344\n"
            "  from: my.yaml:15:3\n  about: whole numbers have 64 bits",
        ),
        (
            {"mode": 1e30},
            "error[E03]: 'trainer.mode' expects auto | fast | int, found float 1e+30\n  from: my.yaml:1:1\n"
            "  try: at most 9223372036854775807" + HELP,
        ),
        (
            {"mode": -(2**63) - 1},
            "error[E03]: 'trainer.mode' must be at least -9223372036854775808, found -9223372036854775809\n"
            "  from: my.yaml:1:1\n  about: whole numbers have 64 bits",
        ),
        (
            {"mode": "fats"},
            "error[E03]: 'trainer.mode' expects auto | fast | int, found text 'fats'\n  from: my.yaml:1:1\n"
            "  did you mean: fast?" + HELP,
        ),
        (
            {"hidden": 64},
            "error[E03]: 'trainer.hidden' expects list of int, found int 64\n  from: my.yaml:1:1\n  try: trainer.hidden=[64]"
            + HELP,
        ),
        ({"hidden": [1, "x"]}, "error[E03]: 'trainer.hidden.1' expects int, found text 'x'\n  from: my.yaml:1:1" + HELP),
        ({"hidden": [1, 0]}, "error[E03]: 'trainer.hidden' must be at least 1, found [1, 0]\n  from: my.yaml:1:1"),
        ({"pair": [1]}, "error[E03]: 'trainer.pair' expects 2 entries, [int, str], found list [1]\n  from: my.yaml:1:1" + HELP),
        (
            {"names": "a"},
            "error[E03]: 'trainer.names' expects list of str, found text 'a'\n  from: my.yaml:1:1\n  try: trainer.names=[a]"
            + HELP,
        ),
        ({"limits": [1]}, "error[E03]: 'trainer.limits' expects mapping of float, found list [1]\n  from: my.yaml:1:1" + HELP),
        ({"limits": {"a": "b"}}, "error[E03]: 'trainer.limits.a' expects float, found text 'b'\n  from: my.yaml:1:1" + HELP),
        ({"inner": 3}, "error[E03]: 'trainer.inner' expects a mapping with size, name, found int 3\n  from: my.yaml:1:1" + HELP),
        (
            {"many": {"a.b": {"size": "x"}}},
            "error[E03]: 'trainer.many.\"a.b\".size' expects int, found text 'x'\n  from: my.yaml:1:1" + HELP,
        ),
        ({"either": {"size": "x"}}, "error[E03]: 'trainer.either.size' expects int, found text 'x'\n  from: my.yaml:1:1" + HELP),
        (
            {"flag": "yes"},
            "error[E03]: 'trainer.flag' expects bool, found text 'yes'\n  from: my.yaml:1:1\n  try: trainer.flag=true" + HELP,
        ),
        ({"flag": 1}, "error[E03]: 'trainer.flag' expects bool, found int 1\n  from: my.yaml:1:1" + HELP),
        (
            {"inner": {"name": 1.0}},
            "error[E03]: 'trainer.inner.name' expects str, found float 1.0\n  from: my.yaml:1:1\n"
            '  try: quotes make it text: "1.0"' + HELP,
        ),
        (
            {"device": "cud"},
            "error[E03]: 'trainer.device' expects cpu | cuda, found text 'cud'\n  from: my.yaml:1:1\n  did you mean: cuda?"
            + HELP,
        ),
    ],
)
def test_what_does_not_fit_is_named(data: Any, message: str) -> None:
    places = Provenance(
        {
            ("trainer",): Where("my.yaml", 1, 1),
            ("trainer", "batch_sise"): Where("my.yaml", 14, 3),
            ("trainer", "batch_size"): Where("my.yaml", 15, 3),
            ("trainer", "lr", "too"): Where("my.yaml", 16, 9),
            ("trainer", "lr", "until"): Where("my.yaml", 17, 9),
        }
    )
    with pytest.raises(UserError) as caught:
        load(TrainerConfig, data, places, path="trainer")
    assert caught.value.format() == message


def test_without_a_path_the_class_gives_the_name() -> None:
    with raises("E02") as caught:
        load(TrainerConfig, {"zzz": 1})
    assert caught.value.headline == "'trainer' has no setting 'zzz'"


def test_one_place_serves_for_all() -> None:
    with raises("E03") as caught:
        load(TrainerConfig, {"flag": 1}, Where("command line"))
    assert caught.value.facts[0] == ("from", "command line")


def test_a_setting_without_default_must_be_given() -> None:
    @dataclass(frozen=True)
    class Needy:
        path: str = option(help="what to read")

    with raises("E14") as caught:
        load(Needy, {}, Where("my.yaml", 2, 1), path="replay")
    assert caught.value.format() == (
        "error[E14]: 'replay' needs the setting 'path'\n  from: my.yaml:2:1\n  expected: path (str): what to read\n"
        "  try: replay.path=..."
    )


def test_a_check_of_the_class_itself_is_reported_with_the_place_of_its_setting() -> None:
    @dataclass(frozen=True)
    class Checked:
        low: int = 0
        high: int = 1

        def __post_init__(self) -> None:
            if self.high <= self.low:
                raise ValueError(f"high must be above low, not {self.high}")

    places = Provenance({("a",): Where("my.yaml", 1, 1), ("a", "high"): Where("my.yaml", 3, 5)})
    with raises("E03") as caught:
        load(Checked, {"low": 4, "high": 2}, places, path="a")
    assert caught.value.format() == (
        "error[E03]: 'a': high must be above low, not 2\n  from: my.yaml:3:5\n  all: python -m srl.launch --help a"
    )
    assert isinstance(caught.value.__cause__, ValueError)


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
    assert (rows["lr"].type, rows["lr"].default, rows["lr"].live) == ("schedule", "0.0003", True)
    assert rows["device"].type == "cpu | cuda"
    assert rows["limits"].default == "{}"
    assert live_settings(TrainerConfig) == {"lr"}


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
