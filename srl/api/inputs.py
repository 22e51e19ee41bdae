"""How the leaves of an observation enter a network: which are pictures, and what is scaled. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from srl.api.policy import PictureConfig
from srl.core.machine import in_half
from srl.core.spec import Leaf
from srl.core.tree import leaves

Kind: TypeAlias = Literal["nature", "impala", "small", "bytes", "numbers", "none"]
SCALE = 1.0 / 255.0
"""Of uint8 numbers."""


def kind_of(leaf: Leaf) -> Kind:
    """uint8 with three sizes is a picture: the Nature CNN from 36x36, a small one from 3x3. The rest is flattened."""
    if leaf.dtype != "uint8":
        return "numbers"
    if len(leaf.shape) == 3:
        _, height, width = picture_shape(leaf.shape)
        if min(height, width) >= 36:
            return "nature"
        if min(height, width) >= 3:
            return "small"
    return "bytes"


def is_picture(leaf: Leaf, encoder: str = "auto") -> bool:
    """True if a leaf is encoded by convolutions."""
    return encoder != "none" and kind_of(leaf) in ("nature", "small")


def picture_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(channels, height, width) of `[C, H, W]` or `[H, W, C]`."""
    one, two, three = shape
    return (three, one, two) if channels_last(shape) else (one, two, three)


def channels_last(shape: tuple[int, ...]) -> bool:
    """Two equal sizes are height and width; else the channels are the fewest."""
    one, two, three = shape
    if (one == two) != (two == three):
        return one == two
    return three < one


def runs_in_half(config: PictureConfig, kind: Kind) -> bool:
    """True if pictures of this kind are encoded in bfloat16 on a CPU: small ones gain nothing."""
    return (kind in ("nature", "impala") or config.encoder_half is True) and in_half(config.encoder_half)


_WORDS: dict[Kind, str] = {
    "nature": "uint8 image, Nature CNN",
    "impala": "uint8 image, IMPALA ResNet",
    "small": "small uint8 image, small CNN",
    "bytes": "uint8, flattened and divided by 255",
}


def encoders(obs: Any, settings: Mapping[str, Any]) -> list[str]:
    """A phrase for every leaf that is not simply flattened: `eye 84x84x3: uint8 image, Nature CNN in bfloat16`."""
    own = {key: settings[key] for key in ("encoder", "encoder_half") if key in settings}
    config = PictureConfig(**own)
    return [
        f"{path or 'obs'} {'x'.join(map(str, leaf.shape))}: {_phrase(leaf, config)}"
        for path, leaf in leaves(obs)
        if leaf.dtype == "uint8"
    ]


def _phrase(leaf: Leaf, config: PictureConfig) -> str:
    if not is_picture(leaf, config.encoder):
        return _WORDS["bytes"]
    kind = kind_of(leaf) if config.encoder == "auto" else config.encoder
    return _WORDS[kind] + (" in bfloat16" if runs_in_half(config, kind) else "")
