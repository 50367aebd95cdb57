"""How far a mean over questions can be trusted: bootstrap intervals."""

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
WITHIN = 95  # percent of the resamples that an interval holds

Interval = tuple[float, float]


def intervals(values: NDArray[np.float64], seed: int) -> list[Interval]:
    """The interval of each column's mean, as if other questions of their kind had been asked.

    Questions are drawn anew with replacement, the whole row of each at once. The same seed and
    number of questions draw the same ones; so the difference of two rankings of the same questions
    has an interval of its own, which is narrower than theirs.

    Source: the percentile bootstrap (Efron and Tibshirani, 1993).
    """
    count = len(values)
    draws = np.random.default_rng(seed).multinomial(
        count, np.full(count, 1 / count), size=RESAMPLES
    )
    resampled = draws @ values / count
    outside = (100 - WITHIN) / 2
    low, high = np.percentile(resampled, [outside, 100 - outside], axis=0)
    return [(float(least), float(most)) for least, most in zip(low, high, strict=True)]
