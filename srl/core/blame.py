"""What code of the user raises while it is built, as an error with its place."""

from __future__ import annotations

import contextlib
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

from srl.core.errors import Fact, SrlError, UserError

_OURS = str(Path(__file__).resolve().parents[1])


@contextlib.contextmanager
def blaming(headline: str, *lines: Fact) -> Iterator[None]:
    """Anything that is raised inside becomes a UserError: the headline, the cause, the place, then these lines."""
    try:
        yield
    except SrlError:
        raise
    except (Exception, SystemExit) as problem:
        cause = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
        raise UserError(headline, ("cause", cause), ("from", _place(problem)), *lines) from problem


def _place(problem: BaseException) -> str:
    """The innermost line that is the user's own, else the innermost one at all."""
    installed = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")} | {_OURS, "<frozen"})
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(installed)]
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno}"
