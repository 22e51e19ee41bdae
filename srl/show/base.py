"""What shows pictures, and what is told with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srl.core.text import figure

Frame = NDArray[np.uint8]


@dataclass(slots=True)
class Facts:
    """What is known of the policy that plays, and of its episode."""

    experiment: str
    source: str = ""
    """Where its weights come from, where that is not the run itself: the name of a checkpoint."""
    env_steps: int = 0
    """That the policy was trained for."""
    update: int = 0
    version: int = -1
    episode: int = 0
    step: int = 0
    """Of this episode."""
    returned: dict[str, float] = field(default_factory=dict)
    """Return of this episode so far, by team; the team of a single agent is ``""``."""
    last: dict[str, float] = field(default_factory=dict)
    """Return of the episode before."""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def line(self) -> str:
        """`env step 120,000, update 480   episode 3, step 71, return 71   before: 500`"""
        trained = f"env step {self.env_steps:,}, update {self.update:,}" + (f" ({self.source})" if self.source else "")
        text = f"{trained}   episode {self.episode}, step {self.step:,}, return {returns(self.returned)}"
        return text + (f"   before: {returns(self.last)}" if self.last else "")


def returns(values: dict[str, float]) -> str:
    """`71`, or `hider 3.5, seeker -3.5`"""
    return ", ".join(f"{team} {figure(value)}".strip() for team, value in values.items()) or "-"


class Show(ABC):
    """Takes the pictures of one env as they come; none of its methods waits for whoever looks at them."""

    address = ""
    """Where a person finds it."""
    every_step = False
    """It needs a picture of every step, rather than pictures in time."""
    closed = False
    """By a person, for good."""

    @property
    @abstractmethod
    def wanted(self) -> bool:
        """Somebody looks now: else nothing needs to be played."""

    @abstractmethod
    def picture(self, frame: Any, facts: Facts) -> None:
        """The newest picture."""

    def ended(self, facts: Facts) -> None:
        """The episode is over: its last picture has been shown."""

    def close(self) -> None:
        """End it. Idempotent."""


def rgb(frame: Any) -> Frame:
    """A picture `[height, width, 3]` uint8; grey ones are spread over the three channels."""
    picture = np.asarray(frame)
    if picture.ndim == 2:
        picture = picture[:, :, None]
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] not in (1, 3):
        raise ValueError(f"a picture must be uint8 (height, width, 3), not {picture.dtype} {np.shape(frame)}")
    return np.ascontiguousarray(np.broadcast_to(picture, (*picture.shape[:2], 3)))
