"""The learner on one device: builds the algorithm, feeds it, publishes, and gives and takes its state exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from srl.api.algorithm import Clock, Feedback, Metrics, Optimizer
from srl.api.batch import Batch
from srl.api.parts import InParts
from srl.core.learner import SingleConfig
from srl.core.seeds import generator
from srl.core.threads import keep_freed_memory, limit_numpy
from srl.core.tree import Array
from srl.learners.base import Groups, Task
from srl.learners.flat import KINDS, FlatOptimizer, sum_gradients
from srl.learners.intake import intake_of
from srl.learners.saved import Saved
from srl.learners.state import host, named, restore_state, state_of
from srl.learners.together import Together


class SingleLearner:
    """Drives one algorithm. The trainer sets `clock` before it calls `update`."""

    Config: type = SingleConfig
    knows_ranks = True

    def __init__(self, task: Task, config: Any = None) -> None:
        keep_freed_memory()
        inside = 1 if issubclass(task.algorithm, InParts) else task.threads  # threads are for its parts: decision 25
        if inside != torch.get_num_threads():
            torch.set_num_threads(inside)
        limit_numpy()
        self.task = task
        self.config = config
        self.ranks = ranks = task.ranks
        self.device = torch.device(task.device)
        self.clock = Clock()
        self._optimizers: list[FlatOptimizer] = []
        self._together = Together(task.threads)
        torch.manual_seed(int(generator(task.seed, "init").integers(2**63)))
        self.policy = task.policy(task.policy_config, task.spec).to(self.device)
        if task.weights is not None:
            own = {name: host(one) for name, one in named(self.policy).items()}
            # layers that are not given stay as they are; before the algorithm copies it, as a target or a teacher
            self.policy.load({**own, **task.weights}, 0)
        self.algorithm = task.algorithm(
            config=task.config, policy=self.policy, spec=task.spec, clock=self.clock, device=self.device,
            make_optimizer=self._make_optimizer, together=self._together if ranks is None else self._summed,
        )  # fmt: skip
        if isinstance(self.algorithm, InParts) and config is not None:
            self.algorithm.order = config.order
        self.algorithm.setup()
        if ranks is not None:
            from srl.learners.ranks import refuse_statistics

            refuse_statistics(self.algorithm)
            self._vary()
        self._saved = Saved(self.algorithm)
        needs = task.algorithm.needs(task.config, task.spec)
        self.intake = intake_of(task, config, joint=needs.joint)
        self.tell = self.intake.tell
        self._length = needs.window.length if needs.replay is not None and needs.window.length else task.shape.steps
        """Rows of a column that are trained, without a burn-in."""
        self._published = self.algorithm.published()
        self._sums: dict[str, Any] = {}
        self._counts: dict[str, int] = {}
        self._host_params: dict[str, Array] | None = None

    def update(self, rows: Mapping[str, Any]) -> Feedback | None:
        """Learn from the rows of one batch; their memory is free again when this returns."""
        batch = self.intake.batch(rows, self.clock.updates)
        metrics = self._learn(batch)
        self.clock.rows += batch.passed or self._length * batch.valid.numel() // len(batch.valid)
        self.policy.observe(batch)
        for name, value in metrics.items():
            value = value.detach() if isinstance(value, Tensor) else value
            self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._counts[name] = self._counts.get(name, 0) + 1
        return batch.feedback

    def _learn(self, batch: Batch) -> Metrics:
        return self.algorithm.update(batch)

    def metrics(self) -> dict[str, float]:
        """The means since the last call: the only place that waits for the device."""
        means = {name: float(total) / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return {**means, **self.intake.metrics()}

    def params(self) -> dict[str, Array]:
        """Parameters and buffers of what is published, by name; on CPU they are views of the live ones."""
        if self.device.type != "cpu":
            return {name: tensor.cpu().numpy() for name, tensor in named(self._published).items()}
        if self._host_params is None:
            self._host_params = {name: tensor.numpy() for name, tensor in named(self._published).items()}
        return self._host_params

    def resumable(self) -> bool:
        """True if a checkpoint can be taken now."""
        return self.algorithm.resumable()

    def state(self) -> tuple[Groups, dict[str, Any]]:
        """Copies of all arrays that learning depends on, and the counters."""
        clock = {"env_steps": self.clock.env_steps, "updates": self.clock.updates, "progress": self.clock.progress}
        groups = state_of(self.policy, self._saved, self._optimizers)
        return groups, {"seed": self.task.seed, "clock": clock, "numbers": self._saved.numbers()}

    def restore(self, groups: Mapping[str, Mapping[str, Array]], state: Mapping[str, Any]) -> None:
        """Continue exactly from `state()`; nothing is taken unless everything fits."""
        restore_state(self.policy, self._saved, self._optimizers, groups, state.get("numbers", {}))
        self._vary(int(state["clock"]["updates"]) + 1)
        self.clock.env_steps = int(state["clock"]["env_steps"])
        self.clock.updates = int(state["clock"]["updates"])
        self.clock.progress = float(state["clock"]["progress"])

    def close(self) -> None:
        """End the threads."""
        self._together.close()
        self.intake.close()

    def _summed(self, parts: Sequence[Callable[[], Any]]) -> list[Any]:
        """One after the other, as ranks must agree on the order; then their gradients are summed in one message."""
        done = [part() for part in parts]
        assert self.ranks is not None
        sum_gradients(self._optimizers, self.ranks)
        return done

    def _vary(self, time: int = 0) -> None:
        """Ranks begin with the same weights, and draw different noise from now on."""
        if self.ranks is not None and self.ranks.index:
            torch.manual_seed(int(generator(self.task.seed, "rank", self.ranks.index, time).integers(2**63)))

    def _make_optimizer(self, modules: tuple[nn.Module | Tensor, ...], *, kind: str, **settings: Any) -> Optimizer:
        """Over the parameters of the modules, each once."""
        found: dict[int, Tensor] = {}
        for module in modules:
            members = module.parameters() if isinstance(module, nn.Module) else [module]
            found |= {id(one): one for one in members if one.requires_grad}
        cls, defaults = KINDS[kind]
        made = cls(list(found.values()), self.clock, ranks=self.ranks, **{**defaults, **settings})
        self._optimizers.append(made)
        return made
