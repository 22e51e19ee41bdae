"""One flat tensor for all parameters and one for all gradients: clipping and Adam are one operation each."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from srl.api.algorithm import Clock
from srl.api.batch import Ranks
from srl.core.schedule import Schedule


def flatten(parameters: Iterable[nn.Parameter]) -> tuple[Tensor, Tensor] | None:
    """Make the parameters and their gradients views of two flat tensors; None if some belong to other flat tensors."""
    members = list(parameters)
    if any(getattr(one, "_is_flat", False) for one in members):
        return None
    flat = torch.cat([one.detach().reshape(-1) for one in members])
    grad = torch.zeros_like(flat)
    start = 0
    for one in members:
        stop = start + one.numel()
        one.data = flat[start:stop].view(one.shape)
        one.grad = grad[start:stop].view(one.shape)
        one._is_flat = True  # type: ignore[attr-defined]
        start = stop
    return flat, grad


class FlatAdam:
    """Adam for all parameters of some modules at once. Parameters that another one made flat are stepped as a list."""

    def __init__(
        self,
        parameters: list[nn.Parameter],
        clock: Clock,
        *,
        lr: float | Schedule,
        clip: float | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-5,
        ranks: Ranks | None = None,
    ) -> None:
        self.schedule = lr if isinstance(lr, Schedule) else Schedule(lr)
        self.clip = clip
        self.betas, self.eps = betas, eps
        self.norm = torch.zeros(())
        self._clock = clock
        self._ranks = ranks
        flat = flatten(parameters)
        if flat is not None:
            self.values, self.grads = [flat[0]], [flat[1]]
        else:
            self.values = [one.data for one in parameters]
            for one in parameters:
                one.grad = torch.zeros_like(one) if one.grad is None else one.grad
            self.grads = [one.grad for one in parameters if one.grad is not None]
        self._views = [(one, one.grad) for one in parameters]
        self.first = [torch.zeros_like(one) for one in self.values]
        self.second = [torch.zeros_like(one) for one in self.values]
        self.steps = [torch.zeros((), device=one.device) for one in self.values]

    @property
    def lr(self) -> float:
        """The rate of the next step."""
        return self.schedule.at(self._clock.progress)

    def zero(self) -> None:
        """Forget the gradient."""
        for grad in self.grads:
            grad.zero_()

    def step(self, loss: Tensor) -> None:
        """Backward, sum over ranks, clip, step."""
        self.zero()
        loss.backward()  # type: ignore[no-untyped-call]
        self._collect()
        self.apply()

    @torch.no_grad()
    def apply(self) -> None:
        """Step with the gradient that is there."""
        if self._ranks is not None:
            for grad in self.grads:
                self._ranks.total(grad)
        scale = None
        if self.clip is not None:
            norms = [torch.linalg.vector_norm(grad) for grad in self.grads]
            self.norm = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
            scale = ((self.norm + 1e-6) / self.clip).clamp_(min=1.0)
        for step in self.steps:
            step += 1
        torch._fused_adam_(
            self.values, self.grads, self.first, self.second, [], self.steps,
            lr=self.lr, beta1=self.betas[0], beta2=self.betas[1], weight_decay=0.0, eps=self.eps,
            amsgrad=False, maximize=False, grad_scale=scale,
        )  # fmt: skip

    def _collect(self) -> None:
        """Take back gradients that somebody set free (`module.zero_grad()`), or they would be lost."""
        for parameter, view in self._views:
            if parameter.grad is not view and view is not None:
                if parameter.grad is not None:
                    view.copy_(parameter.grad)
                parameter.grad = view

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        named: dict[str, Tensor] = {}
        for i in range(len(self.values)):
            named |= {f"{i}.first": self.first[i], f"{i}.second": self.second[i], f"{i}.steps": self.steps[i]}
        return named
