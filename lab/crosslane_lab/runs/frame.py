"""Medians, ranges and quantiles over the seeds."""

from dataclasses import dataclass
from math import floor
from statistics import median

from crosslane_lab.runs.catalog import GAP, GOODPUT, WORST_DELAY, describe
from crosslane_lab.runs.folder import Run, RunFolder


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest value of a metric over `count` valid runs."""

    median: float
    low: float
    high: float
    count: int


def spread(runs: list[Run], metric: str) -> Spread | None:
    """The spread of a metric over the runs that have it; None if no run has it."""
    values = [run.metrics[metric] for run in runs if metric in run.metrics]
    return Spread(median(values), min(values), max(values), len(values)) if values else None


def quantile(values: list[float], share: float) -> float:
    """The quantile of the values at `share` (0 to 1), with linear interpolation."""
    ranked = sorted(values)
    position = share * (len(ranked) - 1)
    below = floor(position)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (position - below) * (ranked[above] - ranked[below])


def worst(runs: list[Run], metric: str) -> float | None:
    """The value of the worst run; None if no run has the metric."""
    stats = spread(runs, metric)
    if stats is None:
        return None
    return stats.low if describe(metric).better == "high" else stats.high


def representative(folder: RunFolder, strategy: str) -> Run:
    """The median run of a strategy by worst delay (without this metric: by pause, then by goodput).

    For an even number of runs, the lower of the two middle ones. The strategy must have a run.
    """
    runs = folder.shown_runs(strategy)
    key = next((m for m in (WORST_DELAY, GAP, GOODPUT) if all(m in r.metrics for r in runs)), None)
    ranked = sorted(runs, key=lambda run: (run.metrics[key] if key else 0.0, run.seed))
    return ranked[(len(ranked) - 1) // 2]
