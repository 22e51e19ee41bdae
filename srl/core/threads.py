"""Threads and memory of the numeric libraries in a process."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

# the libraries read these when they are loaded: set before any import of numpy
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def plan(threads: int) -> dict[str, str]:
    """The environment of a process whose libraries may use so many threads."""
    return dict.fromkeys(VARIABLES, str(threads))


def limit_here() -> None:
    """Before numpy is imported: this process too, unless the user has said otherwise. Small products only lose by threads."""
    for name, value in plan(1).items():
        os.environ.setdefault(name, value)


def limit_numpy() -> None:
    """One thread for products in numpy, which may be loaded already. A second one spins while it waits for work: it keeps the
    threads of torch from their cores, and can make an update four times as slow."""
    numpy = importlib.util.find_spec("numpy")
    if numpy is None or numpy.origin is None:
        return
    for file in (Path(numpy.origin).parent.parent / "numpy.libs").glob("*openblas*"):
        library = ctypes.CDLL(str(file))
        for name in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads"):
            if hasattr(library, name):
                getattr(library, name)(1)
                break


def keep_freed_memory() -> None:
    """Let glibc keep up to 256 MB of freed memory, which otherwise every update gets again from the system, page by page."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        for option, value in ((_TRIM_THRESHOLD, 256 << 20), (_MMAP_THRESHOLD, 32 << 20)):
            libc.mallopt(option, value)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of malloc.h."""
