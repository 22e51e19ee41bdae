"""Algorithms whose update has parts: each moves parameters of its own, at the same time as the others or on another device."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from srl.api.algorithm import Algorithm, Metrics, Optimizer
from srl.api.batch import Batch

Tensors: TypeAlias = tuple[Tensor, ...]
Held: TypeAlias = "tuple[nn.Module | Tensor, ...]"
Order: TypeAlias = Literal["simultaneous", "sequential"]


def _nothing(*_: Any) -> Tensors:
    return ()


def _no_metrics(shown: Metrics) -> Metrics:
    return {}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One of two parts of an update. Only `asks` may read parameters of the other part: it runs where these are.

    `given` is what `InParts.begin` returned. Random numbers are drawn by `batch.normal`, the same on every device.
    """

    name: str
    owns: Held
    """What it changes: networks, their targets, parameters."""
    shows: Held
    """What the other part reads of this: parameters only, no buffers."""
    optimizer: Optimizer
    loss: Callable[..., tuple[Tensor, Metrics]]
    """`loss(batch, given, *offered, *answers)`: the loss, and metrics."""
    offers: Callable[..., Tensors] = _nothing
    """`offers(batch, given)`: what the question is about, such as actions. Gradients flow back to it."""
    asks: Callable[..., Tensors] = _nothing
    """`asks(batch, given, *offered)`: the answers, made of parameters of the other part. These get no gradients; where both parts
    are to learn in two threads of one trainer, they must be detached."""
    after: Callable[[Metrics], Metrics] = _no_metrics
    """Once all parts have moved: targets follow. It is given the metrics of the loss, and returns more of them."""
    every: int = 1
    """Updates from one of this part to the next."""
    is_still: bool = True
    """False: computing its loss changes what the other part reads, so that they cannot run at the same time."""

    def gradient(self, batch: Batch, given: Any) -> Metrics:
        """Compute the gradient. What the other part shows is read, not changed."""
        offered = self.offers(batch, given)
        with torch.set_grad_enabled(bool(offered)):
            answers = self.asks(batch, given, *offered)
        return self.descend(batch, given, offered, answers)

    def descend(self, batch: Batch, given: Any, offered: Tensors, answers: Tensors) -> Metrics:
        """The gradient, once the answers are there."""
        loss, shown = self.loss(batch, given, *offered, *answers)
        self.optimizer.backward(loss)
        return shown

    @property
    def does_ask(self) -> bool:
        """Whether it needs anything of the other part."""
        return self.asks is not _nothing

    @property
    def does_offer(self) -> bool:
        """Whether its question is about something of its own."""
        return self.offers is not _nothing

    def is_due(self, update: int) -> bool:
        """Whether it moves at this update."""
        return update % self.every == 0


class InParts(Algorithm):
    """`setup` and `parts` are enough; the learner decides what runs where, and in which order."""

    order: Order = "simultaneous"
    """simultaneous: all gradients by the parameters before the update. sequential: each part sees those before it moved."""

    @abstractmethod
    def parts(self) -> tuple[Part, Part]:
        """Both, asked once after `setup`. The last one owns the policy."""

    def begin(self, batch: Batch) -> Any:
        """What both parts need, computed wherever one of them runs."""
        return None

    @cached_property
    def made_parts(self) -> tuple[Part, Part]:
        """The parts of this algorithm."""
        return self.parts()

    def update(self, batch: Batch) -> Metrics:
        given = self.begin(batch)
        parts = [part for part in self.made_parts if part.is_due(self.clock.updates)]
        if self.order == "sequential":
            shown = []
            for part in parts:
                shown.append(part.gradient(batch, given))
                part.optimizer.apply()
        else:
            learned = [partial(part.gradient, batch, given) for part in parts]
            if all(part.is_still for part in parts):  # the last part first: what it leaves in gradients of the other is cleared
                shown = self.together(*reversed(learned))[::-1]
            else:
                shown = [learn() for learn in learned]
            for part in parts:
                part.optimizer.apply()
        found: dict[str, float | Tensor] = {}
        for part, metrics in zip(parts, shown, strict=True):
            found |= {**metrics, **part.after(metrics)}
        return found
