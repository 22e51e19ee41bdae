"""Policy distillation (Rusu et al. 2016, Czarnecki et al. 2019): a student acts, and learns to choose as its teacher would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from srl.api.algorithm import Algorithm, Batch, Heads, Metrics, Needs, NeuralPolicy
from srl.api.policy import PolicySpec
from srl.api.slab import Window
from srl.core.errors import UserError
from srl.core.load import option
from srl.core.registry import import_path
from srl.core.schedule import Schedule
from srl.core.spec import differences
from srl.nets.q_policy import QPolicy

_OF_A_RUN = "srl.experts:network"
"""Found by its path, as any component is: what a run folder holds is not known here."""


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """Settings of distillation."""

    teacher: str = option(help="folder of the run whose policy is the teacher")
    which: str = option("best", "its checkpoint: best, latest, or a name")
    divergence: Literal["forward", "reverse"] = option(
        "forward", "forward: KL from teacher to student, covers all that the teacher does; reverse: focuses on what it does most"
    )
    value_weight: float = option(
        0.5, "weight of the squared distance to the teacher's values; 0: do not train the student's values", low=0
    )
    lr: Schedule = option(Schedule(1e-3), "learning rate of Adam", low=0)
    epochs: int = option(2, "passes over a batch", low=1)
    minibatch: int = option(256, "maximum rows per minibatch", low=1)
    window: Window = option(
        Window(), "rows per training sequence: 16, or {burn_in: 8, length: 16}; default: the whole slab if recurrent, else 1"
    )
    max_grad_norm: float | None = option(0.5, "maximum gradient norm; null: no clipping", above=0)


class Distill(Algorithm):
    """Rewards are not used. The rows are the student's own, so that it learns what to do where it gets to."""

    Config = DistillConfig
    config: DistillConfig

    @classmethod
    def needs(cls, config: DistillConfig, spec: PolicySpec) -> Needs:
        return Needs(window=config.window)

    def setup(self) -> None:
        self.teacher: NeuralPolicy = import_path(_OF_A_RUN)(self.config.teacher, self.config.which).to(self.device)
        self.teacher.requires_grad_(False)
        _refuse_other_rows(self.teacher, self.spec, self.config.teacher)
        if isinstance(self.policy, QPolicy):
            raise UserError("distill must have a policy that draws its actions", ("try", "policy=actor_critic"), code="E10")
        if (head := self.policy.value_head) is not None:  # what both heads say is compared on the teacher's scale
            head.rescale(*(self.teacher.value_head.moments if self.teacher.value_head is not None else (0.0, 1.0)))
        self.adam = self.optimizer(self.policy, lr=self.config.lr, clip=self.config.max_grad_norm)

    def update(self, batch: Batch) -> Metrics:
        config = self.config
        same = self.ask(batch)
        passes: list[Tensor] = []
        for mini in batch.minibatches(config.minibatch, config.epochs, config.window):
            kl, error = self.loss(mini, self.policy.unroll(mini), same)
            self.adam.step(kl + config.value_weight * error)
            if mini.last_pass:
                passes.append(torch.stack([kl.detach(), error.detach()]))
        kl, error = torch.stack(passes).mean(0)
        return {"kl": kl, "value_error": error, "lr": config.lr.at(self.clock.progress)}

    @torch.no_grad()
    def ask(self, batch: Batch) -> Heads:
        """Add the teacher's heads `[T, B, ...]` as the column `taught`. Returns those that are the same in every row."""
        heads = self.teacher.unroll(batch)
        rows = {name: head for name, head in heads.items() if isinstance(head, Tensor) and head.shape[:2] == batch.first.shape}
        if "value" in rows and (head := self.teacher.value_head) is not None and self.policy.value_head is None:
            rows["value"] = head.returns(rows["value"])
        batch.add(taught={name: head[:-1] for name, head in rows.items()})
        return {name: head for name, head in heads.items() if name not in rows and name != "memory"}

    def loss(self, batch: Batch, heads: Heads, same: Heads) -> tuple[Tensor, Tensor]:
        """Divergence of student and teacher, and half the squared distance of their values, on the teacher's scale."""
        taught: dict[str, Any] = {**same, **batch.taught}
        teacher, student = self.teacher.dist(taught, batch.mask), self.policy.dist(heads, batch.mask)
        if type(teacher) is not type(student):
            raise UserError(
                f"a {type(student).__name__} cannot be distilled from a {type(teacher).__name__}",
                ("try", "the policy of the teacher's run, such as policy=squashed_gaussian"),
                code="E10",
            )
        kl = teacher.kl(student) if self.config.divergence == "forward" else student.kl(teacher)
        if "value" not in taught or "value" not in heads or not self.config.value_weight:
            return batch.mean(kl, batch.choice), torch.zeros((), device=self.device)
        return batch.mean(kl, batch.choice), batch.mean(0.5 * (heads["value"] - taught["value"]).square())


def _refuse_other_rows(teacher: NeuralPolicy, spec: PolicySpec, run: str) -> None:
    """UserError if the teacher cannot judge the rows of the student."""
    if teacher.memory != {}:
        raise UserError("a teacher must be a policy without memory", ("run", run), code="E10")
    lines = differences(spec.obs, teacher.spec.obs)
    if teacher.spec.action != spec.action:
        lines.append(f"action: expected {spec.action}, got {teacher.spec.action}")
    if lines:
        raise UserError(
            "a teacher must have the observations and actions of its student", ("run", run), ("found", lines[0]), code="E10"
        )
