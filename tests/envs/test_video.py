"""Frames become a file that a player reads; what is missing is named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from srl.core.errors import UserError
from srl.envs.video import record, write_video


def frames(number: int = 12, height: int = 33, width: int = 47) -> Iterator[np.ndarray[Any, Any]]:
    """A white bar that moves to the right over red; odd sizes on purpose."""
    for index in range(number):
        frame = np.zeros((height, width, 3), np.uint8)
        frame[:, :, 0] = 200
        frame[:, 3 * index : 3 * index + 6] = 255
        yield frame


def test_an_mp4_has_every_frame_and_holds_the_last_for_a_second(tmp_path: Path) -> None:
    import imageio_ffmpeg

    path = write_video(tmp_path / "videos" / "episode.mp4", frames(), fps=10)
    play = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    played = subprocess.run(play, check=True, capture_output=True)
    assert b"48x34" in played.stderr and b" 10 fps" in played.stderr
    pictures = np.frombuffer(played.stdout, np.uint8).reshape(12 + 10, 34, 48, 3)
    assert abs(pictures[11].astype(int) - pictures[21]).max() < 12
    for index in (0, 11):
        assert pictures[index][16, 3 * index + 3].min() > 180  # the bar is where it was drawn
        assert pictures[index][16, (3 * index + 24) % 47, 1] < 90
    assert [file.name for file in path.parent.iterdir()] == ["episode.mp4"]


def test_a_gif_has_every_frame(tmp_path: Path) -> None:
    with Image.open(write_video(tmp_path / "episode.gif", frames(), fps=10)) as image:
        assert getattr(image, "n_frames", 1) == 12
        assert image.info["duration"] == 100 and image.size == (47, 33)
        image.seek(11)
        assert image.info["duration"] == 1100


def test_a_strip_has_eight_pictures(tmp_path: Path) -> None:
    with Image.open(write_video(tmp_path / "episode.png", frames(30))) as image:
        assert image.size == (8 * 47, 33)
    with Image.open(write_video(tmp_path / "short.png", frames(3))) as image:
        assert image.size == (3 * 47, 33)


def test_grey_frames_are_shown_as_grey(tmp_path: Path) -> None:
    path = write_video(tmp_path / "grey.png", [np.full((4, 4), 77, np.uint8), np.full((4, 4, 1), 77, np.uint8)])
    with Image.open(path) as image:
        assert image.mode == "RGB" and image.getpixel((5, 2)) == (77, 77, 77)


@pytest.mark.parametrize(
    ("pictures", "text"),
    [
        ([], "at least one frame"),
        ([np.zeros((4, 4, 3))], r"frame 0 .*\n.*float64 \(4, 4, 3\)\n.*uint8 \(height, width, 3\)"),
        ([np.zeros((4, 4, 3), np.uint8), np.zeros((6, 4, 3), np.uint8)], r"frame 1 .*another size\n.*\(6, 4, 3\)"),
    ],
)
@pytest.mark.parametrize("suffix", ["mp4", "gif", "png"])
def test_what_is_no_picture_is_refused_and_leaves_nothing(tmp_path: Path, suffix: str, pictures: list[Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        write_video(tmp_path / f"a.{suffix}", pictures)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'a\.avi'\n  expected: \.mp4, \.gif or \.png"):
        write_video(tmp_path / "a.avi", frames())


WITHOUT_FFMPEG = """
import sys
from pathlib import Path
import numpy as np
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "imageio_ffmpeg":
            raise ModuleNotFoundError("No module named 'imageio_ffmpeg'", name=name)
sys.meta_path.insert(0, Absent())
from srl.core.errors import UserError
from srl.envs.video import write_video
try:
    write_video(Path(sys.argv[1]) / "a.mp4", [np.zeros((4, 4, 3), np.uint8)])
except UserError as error:
    print(error.format())
"""


def test_a_missing_package_is_named_with_the_extra(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_FFMPEG, str(tmp_path)], check=True, capture_output=True, text=True)
    assert done.stdout == (
        "error[E00]: writing this video needs the package imageio-ffmpeg\n"
        "  found: No module named 'imageio_ffmpeg'\n"
        "  try: pip install 'really-scalable-rl[video]', or a file that ends in .gif or .png\n"
    )


def test_record_picks_the_best_kind_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert record(tmp_path / "step_1.5", frames()).name == "step_1.5.mp4"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert record(tmp_path / "step_1.5", frames()).name == "step_1.5.gif"
