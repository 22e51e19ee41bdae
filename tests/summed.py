"""What three ranks add up in tests, and what must come out."""

from __future__ import annotations

from typing import Any

import torch

SIZE = 3
SHAPES: list[tuple[int, ...]] = [(), (1,), (7, 3), (5000,), (3, 40_000)]


def values(rank: int, call: int) -> torch.Tensor:
    made = torch.randn(SHAPES[call % len(SHAPES)], generator=torch.Generator().manual_seed(100 * call + rank))
    return made.double() if call % 3 == 0 else made


def check_sum(sums: Any, index: int, call: int) -> None:
    """The sum of this call is that of all ranks in their order, to the bit."""
    own = values(index, call)
    x = own.t().contiguous().t() if own.ndim == 2 else own  # not contiguous
    wanted = values(0, call)
    for other in range(1, SIZE):
        wanted = wanted + values(other, call)
    assert torch.equal(sums.total(x), wanted) and torch.equal(x, wanted), call
