"""Q-networks: the value of every action, from vectors, images and dicts of both."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from srl.api.batch import Batch
from srl.api.neural import Heads
from srl.api.policy import PolicySpec
from srl.nets.mlp import Mlp, linear
from srl.nets.numpy_q import QConfig
from srl.nets.products import runs_in_numpy
from srl.nets.q_policy import QPolicy
from srl.nets.recurrent import Encoder
from srl.nets.towers import Towers


class QNetwork(QPolicy):
    """With `atoms` its values are the means of distributions over `points`."""

    Config = QConfig
    config: QConfig
    points: Tensor

    def __init__(self, config: QConfig, spec: PolicySpec) -> None:
        super().__init__(config, spec)
        self.encoder = Encoder(spec.obs, config)
        self.tower = QTower(
            (self.encoder.size, *config.hidden), self.actions, config.activation, config.dueling, config.atoms, config.layer_norm
        )
        if config.atoms > 1:
            self.register_buffer("points", torch.linspace(config.returns[0], config.returns[1], config.atoms))

    def unroll(self, batch: Batch) -> Heads:
        out = self.tower(self.encoder(batch.obs))
        if self.config.atoms == 1:
            return {"q": out.squeeze(-1)}
        return {"q": torch.softmax(out, -1) @ self.points, "logits": out, "points": self.points}

    def observe(self, batch: Batch) -> None:
        self.encoder.observe(batch.obs, batch)

    def numpy_twin(self) -> str | None:
        return "srl.nets.numpy_q:NumpyQ" if type(self) is QNetwork and not len(self.encoder.pictures) else None


class QTower(nn.Module):
    """Layers of these sizes over features, and a head with `atoms` numbers for each of `actions` actions."""

    def __init__(
        self, sizes: tuple[int, ...], actions: int, activation: str, dueling: bool = False, atoms: int = 1, norm: bool = False
    ) -> None:
        super().__init__()
        self.dueling, self.norm, self._shape = dueling, norm, (actions, atoms)
        shared = sizes[:-1] if dueling and len(sizes) > 1 else sizes
        self.body = Mlp(shared, activation, norm)
        if dueling:
            own = sizes[len(shared) - 1 :]
            self.advantage_body, self.state_body = Mlp(own, activation, norm), Mlp(own, activation, norm)
            self.advantage, self.state = linear(own[-1], actions * atoms, 0.01), linear(own[-1], atoms, 0.01)
            self._body = Towers((self.body, [])) if self.body.layers else None
            self._heads = Towers((self.advantage_body, [self.advantage]), (self.state_body, [self.state]))
        else:
            self.values = linear(sizes[-1], actions * atoms, 0.01)
            self._heads = Towers((self.body, [self.values]))

    def forward(self, features: Tensor) -> Tensor:
        """From `[..., inputs]` to `[..., actions, atoms]`."""
        fast = not self.norm and runs_in_numpy(features)
        if self.dueling:
            return self._dueling(*(self._split_fast(features) if fast else self._split(features)))
        (values,) = self._heads(features) if fast else (self.values(self.body(features)),)
        return values.view(*values.shape[:-1], *self._shape)

    def _dueling(self, advantage: Tensor, state: Tensor) -> Tensor:
        """Wang et al. 2016: the mean advantage is zero."""
        advantage = advantage.view(*advantage.shape[:-1], *self._shape)
        return state.unsqueeze(-2) + advantage - advantage.mean(-2, keepdim=True)

    def _split_fast(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self._body is not None:
            (x,) = self._body(x)
        advantage, state = self._heads(x)
        return advantage, state

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(x)
        return self.advantage(self.advantage_body(x)), self.state(self.state_body(x))
