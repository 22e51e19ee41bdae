"""The other commands: `python -m srl VERB`, or `srl VERB`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence

from srl.cli.guard import guarded
from srl.core.errors import UserError
from srl.core.load import nearest

VERBS: dict[str, tuple[str, str]] = {
    "launch": ("srl.cli.launch:run_command", "run an experiment; the same as python -m srl.launch"),
    "list": ("srl.cli.look:list_", "the experiments there are, and what can be named in one"),
    "graph": ("srl.cli.look:graph", "how an experiment, or a run, is wired: text or --mermaid"),
    "check": ("srl.cli.look:check", "check an experiment without starting it; check env NAME tries an env alone"),
    "expect": ("srl.cli.expect:expect", "run an experiment with several seeds: does it reach what its file says?"),
    "eval": ("srl.cli.play:evaluate", "play episodes with a run's policy and print what came out"),
    "play": ("srl.cli.play:play", "watch a run's policy: --record FILE.mp4"),
    "bench": ("srl.cli.bench:bench", "bench limit experiment=NAME: what this machine could reach, and what it does"),
    "status": ("srl.cli.status:status", "runs and how they stand"),
    "doctor": ("srl.cli.status:doctor", "this machine and installation"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns its exit code."""
    return guarded(_main, sys.argv[1:] if argv is None else argv)


def _main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if argv[0] == "--version":
        import srl

        print(srl.__version__)
        return 0
    verb, *rest = argv
    if verb not in VERBS:
        error = UserError(f"srl has no command '{verb}'")
        if near := nearest(verb, list(VERBS)):
            error.add("did you mean", f"srl {near}?")
        raise error.add("commands", ", ".join(VERBS))
    module, _, name = VERBS[verb][0].partition(":")
    command: Callable[[list[str]], int] = getattr(importlib.import_module(module), name)
    return command(rest)


def _help() -> str:
    wide = max(map(len, VERBS))
    rows = [f"  srl {verb:<{wide}}  {about}" for verb, (_, about) in VERBS.items()]
    return "\n".join(["Distributed reinforcement learning.", "", *rows, "", "  srl VERB --help says more of each"])


if __name__ == "__main__":
    sys.exit(main())
