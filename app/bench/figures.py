"""From raw samples to figures: percentiles within a round, the median over rounds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of 100 lie, between neighbours by straight line.

    Raises:
        ValueError: no values, or a percent outside of 0..100.
    """
    if not values or not 0 <= percent <= 100:
        raise ValueError(f"no percentile {percent} of {len(values)} values")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below, above = math.floor(place), math.ceil(place)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def percentiles(name: str, values: Sequence[float]) -> dict[str, float]:
    """The three that a distribution of milliseconds is told by."""
    return {f"{name}_p{percent}_ms": percentile(values, percent) for percent in (10, 50, 95)}


def over_rounds(rounds: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Each figure's median over the rounds that have it, to a thousandth."""
    gathered: dict[str, list[float]] = {}
    for figures in rounds:
        for name, value in figures.items():
            gathered.setdefault(name, []).append(value)
    return {name: round(median(values), 3) for name, values in gathered.items()}
