"""Frames of a camera (docs/results/camera.md) over every uplink drive of PAM 2025 of at least 60 s.

Each drive gives a scenario per rate for both operators together and for each alone.
"""

from dataclasses import dataclass

import polars as pl

from crosslane_lab.papers.frame import Options, Results
from crosslane_lab.papers.roads.campaign import OPERATORS, QUICK_EVERY, Drive, drives
from crosslane_lab.runs.catalog import GOODPUT, MISSED
from crosslane_lab.runs.frame import metric
from crosslane_lab.runs.runner import Comparison

PERIOD_S, DEADLINE_S = 0.04, 0.15
DELAY_MS = 25
"""One-way delay of each path; the recordings do not have it."""

BOTH = "both"
OURS = "deadline"
STRATEGIES = {BOTH: ("kernel", OURS), **dict.fromkeys(OPERATORS, ("single", OURS))}
"""For both operators together and for each alone."""


@dataclass(frozen=True)
class Rate:
    """Rate of the camera in Mbit/s: a number, or a range within which it adapts."""

    least: int
    most: int

    @property
    def name(self) -> str:
        """As `5` or `5-20`."""
        return f"{self.least}" if self.least == self.most else f"{self.least}-{self.most}"

    @property
    def keys(self) -> str:
        """The keys of the scenario's traffic."""
        sizes = [round(mbit_s * 1e6 / 8 * PERIOD_S) for mbit_s in (self.most, self.least)]
        text = f"object_bytes = {sizes[0]}\n"
        return text if self.least == self.most else f"{text}min_object_bytes = {sizes[1]}\n"


RATES = (Rate(5, 20), Rate(5, 5), Rate(10, 10))

_TEMPLATE = """\
# {file} of PAM 2025 (docs/guide/real-data.md), made by `crosslane-lab reproduce camera`.
# Run it with --data DIR.

name = "{name}"
title = "Frames of a camera, due in {deadline} s, over recorded operators"
duration_s = {duration_s:.1f}
congestion = "bbr"

[vehicle]
route = {{ from_m = [0, 0], to_m = [2000, 0], speed_kmh = 80 }}   # a trace does not depend on the position

[service]
prefer = [{prefer}]

[traffic]
kind = "deadline"
{keys}period_s = {period}
deadline_s = {deadline}
droppable_every = 2
late = "give-up"
"""


def scenario(drive: Drive, rate: Rate, place: str) -> str:
    """The scenario of a drive at a rate, over both operators or over one."""
    operators = sorted(OPERATORS, key=lambda operator: operator != drive.prefers) if place == BOTH else [place]
    text = _TEMPLATE.format(
        file=drive.file,
        name=f"camera-{drive.name}-{rate.name}-{place}",
        deadline=DEADLINE_S,
        period=PERIOD_S,
        duration_s=drive.duration_s,
        keys=rate.keys,
        prefer=", ".join(f'"{operator}"' for operator in operators),
    )
    paths = (drive.path(operator, DELAY_MS) for operator in operators)
    return text + "".join(paths)


def plan(options: Options) -> list[Comparison]:
    """Every drive at every rate, over both operators and over each alone."""
    chosen = drives(options.runner)[:: QUICK_EVERY if options.quick else 1]
    return [
        Comparison(
            f"{drive.name}/{rate.name}/{place}",
            scenario(drive, rate, place),
            strategies,
            engine=options.engine or "simulator",
        )
        for drive in chosen
        for rate in RATES
        for place, strategies in STRATEGIES.items()
    ]


def rows(results: Results) -> pl.DataFrame:
    """A row per drive, rate, place and strategy."""
    return pl.concat([_row(results, name) for name in results.names], how="diagonal")


def _row(results: Results, name: str) -> pl.DataFrame:
    drive, rate, place = name.split("/")
    frame = results.frame.filter(pl.col("run") == name)
    return frame.select(
        drive=pl.lit(drive),
        rate=pl.lit(rate),
        place=pl.lit(place),
        strategy="strategy",
        missed=MISSED,
        undroppable="deadline.undroppable_missed_share",
        mbit_s=metric(frame, GOODPUT).fill_null(0.0),
        overhead=metric(frame, "overhead_share"),
    )


def alone(frame: pl.DataFrame, strategy: str) -> pl.DataFrame:
    """Of a strategy the operator that misses fewer, or the first by name, of each drive and rate."""
    single = frame.filter((pl.col("place") != BOTH) & (pl.col("strategy") == strategy))
    return (
        single.sort("missed", "place", maintain_order=True).group_by("drive", "rate", maintain_order=True).first()
    )
