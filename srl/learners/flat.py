"""Optimizers over one flat tensor for all parameters and one for all gradients: clipping and a step are one operation each."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from srl.api.algorithm import Clock
from srl.api.batch import Ranks
from srl.api.flat import flatten
from srl.core.errors import RunError
from srl.core.schedule import Schedule


class FlatOptimizer(ABC):
    """Steps all parameters of some modules at once. Parameters that another one made flat are stepped as a list."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        clock: Clock,
        *,
        lr: float | Schedule,
        clip: float | None = None,
        eps: float,
        weight_decay: float = 0.0,
        ranks: Ranks | None = None,
        average: bool = False,
    ) -> None:
        self.schedule = lr if isinstance(lr, Schedule) else Schedule(lr)
        self.clip = clip
        self.eps, self.weight_decay = eps, weight_decay
        self.norm = torch.zeros(())
        self._loss = torch.zeros(())
        self._clock = clock
        self._taken = 0
        self._ranks = ranks
        self._apart = False
        """The gradient is that of this rank alone."""
        self._share = 1.0 / ranks.size if ranks is not None and average else 1.0
        flat = flatten(parameters)
        if flat is not None:
            self.values, self.grads = [flat[0]], [flat[1]]
        else:
            self.values = [one.data for one in parameters]
            for one in parameters:
                one.grad = torch.zeros_like(one) if one.grad is None else one.grad
            self.grads = [one.grad for one in parameters if one.grad is not None]
        self._views = [(one, one.grad) for one in parameters]
        self.places = {one.data_ptr() for one in parameters}
        """Where its parameters lie."""

    @property
    def lr(self) -> float:
        """The rate of the next step."""
        return self.schedule.at(self._clock.progress)

    @property
    @abstractmethod
    def moments(self) -> dict[str, list[Tensor]]:
        """What a checkpoint keeps, for each of `values`."""

    @abstractmethod
    def _step(self, scale: Tensor | None) -> None:
        """Change `values` by `grads`, which are to be divided by `scale` first."""

    def step(self, loss: Tensor) -> None:
        """Backward, sum over ranks, clip, step."""
        self.backward(loss)
        self.apply()

    def backward(self, loss: Tensor) -> None:
        """Compute the gradient."""
        for grad in self.grads:
            grad.zero_()
        _backward(loss)
        self._collect()
        self._apart = self._ranks is not None
        self._loss = loss.detach()

    def apply(self) -> None:
        """Step with the gradient that is there. RunError if it is not finite: nothing is changed then."""
        loss = self._loss
        if self._ranks is not None:
            sum_gradients([self], self._ranks)
        norms = [torch.linalg.vector_norm(grad) for grad in self.grads]
        self.norm = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
        if not math.isfinite(norm := float(self.norm)):
            found = [("the loss", float(loss))] if not math.isfinite(float(loss)) else []
            name, value = [*found, ("the norm of the gradient", norm)][0]
            raise RunError(f"{name} is {value}", code="R05")
        self._taken += 1
        self._clock.steps = max(self._clock.steps, self._taken)
        scale = 1.0 if self.clip is None else (np.float32(norm) + np.float32(1e-6)) / np.float32(self.clip)
        self._step(self.norm.new_tensor(scale) if scale > 1.0 else None)

    def _collect(self) -> None:
        """Restore gradients that were replaced (by `module.zero_grad()`), or they would be lost."""
        for parameter, view in self._views:
            if parameter.grad is not view and view is not None:
                if parameter.grad is not None:
                    view.copy_(parameter.grad)
                parameter.grad = view

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps, by name."""
        return {f"{i}.{name}": one for name, held in self.moments.items() for i, one in enumerate(held)}


def sum_gradients(optimizers: Iterable[FlatOptimizer], ranks: Ranks) -> None:
    """Make the gradients those of all ranks, in one message."""
    apart = [one for one in optimizers if one._apart]
    parts = [grad if one._share == 1.0 else grad.mul_(one._share) for one in apart for grad in one.grads]
    if len(parts) == 1:
        ranks.total(parts[0])
    elif parts:
        flat = ranks.total(torch.cat([part.flatten() for part in parts]))
        for part, total in zip(parts, torch.split(flat, [part.numel() for part in parts]), strict=True):
            part.copy_(total.view_as(part))
    for one in apart:
        one._apart = False


def _backward(loss: Tensor) -> None:
    """`loss.backward()` without its checks, which take a tenth of the time of a small network's backward."""
    if loss.numel() != 1 or not loss.requires_grad:
        loss.backward()  # type: ignore[no-untyped-call]
    else:
        _ENGINE.run_backward((loss,), (torch.ones_like(loss),), False, False, (), allow_unreachable=True, accumulate_grad=True)


_ENGINE: Any = torch.autograd.Variable._execution_engine


class FlatAdam(FlatOptimizer):
    """Adam, or AdamW with `decoupled` weight decay."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        clock: Clock,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-5,
        decoupled: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(parameters, clock, eps=eps, **settings)
        self.betas = betas
        self._fused = torch._fused_adamw_ if decoupled else torch._fused_adam_
        self.first = [torch.zeros_like(one) for one in self.values]
        self.second = [torch.zeros_like(one) for one in self.values]
        self.steps = [torch.zeros((), device=one.device) for one in self.values]

    @property
    def moments(self) -> dict[str, list[Tensor]]:
        return {"first": self.first, "second": self.second, "steps": self.steps}

    def _step(self, scale: Tensor | None) -> None:
        for step in self.steps:
            step += 1
        self._fused(
            self.values, self.grads, self.first, self.second, [], self.steps,
            lr=self.lr, beta1=self.betas[0], beta2=self.betas[1], weight_decay=self.weight_decay, eps=self.eps,
            amsgrad=False, maximize=False, grad_scale=scale,
        )  # fmt: skip


class FlatRMSProp(FlatOptimizer):
    """RMSProp, as torch.optim has it."""

    def __init__(
        self, parameters: Sequence[Tensor], clock: Clock, *, alpha: float = 0.99, eps: float = 1e-8, momentum: float = 0.0,
        **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__(parameters, clock, eps=eps, **settings)
        self.alpha, self.momentum = alpha, momentum
        self.square = [torch.zeros_like(one) for one in self.values]
        self.moving = [torch.zeros_like(one) for one in self.values] if momentum else []

    @property
    def moments(self) -> dict[str, list[Tensor]]:
        return {"square": self.square, "moving": self.moving}

    def _step(self, scale: Tensor | None) -> None:
        for i, (value, grad, square) in enumerate(zip(self.values, self.grads, self.square, strict=True)):
            if scale is not None:
                grad.div_(scale)
            if self.weight_decay:
                grad.add_(value, alpha=self.weight_decay)
            square.mul_(self.alpha).addcmul_(grad, grad, value=1.0 - self.alpha)
            step = grad / (square.sqrt() + self.eps)
            if self.moving:
                step = self.moving[i].mul_(self.momentum).add_(step)
            value.add_(step, alpha=-self.lr)


KINDS: dict[str, tuple[type[FlatOptimizer], dict[str, Any]]] = {
    "adam": (FlatAdam, {}),
    "adamw": (FlatAdam, {"decoupled": True}),
    "rmsprop": (FlatRMSProp, {}),
}
"""What `Algorithm.optimizer(kind=...)` makes."""
