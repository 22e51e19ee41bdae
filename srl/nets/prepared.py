"""What acting makes of weights once, such as their order in oneDNN, and keeps until there are others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import nn

_T = TypeVar("_T")


class Prepared(Generic[_T]):
    """One thing made of the parameters and buffers of some layers. Neither copied nor saved: it is made again."""

    def __init__(self) -> None:
        self._made_from: Any = None
        self._made: _T | None = None

    def of(self, layers: Sequence[nn.Module], make: Callable[[bool], _T], *key: Hashable) -> _T:
        """What was made for this key or, if the layers have other weights by now, `make(kept)`.

        Optimizers change weights in a way that is not seen here. So nothing is kept outside inference mode, where the layers
        are about to be trained.
        """
        if not torch.is_inference_mode_enabled():
            self.forget()
            return make(False)
        weights = [one for layer in layers for held in (layer._parameters, layer._buffers) for one in held.values()]
        if any(one.is_inference() for one in weights if one is not None):  # their changes are not counted
            return make(False)
        made_from = (key, [(one.data_ptr(), one._version) for one in weights if one is not None])
        if self._made_from != made_from:
            self._made_from, self._made = made_from, make(True)
        return self._made  # type: ignore[return-value]

    def forget(self) -> None:
        """Make it again next time."""
        self._made_from = self._made = None

    def __reduce__(self) -> Any:
        return Prepared, ()
