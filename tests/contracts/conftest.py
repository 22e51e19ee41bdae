"""Every stream contract test runs on every transport."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.rig import VIAS, Rig, descriptors


@pytest.fixture(params=VIAS)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A rig; at the end nothing may be left behind."""
    before, threads = descriptors(), threading.active_count()
    made = Rig(request.param)
    yield made
    made.close()
    assert not list(Path("/dev/shm").glob("*srl*"))
    assert threading.active_count() <= threads
    if descriptors() > before:  # a mapping goes with its last view, and views in a cycle with the next collection
        gc.collect()
    assert descriptors() <= before
