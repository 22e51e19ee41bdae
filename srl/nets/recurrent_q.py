"""Recurrent Q-networks: layers over vectors, images and dicts, a GRU or LSTM, the value of every action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from srl.api.batch import Batch
from srl.api.neural import Heads
from srl.api.policy import EncoderConfig, PolicySpec
from srl.core.load import option
from srl.core.machine import in_half
from srl.nets.cells import CELLS
from srl.nets.mlp import Mlp
from srl.nets.numpy_mlp import WIDEST, check_weights
from srl.nets.products import runs_in_numpy
from srl.nets.q_network import QTower
from srl.nets.q_policy import QPolicy
from srl.nets.recurrent import Encoder
from srl.nets.towers import Towers


@dataclass(frozen=True, kw_only=True)
class RecurrentQConfig(EncoderConfig):
    """Settings of the recurrent Q-network."""

    hidden: tuple[int, ...] = option((64,), "sizes of the layers before the cell", low=1, high=WIDEST)
    cell: Literal["gru", "lstm", "none"] = option("gru", "recurrent cell")
    width: int = option(64, "width of the cell", low=1, high=WIDEST)
    activation: Literal["tanh", "relu", "elu"] = option("relu", "activation after every hidden layer")
    layer_norm: bool = option(False, "normalize the outputs of every hidden layer, except the cell, before the activation")
    dueling: bool = option(True, "dueling: after the cell, one layer for the state's value and one for advantages")
    rungs: int = option(1, "number of exploration rates, spread over the envs; see algorithm.ladder", low=1, high=WIDEST)
    half: Literal["auto"] | bool = option(False, "matrix products of the cell in bfloat16; auto: on CPUs that support it")

    def __post_init__(self) -> None:
        check_weights("hidden", (*self.hidden, self.width, self.width))


class RecurrentQ(QPolicy):
    """Heads: `q` and memory."""

    Config = RecurrentQConfig
    config: RecurrentQConfig

    def __init__(self, config: RecurrentQConfig, spec: PolicySpec) -> None:
        super().__init__(config, spec)
        self.encoder = Encoder(spec.obs, config)
        self.body = Mlp((self.encoder.size, *config.hidden), config.activation, config.layer_norm)
        self._body = Towers((self.body, [])) if config.hidden and not config.layer_norm else None
        self.cell = CELLS[config.cell]((self.encoder.size, *config.hidden)[-1], config.width, half=in_half(config.half))
        if config.cell != "none":
            self.memory = {"cell": self.cell.leaf_of(config.width)}
        after = (config.width,) if config.dueling else ()
        self.tower = QTower((config.width, *after), self.actions, config.activation, config.dueling, norm=config.layer_norm)

    def unroll(self, batch: Batch) -> Heads:
        first, lead = batch.first, batch.first.shape
        x = self._layers(self.encoder(batch.obs)).flatten(1, -2)  # each agent is a sequence of its own
        restarts = first.flatten(1)
        before = batch.memory["cell"].reshape(restarts.shape[1], -1) if self.memory != {} else None
        stop = None if batch.detach_at is None else batch.detach_at.flatten(1)
        y, memory = self.cell(x, before, restarts, stop)
        q = self.tower(y).view(*lead, self.actions)
        return {"q": q, "memory": {"cell": memory.view(*lead[1:], -1)} if self.memory != {} else {}}

    def observe(self, batch: Batch) -> None:
        self.encoder.observe(batch.obs, batch)

    def _layers(self, features: Tensor) -> Tensor:
        if self._body is None or not runs_in_numpy(features):
            out: Tensor = self.body(features)
            return out
        (x,) = self._body(features)
        return x
