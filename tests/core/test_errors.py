"""Errors: what a person reads, where they come from, and the trip through msgpack."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgpack
import pytest

import srl
from srl.core import errors
from srl.core.errors import (
    CODES,
    CannotWrite,
    HostileFrame,
    NotImportable,
    RunError,
    SettingError,
    SrlError,
    UserError,
    WireError,
)
from srl.core.where import Provenance, Where


def tree(kind: type[SrlError] = SrlError) -> list[type[SrlError]]:
    return [kind, *(one for child in kind.__subclasses__() if child.__module__ == errors.__name__ for one in tree(child))]


def test_the_form_of_an_error() -> None:
    error = UserError("'trainer' has no setting 'batch_sise'", ("from", "experiments/my.yaml:14:3"), code="E02")
    error.add("did you mean", "batch_size (int, default 8192)?    all: python -m srl.launch --help trainer")
    assert (
        error.format()
        == str(error)
        == (
            "error[E02]: 'trainer' has no setting 'batch_sise'\n"
            "  from: experiments/my.yaml:14:3\n"
            "  did you mean: batch_size (int, default 8192)?    all: python -m srl.launch --help trainer"
        )
    )


def test_further_lines_of_a_fact_are_indented_and_a_fact_may_have_no_label() -> None:
    error = RunError("actor/7 died", ("logs", "one\ntwo"), ("", "bare"), code="R01")
    assert error.format() == "error[R01]: actor/7 died\n  logs: one\n    two\n  bare"


@pytest.mark.parametrize(
    "error",
    [
        UserError("headline", ("from", "here"), code="E10", path=("nodes", "trainer", 0)),
        NotImportable("headline", ("try", "that")),
        RunError("headline", code="R02"),
        CannotWrite("headline"),
        WireError("headline", code="W01"),
        HostileFrame("headline"),
        SrlError("headline"),
    ],
)
def test_an_error_survives_msgpack_and_json(error: SrlError) -> None:
    for data in (msgpack.unpackb(msgpack.packb(error.to_data())), json.loads(json.dumps(error.to_data()))):
        back = SrlError.from_data(data)
        assert type(back) is type(error)
        assert (back.format(), back.exit_code, back.to_data()) == (error.format(), error.exit_code, error.to_data())


def test_a_code_of_a_plugin_comes_back_with_its_exit_code() -> None:
    class Theirs(UserError):
        CODE = "X07"

    back = SrlError.from_data(Theirs("theirs", ("from", "there")).to_data())
    assert (back.format(), back.exit_code) == ("error[X07]: theirs\n  from: there", 2)


def test_the_drawing_shows_the_tree_as_it_is() -> None:
    drawn = re.findall(r"── (\w+) ", errors.__doc__ or "")
    assert drawn == [kind.__name__ for kind in tree()[1:]]


def test_exit_codes() -> None:
    assert {kind.__name__ for kind in tree() if kind.EXIT == 2} == {"UserError", "SettingError", "NotImportable"}
    assert RunError("no progress", code="R02").exit_code == 4


def test_every_code_that_is_raised_is_described_and_every_code_described_is_raised() -> None:
    source = "".join(file.read_text() for file in Path(srl.__file__).parent.rglob("*.py"))
    raised = set(re.findall(r'(?:code=|CODE = |CODE: ClassVar\[str\] = )"([A-Z]\d\d)"', source))
    assert raised == set(CODES)


def test_the_place_is_that_of_the_setting_and_is_added_once() -> None:
    places = Provenance({("algorithm",): Where("my.yaml", 3, 1), ("algorithm", "lr"): Where("my.yaml", 4, 3)})
    error = UserError("'algorithm.lr' must be above 0", ("try", "3e-4"), path=("algorithm", "lr"))
    assert error.at(places).at(Where("elsewhere")).facts == [("from", "my.yaml:4:3"), ("try", "3e-4")]
    assert UserError("x", path=("algorithm", "clip")).at(places).facts == [("from", "my.yaml:3:1")]
    assert UserError("of no setting").at(places).facts == []


def test_a_setting_error_names_its_setting() -> None:
    error = SettingError("clip", "must be above 0, not -1")
    assert (error.code, error.headline, error.path) == ("E03", "'clip' must be above 0, not -1", ("clip",))
