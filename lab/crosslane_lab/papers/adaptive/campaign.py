"""Four scenarios in which a roadside network is preferred to LTE, by `late_ms` and with the other strategies."""

import polars as pl

from crosslane_lab.papers.frame import Options, Results
from crosslane_lab.runs.catalog import WORST_DELAY
from crosslane_lab.runs.runner import Comparison, scenario

PREFERRED = "its-g5"
SEEDS, QUICK_SEEDS = "1..200", "1..20"
LATE_MS = (30, 40, 50, 60, 80, 100, 150, 250)
OTHERS = ("threshold", "hapanchak", "oracle", "kernel", "kernel-tuned")
LIMIT_MS = 60
"""The limit of the first target; runs of strategies without a limit count as in time up to it."""


SCENARIOS = {"leave-coverage": 0.58, "leave-coverage-fast": 0.49, "pass-by": 0.51, "flapping": 0.85}
"""The share asked of each, in time in 95 % of the runs with `late_ms` = `LIMIT_MS`."""

_STRATEGY = """
[[strategy]]
name = "{name}"
base = "adaptive"
late_ms = {late_ms}
"""


def named(late_ms: int) -> str:
    """The name of the strategy with this limit."""
    return f"adaptive-{late_ms}"


def plan(options: Options) -> list[Comparison]:
    """A comparison per scenario."""
    knob = "".join(_STRATEGY.format(name=named(late_ms), late_ms=late_ms) for late_ms in LATE_MS)
    strategies = (*map(named, LATE_MS), *OTHERS)
    seeds = QUICK_SEEDS if options.quick else SEEDS
    return [
        Comparison(name, scenario(options.scenarios / f"{name}.toml", more=knob), strategies, seeds)
        for name in SCENARIOS
    ]


def rows(results: Results) -> pl.DataFrame:
    """A row per scenario and strategy: share, worst delay (median and 95th percentile), share of runs in time."""
    worst = pl.col(WORST_DELAY)
    limit = pl.col("strategy").str.strip_prefix("adaptive-").cast(pl.Int64, strict=False)
    return (
        results.frame.with_columns(late_ms=limit)
        .group_by("run", "strategy", "late_ms", maintain_order=True)
        .agg(
            seeds=pl.len(),
            share=pl.col(f"path.{PREFERRED}.share").median(),
            worst=worst.median(),
            p95=worst.quantile(0.95),
            in_time=(worst <= pl.col("late_ms").fill_null(LIMIT_MS)).mean(),
        )
        .rename({"run": "scenario"})
    )
