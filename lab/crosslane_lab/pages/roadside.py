"""The page on several roadside units over one radio: medians by strategy, and the targets."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from crosslane_lab.pages.command import add_page
from crosslane_lab.pages.made_by import made_by
from crosslane_lab.render.markdown import number, spread_text, table
from crosslane_lab.runs.catalog import DELIVERED, GAP, GOODPUT, READ_GAP, WORST_DELAY
from crosslane_lab.runs.folder import Run, RunFolder, by_scenario
from crosslane_lab.runs.frame import Spread, stats

OURS, BOUND = "threshold", "oracle"
ALONE_MBIT_S = 8.47
"""What one unit alone carries (docs/results/torrinhas.md, figure 4a)."""
SETTLE_S, END_S = 2, 50
"""Seconds of the drive past fading units that count."""
GONE_S = 50
"""When the first unit of Torrinhas et al. is gone."""
Read = Callable[[RunFolder, str], Spread | None]


@dataclass(frozen=True)
class Target:
    """What a strategy is to reach in a scenario, and why it does not, where it does not."""

    scenario: str
    what: str
    read: Read
    limit: float
    unit: str
    at_most: bool = True
    strategy: str = OURS
    reason: str = ""

    def row(self, folder: RunFolder) -> list[str]:
        """Cells: scenario, target, measured, verdict."""
        found = self.read(folder, self.strategy)
        name = f"`{self.scenario.removeprefix('roadside-')}`"
        bound = f"{'at most' if self.at_most else 'at least'} {number(self.limit, self.unit)}"
        if found is None:
            return [name, f"{self.what}: {bound}", "–", "not measured"]
        met = found.median <= self.limit if self.at_most else found.median >= self.limit
        verdict = "reached" if met else f"**not reached**{': ' if self.reason else ''}{self.reason}"
        return [name, f"{self.what}: {bound}", spread_text(found, self.unit), verdict]


def _metric(name: str) -> Read:
    def read(folder: RunFolder, strategy: str) -> Spread | None:
        return stats([run.metrics[name] for run in folder.valid_runs(strategy) if name in run.metrics])

    return read


def _bytes(run: Run, units: bool) -> float:
    """Payload over the units, or over the other paths."""
    paths = {name.split(".")[1]: value for name, value in run.metrics.items() if name.endswith(".bytes")}
    return sum(value for path, value in paths.items() if path.startswith("rsu") == units)


def _useful(run: Run) -> float:
    """Payload over the units without retransmissions: no more than what was delivered."""
    over_units = _bytes(run, units=True)
    return min(over_units, run.metrics.get(DELIVERED, over_units))


def _of_bound(folder: RunFolder, strategy: str) -> Spread | None:
    """Payload over units, of that of the bound with the same seed."""
    bound = {run.seed: _useful(run) for run in folder.valid_runs(BOUND)}
    runs = [run for run in folder.valid_runs(strategy) if bound.get(run.seed)]
    return stats([_useful(run) / bound[run.seed] for run in runs])


def _least(period_ms: int) -> Read:
    """The least sum of all subflows in a period, of what one unit alone carries."""

    def read(folder: RunFolder, strategy: str) -> Spread | None:
        runs = [run for run in folder.valid_runs(strategy) if any(run.folder.glob("throughput.*"))]
        return stats([_least_of(run, period_ms) for run in runs])

    return read


def _least_of(run: Run, period_ms: int) -> float:
    sums = _sums(run, period_ms)
    periods = range(SETTLE_S * 1000 // period_ms, END_S * 1000 // period_ms)
    return min(sums.get(each, 0) for each in periods)


def _sums(run: Run, period_ms: int) -> dict[int, float]:
    """The sum of all subflows in each period, of what one unit alone carries, by number of the period."""
    period = (pl.col("t_ns") // (period_ms * 1_000_000)).cast(pl.Int64).alias("period")
    up = run.throughput.filter(pl.col("direction") == "up").group_by(period)
    alone_bytes = ALONE_MBIT_S * 125 * period_ms
    return dict(up.agg(pl.col("payload_bytes").sum() / alone_bytes).collect().iter_rows())


def _after(folder: RunFolder, strategy: str) -> Spread | None:
    """The sum of all subflows in the second that begins half a second after a unit is gone."""
    runs = [run for run in folder.valid_runs(strategy) if any(run.folder.glob("throughput.*"))]
    tenths = range(GONE_S * 10 + 5, GONE_S * 10 + 15)
    return stats([sum(_sums(run, 100).get(each, 0) for each in tenths) / 10 for run in runs])


FADING, LTE = "roadside-fading", "roadside-three-lte"
SWITCHED, DELAYED = "torrinhas-1", "torrinhas-2"
NARROW = (
    "between two units retries take air time, and the first window over the next finds a full queue; "
    "with the mean signals known exactly the same rules reach 88.8 and 96.7 %"
)
DRAIN = "20 frames for the unit that is gone take 330 ms; over the next one a first window needs 210 ms more"
RAMP = "the farther unit alone carries 7.05 Mbit/s in the long run (8.0 in all), 6.0 from its start (7.64)"
EARLY = "units are left at -82 dBm, 6 Mbit/s still carries at -88 dBm"
TARGETS = (
    Target(FADING, "longest pause", _metric(READ_GAP), 60, "ms"),
    Target(FADING, "least sum in each 100 ms", _least(100), 0.9, "%", at_most=False, reason=NARROW),
    Target(FADING, "least sum in each second", _least(1000), 0.97, "%", at_most=False, reason=NARROW),
    Target(SWITCHED, "longest pause", _metric(READ_GAP), 250, "ms"),
    Target(SWITCHED, "half a second after the unit, sum of a second", _after, 0.95, "%", at_most=False),
    Target(DELAYED, "longest pause", _metric(READ_GAP), 300, "ms", reason=DRAIN),
    Target(DELAYED, "sum", _metric(GOODPUT), 8.1, "Mbit/s", at_most=False, reason=RAMP),
    *(
        target
        for speed in (30, 100, 200)
        for target in (
            Target(f"roadside-ten-{speed}", "worst delay", _metric(WORST_DELAY), 100, "ms"),
            Target(f"roadside-ten-{speed}", "bytes over units, of `oracle`", _of_bound, 0.95, "%", at_most=False),
        )
    ),
    Target(LTE, "worst delay", _metric(WORST_DELAY), 100, "ms"),
    Target(LTE, "bytes over units, of `oracle`", _of_bound, 0.95, "%", at_most=False, reason=EARLY),
    Target(LTE, "`adaptive`: worst delay", _metric(WORST_DELAY), 100, "ms", strategy="adaptive"),
    Target(
        LTE, "`adaptive`: bytes over units, of `oracle`", _of_bound, 0.95, "%", at_most=False, strategy="adaptive"
    ),
    Target(
        "roadside-unit-dies",
        "worst delay",
        _metric(WORST_DELAY),
        100,
        "ms",
        reason="the frames in the queue are tried seven times each before those for the next unit",
    ),
    Target(
        "roadside-unit-lies",
        "worst delay",
        _metric(WORST_DELAY),
        40,
        "ms",
    ),
    Target(
        "roadside-attacker",
        "worst delay",
        _metric(WORST_DELAY),
        40,
        "ms",
    ),
    Target("roadside-attacker", "bytes over units, of `oracle`", _of_bound, 0.95, "%", at_most=False),
)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "roadside", help="make the page on roadside units from several run folders", description=__doc__
    )
    add_page(parser, "run folders of scenarios/roadside", "docs/results/roadside.md", page)


def page(folders: Sequence[RunFolder]) -> str:
    """The page as Markdown, a function of the folders only."""
    given = by_scenario(folders)
    driven = [folder for folder in folders if folder.engine == "kernel"]
    folders = [folder for folder in folders if folder.engine != "kernel"]
    by_name = {name: folder for (name, engine), folder in given.items() if engine != "kernel"}
    rows = [target.row(by_name[target.scenario]) for target in TARGETS if target.scenario in by_name]
    reached = sum(row[-1] == "reached" for row in rows)
    lines = [
        "# Several roadside units over one radio",
        "",
        "Written by `make roadside` from `scenarios/roadside` and scenarios 1 and 2 of `scenarios/torrinhas`;",
        "strategy `threshold` [over one radio](../reference/strategies.md#several-paths-over-one-radio).",
        "Simulated, as many seeds as the tables have runs: medians, minimum and maximum in brackets.",
        "The longest pause of bulk traffic is the longest time in which no byte was read in order.",
        "",
        made_by([*folders, *driven]),
        "",
        f"Targets reached: {reached} of {len(rows)}. One unit alone carries {ALONE_MBIT_S} Mbit/s.",
        "",
        *table(["scenario", "target", "measured", "verdict"], rows, "llrl", compact=True),
    ]
    for folder in folders:
        lines += ["", f"## `{folder.name.removeprefix('roadside-')}`", "", *_table(folder)]
    for folder in driven:
        lines += ["", f"## `{folder.name.removeprefix('roadside-')}` on the kernel", "", *_table(folder)]
    return "\n".join(lines) + "\n"


def _table(folder: RunFolder) -> list[str]:
    bulk = folder.scenario.traffic == "bulk"
    heads = [
        "strategy",
        "runs",
        "longest pause",
        *(["goodput"] if bulk else ["worst delay"]),
        "over units",
        "elsewhere",
    ]
    rows: list[list[str]] = []
    for strategy in folder.measured:
        runs = folder.valid_runs(strategy)
        shown = ((READ_GAP, "ms"), (GOODPUT, "Mbit/s")) if bulk else ((GAP, "ms"), (WORST_DELAY, "ms"))
        cells = [_cell(_metric(name)(folder, strategy), unit) for name, unit in shown]
        over = [_cell(stats([_bytes(run, units) / 1e6 for run in runs]), "MB") for units in (True, False)]
        rows.append([f"`{strategy}`", str(len(runs)), *cells, *over])
    return list(table(heads, rows, compact=True))


def _cell(found: Spread | None, unit: str) -> str:
    return spread_text(found, unit) if found else "–"
