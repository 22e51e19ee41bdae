"""The other commands: `python -m srl COMMAND`, or `srl COMMAND`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence

from srl.cli.guard import guarded
from srl.cli.verbs import VERBS
from srl.core.errors import UserError
from srl.core.load import nearest


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
