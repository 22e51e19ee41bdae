"""What JSON cannot say comes back from it unchanged."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from srl.store.plain import dumps, generator_state, loads, restore_generator, to_json

VALUES: list[Any] = [
    None, True, 0, -7, 2**53, 2**53 + 1, -(2**127), "text", "", 1.5, 1e308, [1, [2.5, "x"]], {"a": {"b": []}}, b"\x00\xff",
    math.inf, -math.inf,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    back = loads(dumps(value))
    assert back == value and type(back) is type(value)


def test_nan_and_numpy_scalars_become_python_numbers() -> None:
    back = loads(dumps({"nan": math.nan, "f": np.float32(0.5), "i": np.uint64(2**64 - 1), "b": np.bool_(True), "t": (1, 2)}))
    assert math.isnan(back.pop("nan"))
    assert back == {"f": 0.5, "i": 2**64 - 1, "b": True, "t": [1, 2]}


@pytest.mark.parametrize(
    "array", [np.arange(6).reshape(2, 3).T, np.array(2.5), np.array([], np.uint32), np.arange(3, dtype=">u4")]
)
def test_small_arrays_come_back_with_shape_and_type(array: Any) -> None:
    back = loads(dumps([array]))[0]
    assert back.shape == array.shape and back.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(back, array)


def test_the_text_is_strict_json_without_large_numbers() -> None:
    def refuse(text: str) -> float:
        raise AssertionError(text)

    plain = json.loads(dumps({"big": 2**100, "nan": math.nan}), parse_constant=refuse)
    assert plain == {"big": {"$int": str(2**100)}, "nan": {"$float": "nan"}}


@pytest.mark.parametrize("name", ["PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937"])
def test_every_numpy_generator_goes_on_where_it_stood(name: str) -> None:
    generator = np.random.Generator(getattr(np.random, name)(11))
    generator.integers(0, 10, size=3, dtype=np.uint32)
    again = restore_generator(json.loads(json.dumps(generator_state(generator))))
    np.testing.assert_array_equal(
        again.integers(0, 2**32, 50, dtype=np.uint32), generator.integers(0, 2**32, 50, dtype=np.uint32)
    )


def test_what_is_json_already_is_left_alone() -> None:
    once = to_json({"big": 2**100, "data": b"x", "array": np.arange(3)})
    assert to_json(once) == once


def test_what_is_no_generator_state_is_refused() -> None:
    with pytest.raises(ValueError, match="bit_generator is 'system'"):
        restore_generator({"bit_generator": "system"})


@pytest.mark.parametrize(
    ("value", "text"), [({"a": [1, {2}]}, r"\.a\[1\]: a set"), ({"$in": 1}, "must be text"), ({1: 2}, "must be text")]
)
def test_what_has_no_json_form_is_refused_with_its_place(value: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        to_json(value)
