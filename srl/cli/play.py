"""`srl eval RUN` and `srl play RUN`: from the run folder alone."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srl.cli.parsing import Parser, number
from srl.core.errors import UserError
from srl.core.progress import Progress
from srl.core.text import columns, count, figure

if TYPE_CHECKING:
    from srl.core.tree import Array
    from srl.loaded import Evaluation, LoadedRun


def evaluate(argv: list[str]) -> int:
    """Print means over episodes. `--cross-play`: a matrix of saved versions, `--cross-play RUN`: one run against another."""
    parser = _parser("srl eval", "play episodes with the policy of a run and print the means")
    parser.add_argument(
        "--episodes", type=number, help="episodes per match, rounded up to a multiple of the envs (default: 20; cross-play: 32)"
    )
    parser.add_argument("--envs", type=number, default=None, help="envs stepped in parallel")
    parser.add_argument(
        "--cross-play",
        metavar="RUN",
        nargs="?",
        const="",
        help="without RUN: a matrix of saved versions of one team (rows) against those of the other (columns), also written to"
        " cross_play.json in the run folder; with RUN: each policy of this run against the others of that run",
    )
    parser.add_argument("--versions", type=_versions, default=8, metavar="N", help="versions of each team, or `all` (default: 8)")
    parser.add_argument(
        "--show", metavar="NAME", help="metric in the matrix (default: the one that the env declares, else the return)"
    )
    given = parser.parse_args(argv)
    with Progress("loading the run") as progress:
        _evaluate(given, progress)
    return 0


def _evaluate(given: argparse.Namespace, progress: Progress) -> None:
    from srl.loaded import load_run

    run = load_run(given.run)
    if given.cross_play == "":
        _matrix(run, given, progress)
        return
    given.episodes = given.episodes or 20
    other: LoadedRun | None = load_run(given.cross_play) if given.cross_play else None
    _say_checkpoints(run, given.checkpoint, progress)
    played: dict[str, Any] = {"episodes": given.episodes, "envs": given.envs, "greedy": given.greedy, "tell": progress}
    if other is None:
        result = run.evaluate(given.checkpoint, **played)
        progress.print("\n".join(_lines(result)))
        return
    names = list(run.derived.policies)
    if len(names) < 2 or list(other.derived.policies) != names:
        raise UserError(
            "cross play needs two runs with the same policies, and at least two policies",
            (str(run.folder), ", ".join(names)),
            (str(other.folder), ", ".join(other.derived.policies)),
        )
    _say_checkpoints(other, given.checkpoint, progress)
    for name in names:
        against = {key: other.policy(given.checkpoint, name=key) for key in names if key != name}
        result = run.evaluate(given.checkpoint, against=against, **played)
        progress.print(f"{name} of {run.folder} against {', '.join(against)} of {other.folder}")
        progress.print("\n".join(f"  {line}" for line in _lines(result)))


def play(argv: list[str]) -> int:
    """Write a video; without `--record` into videos/ of the run folder."""
    parser = _parser("srl play", "record a video of episodes played by the policy of a run")
    parser.add_argument("--record", metavar="FILE", type=Path, help=".mp4, .gif or .png (default: videos/ of the run)")
    parser.add_argument("--episodes", type=number, default=1)
    parser.add_argument("--fps", type=float, help="frames per second (default: the speed of the env)")
    given = parser.parse_args(argv)
    from srl.envs.video import record, write_video
    from srl.loaded import load_run

    with Progress("loading the run") as progress:
        run = load_run(given.run)
        _say_checkpoints(run, given.checkpoint, progress)
        fps = run.derived.env.fps if given.fps is None else given.fps
        frames = _counted(run.play(given.checkpoint, episodes=given.episodes, greedy=given.greedy), progress)
        if given.record is not None:
            path = write_video(given.record, frames, fps)
        else:
            path = record(run.folder / "videos" / f"play-{time.strftime('%Y%m%d-%H%M%S')}", frames, fps)
        progress.print(str(path))
    return 0


def _counted(frames: Iterator[Array], progress: Progress) -> Iterator[Array]:
    for done, frame in enumerate(frames):
        progress("pictures", done)
        yield frame


def tag(argv: list[str]) -> int:
    """Keep a version for good, under a name."""
    parser = Parser(
        prog="srl tag", description="keep a version of a run permanently under a name: load=RUN@NAME, --checkpoint NAME"
    )
    parser.add_argument("run", help="a run folder, or a folder of runs for its newest run")
    parser.add_argument("name", help="letters, digits, dots, - and _")
    parser.add_argument("--checkpoint", default="best", help="best, latest, step_000100000 (default: best)")
    parser.add_argument("--policy", help="which policy, if several learn (default: all of them)")
    given = parser.parse_args(argv)
    from srl.loaded import load_run
    from srl.store.weights import tag as write_tag

    run = load_run(given.run)
    sources = run.sources(given.checkpoint)
    if given.policy is not None and given.policy not in sources:
        raise UserError(f"the run has no policy '{given.policy}' that learns", ("policies", ", ".join(sources)))
    for policy, path in sources.items():
        if given.policy in (None, policy):
            print(f"{policy}: {write_tag(run.folder, run.graph.policies, policy, given.name, path)}")
    return 0


def _parser(prog: str, about: str) -> Parser:
    parser = Parser(prog=prog, description=about)
    parser.add_argument("run", help="a run folder, or a folder of runs for its newest run")
    parser.add_argument("--checkpoint", default="best", help="best, latest, step_000100000, a tag (default: best)")
    sampled = "sample actions, as in training (default: as the run was evaluated)"
    parser.add_argument("--sampled", dest="greedy", action="store_const", const=False, help=sampled)
    return parser


def _matrix(run: LoadedRun, given: argparse.Namespace, progress: Progress) -> None:
    from srl.payoff import play_all

    payoff = play_all(
        run,
        episodes=given.episodes or 32,
        versions=given.versions,
        envs=given.envs,
        greedy=given.greedy,
        statistic=given.show,
        show=progress.print,
        tell=progress,
    )
    progress.print(str(payoff.write()))


def _say_checkpoints(run: LoadedRun, which: str, progress: Progress) -> None:
    """`checkpoint runs/cartpole/20250131-120000_s1_a1b2c3/checkpoints/best/step_000074350 (env step 74,350)`"""
    from srl.store.checkpoint import read

    for path in dict.fromkeys(run.sources(which).values()):
        progress.print(f"checkpoint {path} (env step {read(path).step:,})")


def _versions(text: str) -> int | None:
    """At least two of each side: the first and the last."""
    if text == "all":
        return None
    if not text.isdigit() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"{text!r} is neither `all` nor a number of at least 2")
    return int(text)


def _lines(result: Evaluation) -> list[str]:
    """How it was measured, then a line for each number."""
    rows = []
    for name, value in result.items():
        spread = f"± {figure(result.spread[name])}" if name in result.spread else ""
        rows.append((name, figure(value), spread))
    how = "most likely actions" if result.greedy else "sampled actions"
    return [f"{count(result.episodes, 'episode')}, {how}", *columns(rows, right=(1,)).splitlines()]
