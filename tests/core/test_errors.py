"""Errors: what a person reads, and the trip through msgpack."""

from __future__ import annotations

import json
import re

import msgpack
import pytest

from srl.core import errors
from srl.core.errors import SrlError, UnknownKey, UserError, WorkerDied


def tree(kind: type[SrlError] = SrlError) -> list[type[SrlError]]:
    return [kind, *(one for child in kind.__subclasses__() if child.__module__ == errors.__name__ for one in tree(child))]


def test_the_form_of_an_error() -> None:
    error = UnknownKey("'trainer' has no setting 'batch_sise'", ("from", "experiments/my.yaml:14:3"))
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
    error = WorkerDied("actor/7 died", ("logs", "one\ntwo"), ("", "bare"))
    assert error.format() == "error[R01]: actor/7 died\n  logs: one\n    two\n  bare"


@pytest.mark.parametrize("kind", tree())
def test_every_error_survives_msgpack_and_json(kind: type[SrlError]) -> None:
    error = kind("headline", ("from", "here"), ("try", "that"))
    for data in (msgpack.unpackb(msgpack.packb(error.to_data())), json.loads(json.dumps(error.to_data()))):
        back = SrlError.from_data(data)
        assert type(back) is kind
        assert (back.format(), back.exit_code, back.to_data()) == (error.format(), error.exit_code, error.to_data())


def test_an_error_of_a_class_that_is_not_known_here_reads_the_same() -> None:
    data = {"type": "TheirError", "code": "X07", "exit": 2, "headline": "theirs", "lines": [["from", "there"]]}
    back = SrlError.from_data(data)
    assert (back.format(), back.exit_code) == ("error[X07]: theirs\n  from: there", 2)


def test_a_subclass_with_a_constructor_of_its_own_comes_back() -> None:
    class Odd(UserError):
        def __init__(self, number: int) -> None:
            super().__init__(f"odd {number}", ("found", str(number)))

    assert SrlError.from_data(Odd(3).to_data()).format() == Odd(3).format()


def test_the_drawing_shows_the_tree_as_it_is() -> None:
    drawn = dict(re.findall(r"── (\w+) +(?:exit \d: .*|([A-Z]\d\d))?", errors.__doc__ or ""))
    assert set(drawn) == {kind.__name__ for kind in tree()} - {"SrlError"}
    for kind in tree():
        if drawn.get(kind.__name__):
            assert drawn[kind.__name__] == kind.CODE


def test_exit_codes() -> None:
    assert {kind.__name__: kind.EXIT for kind in tree() if kind.EXIT != 2} == {
        "SrlError": 3,
        "RunError": 3,
        "WorkerDied": 3,
        "Stalled": 4,
        "Deadlock": 3,
        "CannotWrite": 3,
        "WireError": 3,
        "SpecMismatch": 3,
        "HostileFrame": 3,
    }
    assert UserError.EXIT == 2
