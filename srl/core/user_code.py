"""Errors of user code while it is built, with their place."""

from __future__ import annotations

import contextlib
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

from srl.core.errors import Fact, SrlError, UserError

_OURS = str(Path(__file__).resolve().parents[1])


@contextlib.contextmanager
def user_code(headline: str, *facts: Fact) -> Iterator[None]:
    """Report anything raised inside as a UserError with the cause and its place."""
    try:
        yield
    except SrlError:
        raise
    except (Exception, SystemExit) as problem:
        cause = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
        raise UserError(headline, ("cause", cause), ("from", _place(problem)), *facts) from problem


def _place(problem: BaseException) -> str:
    """The innermost line that is the user's own, else the innermost one at all."""
    installed = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")} | {_OURS, "<frozen"})
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(installed)]
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno}"
