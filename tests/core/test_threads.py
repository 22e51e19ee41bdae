"""Threads of the numeric libraries in a process that has loaded them already."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = """
import ctypes, sys
import numpy as np
np.ones((64, 64)) @ np.ones((64, 64))
{then}
print(ctypes.CDLL(sys.argv[1]).scipy_openblas_get_num_threads64_())
"""
LEARNER = """
import torch
from tests.algorithms.slabs import make
make(threads=2)
assert torch.get_num_threads() == 2
"""


@pytest.mark.parametrize("then", ["from srl.core.threads import limit_numpy; limit_numpy()", LEARNER], ids=["here", "learner"])
def test_numpy_that_is_loaded_already_is_limited_to_one_thread(then: str) -> None:
    files = list((Path(np.__file__).parent.parent / "numpy.libs").glob("*openblas*"))
    if not files or not hasattr(ctypes.CDLL(str(files[0])), "scipy_openblas_get_num_threads64_"):
        pytest.skip("this numpy has another BLAS")
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", SCRIPT.format(then=then), str(files[0])]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]
