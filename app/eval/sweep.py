"""Trying a parameter of the pipeline with several values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.eval.errors import CannotAsk
from app.eval.intervals import intervals
from app.eval.metrics import FIGURES, MAIN, Values, means

MOST_VALUES = 101
DIGITS = 9  # of a value: steps add up to 0.30000000000000004


@dataclass(frozen=True, slots=True)
class Swept:
    """A parameter that can be tried: its least and its most, and the stages that it changes."""

    least: float
    most: float
    is_whole: bool
    stages: tuple[str, ...]


SWEPT = {
    "rerank_depth": Swept(0, 500, True, ("hybrid_rerank",)),
    "semantic_weight": Swept(0, 1, False, ("hybrid", "hybrid_rerank")),
}
"""By the names they have in `Parameters`."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Which values of a parameter are to be tried."""

    parameter: str
    values: tuple[float, ...]

    @property
    def stages(self) -> tuple[str, ...]:
        return SWEPT[self.parameter].stages

    def with_default(self, default: float) -> tuple[float, ...]:
        """The values, and the present one: what there is to gain is told against it."""
        return tuple(sorted({*self.values, default}))


def parse_sweep(text: str) -> Sweep:
    """Read `parameter=from:to:step`; both ends are tried.

    Raises:
        CannotAsk: it cannot be tried like that.
    """
    name, _, rest = text.partition("=")
    if name not in SWEPT:
        raise CannotAsk(f"{name!r} cannot be swept; there is {', '.join(sorted(SWEPT))}.")
    try:
        first, last, step = (float(number) for number in rest.split(":"))
    except ValueError as error:
        raise CannotAsk(f"{text!r} is not {name}=FROM:TO:STEP.") from error
    swept = SWEPT[name]
    if not (swept.least <= first <= last <= swept.most):
        raise CannotAsk(f"{name} goes from {swept.least:g} to {swept.most:g}.")
    if not (math.isfinite(step) and step > 0):
        raise CannotAsk("The step must be above 0.")
    count = math.floor((last - first) / step + 10**-DIGITS) + 1
    if count > MOST_VALUES:
        raise CannotAsk(f"These are {count} values; at most {MOST_VALUES} are tried.")
    values = [round(first + number * step, DIGITS) for number in range(count)]
    if swept.is_whole and any(value != int(value) for value in values):
        raise CannotAsk(f"{name} takes whole numbers.")
    return Sweep(name, tuple(int(value) if swept.is_whole else value for value in values))


def curve_of(
    measured: Mapping[float, Values], tried: Sequence[float], default: float, seed: int
) -> dict[str, Any]:
    """One stage's figures for every value, the best one, and what it gains on the present one.

    The gain's interval is that of the difference, question by question. The best of many values is
    best partly by chance, also of those beyond the interval: try it on other questions.
    """
    column = FIGURES.index(MAIN)
    best = max(tried, key=lambda value: (measured[value][:, column].mean(), -abs(value - default)))
    gains = measured[best][:, [column]] - measured[default][:, [column]]
    ((low, high),) = intervals(gains, seed)
    return {
        "curve": [{"value": value, **means(measured[value])} for value in sorted(measured)],
        "best": best,
        "gain": float(np.mean(gains)),
        "interval": [low, high],
        "is_beyond_interval": low > 0,
    }
