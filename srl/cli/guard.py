"""Errors as a person should see them, and the exit code: 0 done, 2 user error, 3 failure, 4 stalled, 130 interrupted.

1 is a no: `srl expect` found an expectation that does not hold.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from srl.core.errors import SrlError
from srl.core.threads import limit_here

INTERRUPTED = 130


def guarded(main: Callable[[list[str]], int], argv: Sequence[str]) -> int:
    """Run a command; a UserError is printed without a traceback unless `--trace` is given."""
    words = [word for word in argv if word != "--trace"]
    trace = len(words) < len(argv)
    limit_here()
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
        return INTERRUPTED
    except BrokenPipeError:  # `srl list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
