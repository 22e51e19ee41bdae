"""`srl eval RUN` and `srl play RUN`: from the run folder alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

from srl.cli.parsing import Parser
from srl.core.errors import UserError


def evaluate(argv: list[str]) -> int:
    """Means over episodes; `--cross-play OTHER` lets the policies of two runs meet."""
    parser = Parser(prog="srl eval", description="play episodes with a run's policy and print what came out")
    parser.add_argument("run", help="a run folder, or one above it: its newest run")
    parser.add_argument("--checkpoint", default="best", help="best, latest, step_000100000 (default: best)")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--envs", type=int, default=None, help="envs side by side")
    parser.add_argument("--sampled", action="store_true", help="drawn actions, as in training")
    parser.add_argument("--cross-play", metavar="RUN", help="each policy of this run against the others of that one")
    given = parser.parse_args(argv)
    from srl.loaded import LoadedRun, load_run

    run = load_run(given.run)
    other: LoadedRun | None = load_run(given.cross_play) if given.cross_play else None
    if other is None:
        result = run.evaluate(given.checkpoint, episodes=given.episodes, envs=given.envs, greedy=not given.sampled)
        print("\n".join(_rows(result)))
        return 0
    names = list(run.derived.players)
    if len(names) < 2 or list(other.derived.players) != names:
        raise UserError(
            "cross play needs two runs with the same policies, and more than one of them",
            (str(run.folder), ", ".join(names)),
            (str(other.folder), ", ".join(other.derived.players)),
        )
    for name in names:
        against = {key: other.policy(given.checkpoint, name=key) for key in names if key != name}
        result = run.evaluate(
            given.checkpoint, episodes=given.episodes, envs=given.envs, greedy=not given.sampled, against=against
        )
        print(f"{name} of {run.folder} against {', '.join(against)} of {other.folder}")
        print("\n".join(f"  {row}" for row in _rows(result)))
    return 0


def play(argv: list[str]) -> int:
    """Write a video; without `--record` into the run's own folder of videos."""
    parser = Parser(prog="srl play", description="watch a run's policy")
    parser.add_argument("run", help="a run folder, or one above it: its newest run")
    parser.add_argument("--record", metavar="FILE", type=Path, help=".mp4, .gif or .png (default: videos/ of the run)")
    parser.add_argument("--checkpoint", default="best", help="best, latest, step_000100000 (default: best)")
    parser.add_argument("--episodes", type=int, default=1)
    parser.add_argument("--fps", type=float, default=30.0)
    parser.add_argument("--sampled", action="store_true", help="drawn actions, as in training")
    given = parser.parse_args(argv)
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pictures need no window, nor SDL's complaint that there is none
    from srl.loaded import load_run
    from srl.observe.video import record, write_video

    run = load_run(given.run)
    frames = run.play(given.checkpoint, episodes=given.episodes, greedy=not given.sampled)
    if given.record is not None:
        path = write_video(given.record, frames, given.fps)
    else:
        path = record(run.folder / "videos" / f"play-{time.strftime('%Y%m%d-%H%M%S')}", frames, given.fps)
    print(path)
    return 0


def _rows(result: dict[str, float]) -> list[str]:
    wide = max(map(len, result), default=0)
    return [f"{name:<{wide}}  {value:.4g}" for name, value in result.items()]
