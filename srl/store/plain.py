"""Plain JSON for what JSON cannot say: large integers, NaN, bytes, small arrays and generator states. No pickle."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

Json: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"

_EXACT = 1 << 53
"""Beyond this many, readers that keep numbers as doubles (jq, browsers) would round an integer."""

_ESCAPES = frozenset({"$int", "$float", "$bytes", "$array"})

_GENERATORS = ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937")


def to_json(value: Any, where: str = "") -> Json:
    """`value` as JSON that `from_json` turns back; tuples come back as lists, numpy scalars as Python numbers."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return _number(int(value))
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray):
        return _array(value, where)
    if isinstance(value, list | tuple):
        return [to_json(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        if len(value) == 1 and _ESCAPES.issuperset(value):
            return dict(value)  # already in this form, a generator's state for one
        return {_key(key, where): to_json(item, f"{where}.{key}") for key, item in value.items()}
    raise TypeError(f"{where or 'value'}: a {type(value).__name__} has no JSON form; give numbers, text, lists, dicts or arrays")


def from_json(value: Json) -> Any:
    """What `to_json` was given."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$int" in value:
        return int(value["$int"])
    if "$float" in value:
        return float(value["$float"])
    if "$bytes" in value:
        return base64.b64decode(value["$bytes"])
    if "$array" in value:
        return _restore_array(value["$array"])
    return {key: from_json(item) for key, item in value.items()}


def dumps(value: Any) -> str:
    """JSON text of `value`, keys in their order, for a file a person may open."""
    return json.dumps(to_json(value), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def loads(text: str | bytes) -> Any:
    """The value whose text `dumps` gave."""
    return from_json(json.loads(text))


def generator_state(generator: np.random.Generator) -> Json:
    """Where a numpy generator stands."""
    return to_json(generator.bit_generator.state)


def restore_generator(state: Json) -> np.random.Generator:
    """A generator that goes on from `generator_state`."""
    plain = from_json(state)
    name = plain.get("bit_generator") if isinstance(plain, dict) else None
    if name not in _GENERATORS:
        raise ValueError(
            f"not the state of a numpy generator: bit_generator is {name!r}, expected one of {', '.join(_GENERATORS)}"
        )
    bits = getattr(np.random, name)(0)
    bits.state = plain
    return np.random.Generator(bits)


def _number(value: int) -> Json:
    return value if -_EXACT <= value <= _EXACT else {"$int": str(value)}


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str) or key.startswith("$"):
        raise TypeError(f"{where or 'value'}: key {key!r} must be text that does not start with '$'")
    return key


def _array(array: np.ndarray[Any, Any], where: str) -> Json:
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{where or 'value'}: an array of {array.dtype} has no JSON form; expected numbers or booleans")
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    data = base64.b64encode(little.tobytes()).decode()
    return {"$array": {"dtype": array.dtype.name, "shape": list(array.shape), "data": data}}


def _restore_array(packed: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    dtype = np.dtype(packed["dtype"]).newbyteorder("<")
    flat = np.frombuffer(base64.b64decode(packed["data"]), dtype=dtype)
    return flat.reshape(packed["shape"]).astype(packed["dtype"])
