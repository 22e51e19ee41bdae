"""Figures over several seeds, as Agarwal et al. 2021 (rliable) define them: the interquartile mean and its bootstrap interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure, and what it could as well have been with other seeds."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: Scores) -> Scores:
    """The mean of the middle half along the last axis: a quarter of the scores, rounded down, is left out at each end."""
    ordered = np.sort(scores, axis=-1)
    cut = ordered.shape[-1] // 4
    middle: Scores = ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)
    return middle


def interval(tasks: Sequence[Scores], *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The interquartile mean of all scores together, with a stratified bootstrap interval: the seeds of each task are
    drawn anew with replacement, within the task. With one seed a task the interval is the value itself.
    """
    random = np.random.default_rng(seed)
    drawn = [scores[random.integers(0, len(scores), (resamples, len(scores)))] for scores in tasks]
    found = interquartile_mean(np.concatenate(drawn, axis=1))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    return Interval(float(interquartile_mean(np.concatenate(list(tasks)))), float(low), float(high))


def probability_of_improvement(ours: Scores, theirs: Scores) -> float:
    """The chance that a run of ours is better than one of theirs; a tie counts half."""
    difference = ours[:, None] - theirs[None, :]
    return float((np.sign(difference).mean() + 1) / 2)
