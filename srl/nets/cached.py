"""What acting makes from weights, such as their order in oneDNN: kept until the weights change."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import nn

_T = TypeVar("_T")


class Cached(Generic[_T]):
    """Something made from the weights of some layers. It is never copied or saved, but made again."""

    def __init__(self) -> None:
        self._made_from: Any = None
        self._made: Any = None

    def of(self, layers: Sequence[nn.Module], make: Callable[[bool], _T], *key: Hashable) -> _T:
        """What `make` has made for this key and these weights. `make` is told whether it is kept.

        The steps of an optimizer cannot be seen here. So nothing is kept outside inference mode, where the layers are about to
        be trained.
        """
        if not torch.is_inference_mode_enabled():
            self.forget()
            return make(False)
        held = [named for layer in layers for named in (layer._parameters, layer._buffers)]
        weights = [one for named in held for one in named.values() if one is not None]
        if any(one.is_inference() for one in weights):  # their changes are not counted
            return make(False)
        made_from = (key, [(one.data_ptr(), one._version) for one in weights])
        if self._made_from != made_from:
            self._made_from, self._made = made_from, make(True)
        made: _T = self._made
        return made

    def forget(self) -> None:
        """Make it again next time."""
        self._made_from = self._made = None

    def __reduce__(self) -> Any:
        return Cached, ()
