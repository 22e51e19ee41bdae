"""Threads of the numeric libraries, which read these variables when they are loaded: set before any import of numpy."""

from __future__ import annotations

import os

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def plan(threads: int) -> dict[str, str]:
    """The environment of a process whose libraries may use so many threads."""
    return dict.fromkeys(VARIABLES, str(threads))


def limit_here() -> None:
    """Before numpy is imported: this process too, unless the user has said otherwise. Small products only lose by threads."""
    for name, value in plan(1).items():
        os.environ.setdefault(name, value)
