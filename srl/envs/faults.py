"""Error messages about envs: which copy, which episode, what was found, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from srl.core.errors import NotImportable, UserError
from srl.core.registry import dotted_path


@dataclass(frozen=True, slots=True)
class Spot:
    """One step of one copy."""

    name: str
    """Name of the env for the user."""
    place: str
    """The worker, such as `actor/3`; may be empty."""
    env: int
    seed: int
    step: int

    def __str__(self) -> str:
        worker = f"{self.place}, " if self.place else ""
        return f"env '{self.name}' ({worker}env {self.env}, seed {self.seed}, step {self.step})"

    @property
    def alone(self) -> str:
        """The command that reproduces it without a run."""
        return f"srl check env {self.name} --seed {self.seed}"


def bad_observation(spot: Spot, key: tuple[str, ...], expected: str, found: Any, likely: str) -> UserError:
    """E05 for one leaf of an observation."""
    return UserError(
        f"{spot} returned an observation outside its space",
        ("key", f"{list(key)}   expected {expected}   got {describe(found)}"),
        ("likely", f"{likely}     check it alone: {spot.alone}"),
        code="E05",
    )


def bad_step(spot: Spot, what: str, likely: str) -> UserError:
    """E05 for anything else that a step returned."""
    return UserError(f"{spot} {what}", ("likely", f"{likely}     check it alone: {spot.alone}"), code="E05")


def is_reward(reward: Any) -> bool:
    """Require one finite number: a single nan would make all weights nan."""
    return np.shape(reward) == () and bool(np.isfinite(reward))


def bad_reward(spot: Spot, reward: Any, whose: str = "") -> UserError:
    """E05 for an invalid reward."""
    return bad_step(spot, f"returned the reward {reward!r}{whose}", "a reward is one finite number")


def bad_answer(spot: Spot, answer: Any) -> UserError:
    """E05 for a `step` that does not return gymnasium's five values."""
    found = f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
    old = " (before 0.26 it was four: `done` is now told apart)" if isinstance(answer, tuple) and len(answer) == 4 else ""
    return bad_step(spot, f"returned {found} from step()", f"return (observation, reward, terminated, truncated, info){old}")


def describe(found: Any) -> str:
    """`float64 (64,64,3) min -0.12 max 1.03`."""
    try:
        array = np.asarray(found)
    except ValueError:
        return f"a ragged {type(found).__name__}"
    if array.dtype.kind not in "biuf":
        return f"{type(found).__name__} {found!r}"[:80]
    if array.size == 0:
        return f"{array.dtype} {sizes(array.shape)}"
    if array.dtype.kind == "f" and np.isnan(array).any():
        return f"{array.dtype} {sizes(array.shape)} with {int(np.isnan(array).sum())} nan"
    return f"{array.dtype} {sizes(array.shape)} min {array.min():.3g} max {array.max():.3g}"


def sizes(shape: tuple[int, ...]) -> str:
    """`(64,64,3)`."""
    return f"({','.join(map(str, shape))})"


def name_of(made: Any) -> str:
    """Name of an env for the user, as `srl check env` takes it."""
    if isinstance(made, str):
        return made
    try:
        return dotted_path(made)
    except (NotImportable, AttributeError):
        pass  # a notebook's, or no class at all
    return f"{getattr(made, '__module__', '')}:{getattr(made, '__qualname__', type(made).__name__)}".lstrip(":")
