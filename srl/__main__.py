"""The other commands: `python -m srl COMMAND`, or `srl COMMAND`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence

from srl.cli.guard import guarded
from srl.core.errors import UserError
from srl.core.load import nearest

VERBS: dict[str, tuple[str, str]] = {
    "launch": ("srl.cli.launch:run_command", "run an experiment; same as python -m srl.launch"),
    "list": ("srl.cli.look:list_", "list the experiments, and the names that they can use"),
    "graph": ("srl.cli.look:graph", "show workers and streams of an experiment or a run, as text or --mermaid"),
    "check": (
        "srl.cli.check:check",
        "check an experiment without starting it; check env, policy or algorithm NAME checks one of these alone",
    ),
    "expect": ("srl.cli.expect:expect", "run an experiment with several seeds and check that it reaches the return in its file"),
    "eval": ("srl.cli.play:evaluate", "play episodes with the policy of a run and print the means"),
    "play": ("srl.cli.play:play", "record a video of episodes of a run: --record FILE.mp4"),
    "export": ("srl.cli.export:export", "write the policy of a run as an ONNX or PT2 program for other software"),
    "tag": ("srl.cli.play:tag", "keep a version of a run under a name, for load=RUN@NAME and --checkpoint NAME"),
    "watch": ("srl.cli.watch:watch", "show the newest policy of a run at play, in a window or a browser; Ctrl-C detaches"),
    "bench": (
        "srl.cli.bench:bench",
        "bench limit experiment=NAME: measure the highest possible and the achieved rate; bench scale: of a run on many hosts",
    ),
    "dashboard": (
        "srl.cli.dashboard:dashboard",
        "serve a page about runs, live or ended: graph, curves, workers, films, settings",
    ),
    "report": ("srl.cli.dashboard:report", "write that page to one HTML file, to mail or to keep"),
    "compare": (
        "srl.cli.dashboard:compare",
        "compare runs: settings, curves, final figures with intervals over seeds; --png FILE",
    ),
    "replay": ("srl.cli.recorded:replay", "show what a recording holds, whose rows replay.data=FOLDER trains on"),
    "status": ("srl.cli.status:status", "list the newest runs: state, env steps, return, duration"),
    "stop": ("srl.cli.asking:stop", "end a run that is under way: save, and print the command that resumes"),
    "logs": ("srl.cli.asking:logs", "show the logs of a run's workers, on whatever host they run"),
    "top": ("srl.cli.asking:top", "show rates, hosts and processes of a run, every second"),
    "doctor": ("srl.cli.status:doctor", "check the machine and the installation"),
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
        near = nearest(verb, list(VERBS))
        hint = [("did you mean", f"srl {near}?")] if near else []
        raise UserError(f"srl has no command '{verb}'", *hint, ("commands", ", ".join(VERBS)))
    module, _, name = VERBS[verb][0].partition(":")
    command: Callable[[list[str]], int] = getattr(importlib.import_module(module), name)
    return command(rest)


def _help() -> str:
    wide = max(map(len, VERBS))
    rows = [f"  srl {verb:<{wide}}  {about}" for verb, (_, about) in VERBS.items()]
    return "\n".join(["Distributed reinforcement learning.", "", *rows, "", "  srl COMMAND --help explains each"])


if __name__ == "__main__":
    sys.exit(main())
