"""The learner on one device: builds the algorithm, feeds it, publishes, and gives and takes its state exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from srl.api.algorithm import Algorithm, Clock, Metrics, Optimizer
from srl.api.neural import NeuralPolicy, check_fit
from srl.api.policy import PolicySpec
from srl.api.slab import SlabShape
from srl.core.errors import UserError
from srl.core.schedule import Schedule
from srl.core.seeds import generator
from srl.core.tree import Array
from srl.learners.flat import FlatAdam
from srl.learners.intake import Intake

Groups: TypeAlias = "dict[str, dict[str, Array]]"
RNG = "torch_rng"


class SingleLearner:
    """Drives one algorithm. The trainer sets `clock` before it calls `update`."""

    def __init__(
        self,
        *,
        algorithm: type[Algorithm],
        config: Any,
        policy: type[NeuralPolicy],
        policy_config: Any,
        spec: PolicySpec,
        seed: int,
        shape: SlabShape,
        device: str = "cpu",
        threads: int = 1,
        weights: Mapping[str, Array] | None = None,
    ) -> None:
        if threads != torch.get_num_threads():
            torch.set_num_threads(threads)
        self.device = torch.device(device)
        self.clock = Clock()
        self.between: Callable[[], None] | None = None
        """Called between two minibatches, while the algorithm has the batch."""
        self.seed = seed
        torch.manual_seed(int(generator(seed, "init").integers(2**63)))
        self.policy = policy(policy_config, spec).to(self.device)
        if weights is not None:
            own = {name: _host(one) for name, one in _named(self.policy).items()}
            # layers that are not given stay as they are; before the algorithm copies it, as a target or a teacher
            self.policy.load({**own, **weights}, 0)
        self.algorithm = algorithm(config=config, policy=self.policy, spec=spec, clock=self.clock, driver=self)
        self.algorithm.setup()
        needs = algorithm.needs(config, spec)
        self._intake = Intake(shape, self.device, seed, joint=needs.joint)
        self._published = self.algorithm.published()
        self._sums: dict[str, Any] = {}
        self._counts: dict[str, int] = {}
        self._host: dict[str, Array] | None = None

    def optimizer(self, modules: tuple[nn.Module | Tensor, ...], lr: float | Schedule, clip: float | None) -> Optimizer:
        """Flat Adam over the parameters of the modules, each once."""
        found: dict[int, nn.Parameter] = {}
        for module in modules:
            members = module.parameters() if isinstance(module, nn.Module) else [module]
            found |= {id(one): one for one in members if isinstance(one, nn.Parameter) and one.requires_grad}
        return FlatAdam(list(found.values()), self.clock, lr=lr, clip=clip)

    def update(self, rows: Mapping[str, Any]) -> Metrics:
        """Learn from the rows of one batch; their memory is free again when this returns."""
        batch = self._intake.batch(rows, self.clock.updates, self.between)
        metrics = self.algorithm.update(batch)
        self.policy.observe(batch)
        for name, value in metrics.items():
            value = value.detach() if isinstance(value, Tensor) else value
            self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._counts[name] = self._counts.get(name, 0) + 1
        return metrics

    def metrics(self) -> dict[str, float]:
        """The means since the last call: the only place that waits for the device."""
        means = {name: float(total) / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means

    def params(self) -> dict[str, Array]:
        """Parameters and buffers of what is published, by name; on CPU they are views of the live ones."""
        if self.device.type != "cpu":
            return {name: tensor.cpu().numpy() for name, tensor in _named(self._published).items()}
        if self._host is None:
            self._host = {name: tensor.numpy() for name, tensor in _named(self._published).items()}
        return self._host

    def resumable(self) -> bool:
        """Whether a checkpoint may be taken now."""
        return self.algorithm.resumable()

    def state(self) -> tuple[Groups, dict[str, Any]]:
        """Copies of all arrays that learning depends on, and the counters."""
        groups = {group: {name: _host(one) for name, one in named.items()} for group, named in self._groups().items()}
        groups["algorithm"][RNG] = torch.get_rng_state().numpy().copy()
        clock = {"env_steps": self.clock.env_steps, "updates": self.clock.updates, "progress": self.clock.progress}
        return groups, {"seed": self.seed, "clock": clock}

    @torch.no_grad()
    def restore(self, groups: Mapping[str, Mapping[str, Array]], state: Mapping[str, Any]) -> None:
        """Go on exactly from `state()`; nothing is taken unless everything fits."""
        own = self._groups()
        for group, named in own.items():
            given = {name: array for name, array in groups.get(group, {}).items() if (group, name) != ("algorithm", RNG)}
            check_fit({name: tuple(one.shape) for name, one in named.items()}, given, group)
        for group, named in own.items():
            for name, one in named.items():
                one.copy_(torch.from_numpy(np.array(groups[group][name])))
        rng = groups.get("algorithm", {}).get(RNG)
        if rng is None:
            raise UserError("algorithm: the state of the random generator is missing", ("expected", RNG), code="E09")
        torch.set_rng_state(torch.from_numpy(np.array(rng, np.uint8)))
        self.clock.env_steps = int(state["clock"]["env_steps"])
        self.clock.updates = int(state["clock"]["updates"])
        self.clock.progress = float(state["clock"]["progress"])

    def _groups(self) -> dict[str, dict[str, Tensor]]:
        """The live tensors of a checkpoint: the policy, the optimizers, and what else is set on the algorithm."""
        groups: dict[str, dict[str, Tensor]] = {"policy": _named(self.policy), "optimizer": {}, "algorithm": {}}
        own = set(self.policy.modules())
        for name, value in sorted(vars(self.algorithm).items()):
            if isinstance(value, FlatAdam):
                groups["optimizer"] |= {f"{name}.{key}": one for key, one in value.tensors().items()}
            elif isinstance(value, nn.Module) and value not in own:
                groups["algorithm"] |= {f"{name}.{key}": one for key, one in _named(value).items()}
            elif isinstance(value, Tensor):
                groups["algorithm"][name] = value.detach()
        return groups


def _named(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name, in the order of the module."""
    return {name: one.detach() for name, one in module.state_dict().items()}


def _host(tensor: Tensor) -> Array:
    return np.array(tensor.cpu().numpy())
