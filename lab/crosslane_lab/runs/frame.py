"""The metrics of many runs: a data frame, and medians and ranges over the seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from crosslane_lab.runs.catalog import GAP, GOODPUT, WORST_DELAY, describe
from crosslane_lab.runs.folder import Run, RunFolder


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest value of a metric over `count` valid runs."""

    median: float
    low: float
    high: float
    count: int


def stats(values: Sequence[float]) -> Spread | None:
    """The spread of the values; None if there are none."""
    return Spread(float(np.median(values)), min(values), max(values), len(values)) if values else None


def spread(runs: Sequence[Run], metric: str) -> Spread | None:
    """The spread of a metric over the runs that have it; None if no run has it."""
    return stats([run.metrics[metric] for run in runs if metric in run.metrics])


def frame(folders: Mapping[str, RunFolder]) -> pl.DataFrame:
    """Runs × metrics: a row per valid run, null where it lacks a metric; `run` is the key of its folder."""
    rows = [
        {"run": key, "strategy": strategy, "seed": run.seed} | run.metrics
        for key, folder in folders.items()
        for strategy in folder.strategies
        for run in folder.valid_runs(strategy)
    ]
    return pl.DataFrame(rows, None if rows else _KEYS, infer_schema_length=None)


_KEYS = {"run": pl.String, "strategy": pl.String, "seed": pl.Int64}


def metric(frame: pl.DataFrame, name: str) -> pl.Expr:
    """A metric of a frame of runs; null if no run has it."""
    return pl.col(name) if name in frame.columns else pl.lit(None, pl.Float64).alias(name)


def worst(runs: list[Run], metric: str) -> float | None:
    """The value of the worst run; None if no run has the metric, or neither direction is better."""
    stats, better = spread(runs, metric), describe(metric).better
    if stats is None or not better:
        return None
    return stats.low if better == "high" else stats.high


def representative(folder: RunFolder, strategy: str) -> Run:
    """The median run of a strategy by worst delay (without this metric: by pause, then by goodput).

    For an even number of runs, the lower of the two middle ones. The strategy must have a run.
    """
    runs = folder.shown_runs(strategy)
    key = next((m for m in (WORST_DELAY, GAP, GOODPUT) if all(m in r.metrics for r in runs)), None)
    ranked = sorted(runs, key=lambda run: (run.metrics[key] if key else 0.0, run.seed))
    return ranked[(len(ranked) - 1) // 2]
