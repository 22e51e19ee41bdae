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
from srl.core.threads import limit_numpy
np.ones((64, 64)) @ np.ones((64, 64))
limit_numpy(1)
print(ctypes.CDLL(sys.argv[1]).scipy_openblas_get_num_threads64_())
"""


def test_numpy_that_is_loaded_already_is_limited_too():
    files = list((Path(np.__file__).parent.parent / "numpy.libs").glob("*openblas*"))
    if not files or not hasattr(ctypes.CDLL(str(files[0])), "scipy_openblas_get_num_threads64_"):
        pytest.skip("this numpy has another BLAS")
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(files[0])], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]
