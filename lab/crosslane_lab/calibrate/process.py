"""How much a residual wanders and how long it remembers; and how far two samples lie apart."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

QUANTILES = (0.1, 0.5, 0.9)


def sides(residual: Floats) -> tuple[float, float]:
    """Deviations below and above of a two-piece normal distribution around 0 with the residual's 10 % and 90 %."""
    low, high = np.quantile(residual, [0.1, 0.9])
    return -float(low) / 1.2816, float(high) / 1.2816


def standard(residual: Floats, deviations: tuple[float, float]) -> Floats:
    """The residual in deviations of its side."""
    return residual / np.where(residual < 0.0, *deviations)


def memory(residual: Floats, position: Floats, group: NDArray[np.int64], step: tuple[float, float]) -> float:
    """Way over which a first-order process forgets to 1/e.

    From the correlation of neighbouring residuals that belong to one group and whose positions
    (time in s, or way in m) lie `step[0]` to `step[1]` apart.
    """
    apart = np.diff(position)
    pairs = (np.diff(group) == 0) & (apart >= step[0]) & (apart <= step[1])
    before, after = residual[:-1][pairs], residual[1:][pairs]
    correlation = float(np.corrcoef(before, after)[0, 1])
    return -float(apart[pairs].mean()) / float(np.log(np.clip(correlation, 1e-6, 1.0 - 1e-6)))


def quantiles(sample: Floats) -> list[float]:
    """The quantiles of `QUANTILES`."""
    return [round(float(value), 2) for value in np.quantile(sample, QUANTILES)]


def distance(one: Floats, other: Floats) -> float:
    """Kolmogorov and Smirnov's: the largest gap between the two distributions, 0 to 1."""
    grid = np.sort(np.concatenate([one, other]))
    share = [np.searchsorted(np.sort(sample), grid, side="right") / len(sample) for sample in (one, other)]
    return float(np.abs(share[0] - share[1]).max())
