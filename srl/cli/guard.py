"""Around every command: standard streams, errors without a traceback, exit codes.

0 done, 1 `srl expect` says no, 2 user error, 3 failure, 4 stalled, 75 preempted (SIGTERM, SIGUSR1), 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from srl.core.errors import SrlError
from srl.core.threads import limit_here


def guarded(main: Callable[[list[str]], int], argv: Sequence[str]) -> int:
    """Run a command; a UserError is printed without a traceback unless `--trace` is given."""
    words = [word for word in argv if word != "--trace"]
    trace = len(words) < len(argv)
    _open_standard_streams()
    limit_here()
    if (here := str(Path.cwd())) not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # the script `srl` finds modules where `python -m srl` does
    try:
        return main(words)
    except SrlError as error:
        if trace:
            raise
        print(error.format(), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        if trace:
            raise
        return 130
    except BrokenPipeError:  # `srl list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _open_standard_streams() -> None:
    """Daemons and some schedulers start programs with 0, 1 and 2 closed; the next files opened must not become these."""
    for number, (name, mode) in enumerate([("stdin", "r"), ("stdout", "w"), ("stderr", "w")]):
        try:
            os.fstat(number)
        except OSError:
            file = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            os.set_inheritable(file, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
