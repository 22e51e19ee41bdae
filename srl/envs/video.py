"""Write frames to a video file: mp4 (imageio-ffmpeg), else an animated GIF or a strip of images (Pillow)."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srl.core.errors import UserError

Frame = NDArray[np.uint8]

STRIP = 8
"""Pictures in a strip, evenly spaced over the episode."""

PAUSE = 1.0
"""Seconds for which a film holds its last picture."""


def write_video(path: Path, frames: Iterable[Any], fps: float = 30.0) -> Path:
    """Write `frames` as the kind that the suffix names: .mp4, .gif or .png.

    Frames are uint8 [H, W, 3], [H, W, 1] or [H, W], all of one size. The file is written aside: at `path` it is whole or absent.
    """
    writers = {".mp4": _write_mp4, ".gif": _write_gif, ".png": _write_strip}
    if path.suffix not in writers:
        raise UserError(f"cannot write a video to {path.name!r}", ("expected", ".mp4, .gif or .png"))
    if not fps > 0:
        raise UserError(f"a video needs a positive frame rate, not {fps}")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".tmp-{path.name}")
    try:
        writers[path.suffix](aside, _checked(frames), fps)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return path


def record(stem: Path, frames: Iterable[Any], fps: float = 30.0) -> Path:
    """Write `frames` as `stem` with the best suffix that this installation can write."""
    return write_video(stem.with_name(stem.name + best_suffix()), frames, fps)


def best_suffix() -> str:
    """`.mp4` with imageio-ffmpeg, `.gif` with Pillow alone."""
    return ".mp4" if importlib.util.find_spec("imageio_ffmpeg") else ".gif"


def _checked(frames: Iterable[Any]) -> Iterator[Frame]:
    """RGB frames; grey ones are spread over the three channels."""
    shape: tuple[int, ...] | None = None
    for index, frame in enumerate(frames):
        picture = np.asarray(frame)
        if picture.ndim == 2:
            picture = picture[:, :, None]
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] not in (1, 3):
            found = f"{picture.dtype} {np.shape(frame)}"
            raise UserError(
                f"frame {index} of the video is not an image", ("found", found), ("expected", "uint8 (height, width, 3)")
            )
        if shape is not None and picture.shape != shape:
            raise UserError(
                f"frame {index} of the video has another size", ("found", str(picture.shape)), ("expected", str(shape))
            )
        shape = picture.shape
        yield np.ascontiguousarray(np.broadcast_to(picture, (*shape[:2], 3)))
    if shape is None:
        raise UserError("a video needs at least one frame", ("try", "render_mode='rgb_array' for the env"))


def _write_mp4(path: Path, frames: Iterator[Frame], fps: float) -> None:
    ffmpeg = _module("imageio_ffmpeg", "imageio-ffmpeg", ", or a file that ends in .gif or .png")
    first = _even(next(frames))
    height, width, _ = first.shape
    writer = ffmpeg.write_frames(str(path), (width, height), fps=fps, macro_block_size=2, ffmpeg_log_level="error")
    writer.send(None)
    try:
        writer.send(first)
        frame = first
        for picture in frames:
            frame = _even(picture)
            writer.send(frame)
        for _ in range(round(PAUSE * fps)):
            writer.send(frame)
    finally:
        writer.close()


def _even(frame: Frame) -> Frame:
    """H.264 halves the colour planes: sides must be even, so the last row or column is doubled."""
    odd = [(0, size % 2) for size in frame.shape[:2]]
    return np.ascontiguousarray(np.pad(frame, [*odd, (0, 0)], mode="edge"))


def _write_gif(path: Path, frames: Iterator[Frame], fps: float) -> None:
    image = _module("PIL.Image", "pillow")
    pictures = [image.fromarray(frame) for frame in frames]
    each = max(20, round(1000 / fps))  # shorter than 20 ms is shown slower by most viewers
    duration = [each] * (len(pictures) - 1) + [each + round(1000 * PAUSE)]
    pictures[0].save(path, "GIF", save_all=True, append_images=pictures[1:], duration=duration, loop=0)


def _write_strip(path: Path, frames: Iterator[Frame], fps: float) -> None:
    image = _module("PIL.Image", "pillow")
    pictures = list(frames)
    chosen = np.unique(np.linspace(0, len(pictures) - 1, STRIP).round().astype(int))
    image.fromarray(np.concatenate([pictures[index] for index in chosen], axis=1)).save(path, "PNG")


def _module(name: str, package: str, otherwise: str = "") -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        hint = f"pip install 'really-scalable-rl[video]'{otherwise}"
        raise UserError(f"writing this video needs the package {package}", ("found", str(error)), ("try", hint)) from error
