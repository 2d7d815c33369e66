"""Deviation and correlation length of a residual, and the distance between two samples."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

QUANTILES = (0.1, 0.5, 0.9)


def side_deviations(residual: Floats) -> tuple[float, float]:
    """Deviations below and above of a two-piece normal distribution around 0 with the residual's 10 % and 90 %."""
    low, high = np.quantile(residual, [0.1, 0.9])
    return -float(low) / 1.2816, float(high) / 1.2816


def standardize(residual: Floats, deviations: tuple[float, float]) -> Floats:
    """The residual in units of the deviation of its side."""
    return residual / np.where(residual < 0.0, *deviations)


def correlation_length(
    residual: Floats, position: Floats, group: NDArray[np.int64], step: tuple[float, float]
) -> float:
    """The distance after which the autocorrelation of a first-order process is 1/e.

    From the correlation of neighbouring residuals of one group whose positions (time in s, or distance in m)
    differ by `step[0]` to `step[1]`.
    """
    steps = np.diff(position)
    pairs = (np.diff(group) == 0) & (steps >= step[0]) & (steps <= step[1])
    before, after = residual[:-1][pairs], residual[1:][pairs]
    correlation = float(np.corrcoef(before, after)[0, 1])
    return -float(steps[pairs].mean()) / float(np.log(np.clip(correlation, 1e-6, 1.0 - 1e-6)))


def quantiles(sample: Floats) -> list[float]:
    """The quantiles of `QUANTILES`."""
    return [round(float(value), 2) for value in np.quantile(sample, QUANTILES)]


def ks_distance(one: Floats, other: Floats) -> float:
    """Kolmogorov–Smirnov distance: the largest difference of the two distributions, 0 to 1."""
    grid = np.sort(np.concatenate([one, other]))
    share = [np.searchsorted(np.sort(sample), grid, side="right") / len(sample) for sample in (one, other)]
    return float(np.abs(share[0] - share[1]).max())
