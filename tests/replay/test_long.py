"""A ring that is full takes no more memory, however many rows come."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from srl.api.slab import Window
from srl.core.spec import zeros
from srl.replay.store import Store, batch_record, store_bytes
from tests.replay.slow import slab_record

SINGLE = Window(length=1)


def resident() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


@pytest.mark.long
def test_ten_million_transitions_take_the_memory_that_was_announced():
    record, size, columns = slab_record(500, 16, 1), 10_000_000, 16
    before = resident()
    store = Store(record, columns=columns, size=size, window=SINGLE)
    slab, out, rng = zeros(record), zeros(batch_record(record, 256, SINGLE)), np.random.default_rng(0)
    slab["valid"][...] = True
    taken = []
    for _ in range(3):
        for _ in range(size // 8000 + 1):
            store.insert(slab, 0, True)
            store.sample(256, rng, out)
        taken.append(resident() - before)
    announced = store_bytes(record, columns=columns, size=size, window=SINGLE)
    assert len(store) >= size
    assert taken[0] <= 1.01 * announced + 20e6
    assert taken[2] - taken[0] < 5e6
