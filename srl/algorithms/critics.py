"""Critics of state and action: several side by side, with or without target networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from srl.api.batch import Batch
from srl.core.errors import SettingError
from srl.core.load import option
from srl.core.machine import in_half
from srl.nets.ensemble import Ensemble
from srl.nets.numpy_mlp import WIDEST, check_weights
from srl.nets.target import Target


@dataclass(frozen=True, kw_only=True)
class CriticConfig:
    """Sizes of the critics, and what their targets come from."""

    hidden: tuple[int, ...] = option((256, 256), "sizes of the hidden layers", low=1, high=WIDEST)
    activation: Literal["relu", "tanh", "elu"] = option("relu", "activation after every hidden layer")
    norm: Literal["no", "layer", "batch"] = option(
        "no", "normalization before every activation; batch: also of the inputs (CrossQ)"
    )
    half: Literal["auto"] | bool = option(False, "matrix products in bfloat16; auto: on CPUs that support it")
    tau: float | None = option(
        0.005, "how far target networks move towards the critics at each update; null: no target networks", above=0, high=1
    )

    def __post_init__(self) -> None:
        check_weights("hidden", self.hidden)
        if self.norm == "batch" and self.tau is not None:
            raise SettingError("norm", "cannot be batch with target networks", ("try", "tau: null, as in CrossQ"))


class Critics(nn.Module):
    """`count` functions of vectors `[..., inputs]` and actions `[..., size]`. Values are `[count, ...]`."""

    def __init__(self, config: CriticConfig, inputs: int, count: int) -> None:
        """`inputs`: numbers of a vector and an action together."""
        super().__init__()
        self.config = config
        self.net = Ensemble(
            (inputs, *config.hidden, 1), count, activation=config.activation, norm=config.norm, half=in_half(config.half)
        )
        self.target = Target(self.net) if config.tau is not None else None

    def forward(self, vector: Tensor, action: Tensor, *, only: int | None = None) -> Tensor:
        """What an actor climbs: gradients reach the action, never the critics. `only`: of so many."""
        value: Tensor = self.net(torch.cat((vector, action), -1), frozen=True, only=only).squeeze(-1)
        return value

    def pair(self, vector: Tensor, action: Tensor, beyond: Tensor) -> tuple[Tensor, Tensor]:
        """Values of the rows `[0]` of `vector`, and of the rows behind them with the actions `beyond`, without gradients."""
        now = torch.cat((vector[0], action), -1)
        after = torch.cat((vector[1], beyond), -1)
        if self.config.norm == "batch":  # both in one pass, so that they share the statistics of the batch
            values = self.net(torch.stack((now, after)))[..., 0]
            return values[:, 0], values[:, 1].detach()
        with torch.no_grad():
            values = (self.net if self.target is None else self.target)(after).squeeze(-1)
        return self.net(now).squeeze(-1), values

    @property
    def is_still(self) -> bool:
        """True if a pass changes nothing, so that two may run together."""
        return self.config.norm != "batch"

    def follow(self) -> None:
        """Move the target networks."""
        if self.target is not None and self.config.tau is not None:
            self.target.follow(self.config.tau)


def least(values: Tensor) -> Tensor:
    """The smallest of the critics, `[count, ...]` -> `[...]`."""
    return values.min(0).values


def squared_error(batch: Batch, values: Tensor, target: Tensor) -> Tensor:
    """Half the mean squared error, summed over the critics `[count, B]`; rows of a prioritised replay have weights."""
    error: Tensor = _HalfSquares.apply(values, target)  # type: ignore[no-untyped-call]
    return batch.mean((error * batch.weight)[None])


class _HalfSquares(torch.autograd.Function):
    """`0.5 * (values - target) ** 2`, summed over the critics."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, target: Tensor) -> Tensor:
        error = values - target
        ctx.save_for_backward(error)
        return (error * error).sum(0).mul_(0.5)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (error,) = ctx.saved_tensors
        return error * grad, None
