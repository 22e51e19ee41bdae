"""Policies answer questions (`Ask`). Torch-free: a policy that learns is a `NeuralPolicy` (api/algorithm.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

from srl.api.env import ActionSpec
from srl.core.load import option
from srl.core.seeds import Rng
from srl.core.spec import TreeSpec
from srl.core.tree import Array, Tree

Bounds: TypeAlias = Literal["clip", "affine", "none"]
"""How a recorded Box action becomes the env's: clipped to its bounds, [-1, 1] mapped onto them, or as it is."""


@dataclass(frozen=True, kw_only=True)
class PictureConfig:
    """Settings of what encodes pictures."""

    features: int = option(512, "size of the image encoding", low=1, high=65_536)
    encoder: Literal["auto", "nature", "impala", "small", "none"] = option(
        "auto",
        "nature (the CNN of Mnih et al. 2015), impala (the ResNet of Espeholt et al. 2018) or small; auto: by the size; "
        "none: images are vectors",
    )
    encoder_half: Literal["auto"] | bool = option("auto", "encode images in bfloat16; auto: on CPUs that support it")


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(PictureConfig):
    """Settings of what encodes pictures and vectors."""

    normalize_obs: bool = option(False, "normalize vector observations by running statistics")
    decay: float = option(0.99999, "decay of these statistics per batch", low=0, below=1)


@dataclass(frozen=True)
class NoConfig:
    """No settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """Inputs and outputs of a policy: one agent's row, and the number of agents of an env that it acts for."""

    obs: TreeSpec
    action: ActionSpec
    mask: bool = False
    state: TreeSpec | None = None
    agents: int = 1


@dataclass(slots=True)
class Ask:
    """One block of rows, `[N, ...]`, N = E * A, env-major. `state` is `[E, ...]`. Views: not to be kept."""

    obs: Tree
    memory: Tree
    """Already zeroed where `first`; `{}` without memory."""
    first: Array
    mask: Tree | None
    state: Tree | None
    ids: Array
    """[N] int64: the row's number in the whole run, the same at every tick."""
    rng: Rng
    """Noise of these rows at this tick. Never a global generator."""
    greedy: bool = False


@dataclass(slots=True)
class Act:
    """The answer, `[N, ...]`; `memory` as the spec says, `extra` what the algorithm wants recorded."""

    action: Tree
    memory: Tree
    extra: Tree


@runtime_checkable
class Policy(Protocol):
    """Answers questions: what a policy worker hosts."""

    memory: TreeSpec
    """Per row; `{}` when the policy remembers nothing."""
    reads: tuple[str, ...]
    """Leaves besides `first` and `memory` that `act` needs: of "obs", "mask", "state". Only these travel to it."""
    bounds: ClassVar[Bounds]

    def load(self, params: Tree, version: int) -> None:
        """Take parameters; they may be overwritten after this returns."""
        ...

    def act(self, ask: Ask) -> Act: ...
