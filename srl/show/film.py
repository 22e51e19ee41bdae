"""Episodes as files of video, one for each."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from srl.envs.video import record
from srl.show.base import Facts, Frame, Show, rgb

LONGEST = 2_000
"""Pictures of one film; what an episode shows after that is left out."""


class Film(Show):
    """Writes `view_<env steps>.mp4` (or .gif) into a folder. The pictures of an episode are kept compressed until then."""

    wanted = True
    every_step = True

    def __init__(self, folder: Path, *, fps: float) -> None:
        self.address = str(folder)
        self._folder, self._fps = folder, fps
        self._frames: list[tuple[bytes, tuple[int, ...]]] = []

    def picture(self, frame: Any, facts: Facts) -> None:
        if len(self._frames) < LONGEST:
            picture = rgb(frame)
            self._frames.append((zlib.compress(picture.data, 1), picture.shape))

    def ended(self, facts: Facts) -> None:
        frames, self._frames = self._frames, []
        if frames:
            record(self._folder / f"view_{facts.env_steps:09d}", (_unpacked(*one) for one in frames), self._fps)


def _unpacked(data: bytes, shape: tuple[int, ...]) -> Frame:
    return np.frombuffer(zlib.decompress(data), np.uint8).reshape(shape)
