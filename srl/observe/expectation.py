"""The expected result of an experiment, `expect: {return: 475, env_steps: 300_000}`, and what a run has reached."""

from __future__ import annotations

import math
from collections.abc import Mapping

ENV_STEPS = "env_steps"
RETURN = "return"


class Expectation:
    """Follows the mean returns of the last 100 episodes up to the allowed env steps."""

    def __init__(
        self, expect: Mapping[str, float], *, stop: int | None = None, reached: Mapping[str, float] | None = None
    ) -> None:
        """`stop`: env steps at which the run ends. `reached`: by its earlier sessions, which counts only where the env steps are
        limited and those sessions were the last within the limit."""
        self.wanted = wanted_returns(expect)
        allowed = expect.get(ENV_STEPS, math.inf)
        self._cut = math.inf if stop is not None and stop <= allowed else allowed  # the batch that reaches the stop counts
        self.reached: dict[str, float] = dict(reached or {}) if self._cut < math.inf else {}
        """Return by name, and the env steps at which they were seen."""
        self._settled = False

    def see(self, env_steps: int, returns: Mapping[str, float]) -> None:
        """One moment of the run: mean returns by team, `""` for a single one. The last that is allowed counts."""
        named = {f"{RETURN}/{team}" if team else RETURN: value for team, value in returns.items() if math.isfinite(value)}
        if self._settled or env_steps > self._cut or not named:
            return
        self.reached = {ENV_STEPS: env_steps, **named}

    def settle(self) -> None:
        """The run ends because of its return: episodes that finish during the drain do not count."""
        self._settled = True

    @property
    def holds(self) -> bool:
        """Every wanted return was reached."""
        return all(name in self.reached and self.reached[name] >= least for name, least in self.wanted.items())

    def text(self) -> str:
        """`return 475: reached (500)`"""
        when = f" after {self.reached[ENV_STEPS]:,.0f} env steps" if self.reached and self._cut < math.inf else ""
        others = ", ".join(name for name in self.reached if name != ENV_STEPS)
        absent = f"there is {others}" if others else "fewer than 100 episodes"
        parts = []
        for name, least in self.wanted.items():
            found = self.reached.get(name)
            word = "reached" if found is not None and found >= least else "not reached"
            parts.append(f"{name} {figure(least)}: {word} ({absent if found is None else figure(found) + when})")
        return ", ".join(parts)


def wanted_returns(expect: Mapping[str, float]) -> dict[str, float]:
    """The expected returns by name: `return`, or `return/TEAM`."""
    return {name: least for name, least in expect.items() if name != ENV_STEPS}


def expected(expect: Mapping[str, float]) -> str:
    """`return 475 within 300,000 env steps`"""
    text = ", ".join(f"{name} {figure(least)}" for name, least in wanted_returns(expect).items())
    return f"{text} within {expect[ENV_STEPS]:,.0f} env steps" if ENV_STEPS in expect else text


def figure(value: float) -> str:
    """Six digits: `474.996` is not 475."""
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
