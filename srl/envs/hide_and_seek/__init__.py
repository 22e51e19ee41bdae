"""Hide and seek in a world of boxes, ramps and walls (Baker et al. 2019), on batched MuJoCo."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from srl.envs.hide_and_seek.env import HideAndSeekVec
    from srl.envs.hide_and_seek.parallel import HideAndSeek

__all__ = ["HideAndSeek", "HideAndSeekVec"]


def __getattr__(name: str) -> Any:
    """The classes are imported where they are used: the PettingZoo view needs its package."""
    if name == "HideAndSeekVec":
        from srl.envs.hide_and_seek.env import HideAndSeekVec

        return HideAndSeekVec
    if name == "HideAndSeek":
        from srl.envs.hide_and_seek.parallel import HideAndSeek

        return HideAndSeek
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
