"""Generators and classic-control envs as plain arrays, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from srl.core.tree import Array

_WORD = 0xFFFFFFFFFFFFFFFF


def pack_rng(rng: np.random.Generator) -> Array:
    """The state of a PCG64 generator as six integers."""
    state: Any = rng.bit_generator.state
    if state["bit_generator"] != "PCG64":
        raise ValueError(f"only PCG64 generators can be saved, not {state['bit_generator']}")
    inner = state["state"]
    words = [number >> shift & _WORD for number in (inner["state"], inner["inc"]) for shift in (64, 0)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64)


def unpack_rng(words: Array) -> np.random.Generator:
    """The generator that `pack_rng` saved."""
    high, low, inc_high, inc_low, has, kept = (int(word) for word in words)
    bits = np.random.PCG64(0)
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": high << 64 | low, "inc": inc_high << 64 | inc_low},
        "has_uint32": has,
        "uinteger": kept,
    }
    return np.random.Generator(bits)


def is_classic(env: Any) -> bool:
    """True if `state` is the complete state of the unwrapped env."""
    return type(env).__module__.startswith("gymnasium.envs.classic_control.") and hasattr(env, "state")


def pack_classic(env: Any) -> dict[str, Array]:
    """The state of a classic-control env between steps."""
    beyond = getattr(env, "steps_beyond_terminated", None)
    return {
        "state": np.array(env.state, np.float64),
        "kind": np.array(_kind(env.state), np.int64),
        "beyond": np.array(-1 if beyond is None else beyond, np.int64),
        "rng": pack_rng(env.np_random),
    }


def unpack_classic(env: Any, saved: dict[str, Array]) -> None:
    """Restore what `pack_classic` saved."""
    state = np.array(saved["state"])
    kind = int(saved["kind"])
    env.state = tuple(state) if kind == 2 else state.astype(np.float32 if kind == 1 else np.float64)
    if hasattr(env, "steps_beyond_terminated"):
        beyond = int(saved["beyond"])
        env.steps_beyond_terminated = None if beyond < 0 else beyond
    env.np_random = unpack_rng(saved["rng"])


def _kind(state: Any) -> int:
    """The type of the state: a float64 array, a float32 array or a tuple. It decides how values round."""
    if isinstance(state, tuple):
        return 2
    return 1 if np.asarray(state).dtype == np.float32 else 0
