"""The runs of Torrinhas et al. 2024, section IV: bitrate and RTT of the subflow to each roadside unit, by phase."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from crosslane_lab.papers.frame import Results
from crosslane_lab.runs.folder import Run
from crosslane_lab.runs.frame import Spread, stats

OURS = "torrinhas"
STRATEGIES = (OURS, "threshold", "kernel", "kernel-tuned")
UNLOADED, LOADED = "scenario-2-unloaded", "scenario-2-loaded"
ONE, TWO = "scenario-1", "scenario-2"
RECORDS = ("throughput", "tcp_info", "events")

SETTLE_S = 3
"""Seconds after the begin of a phase that do not count."""
_S = 1_000_000_000
Read = Callable[[Run], float | None]


@dataclass(frozen=True)
class Driven:
    """Drives of a scenario on the kernel."""

    scenario: str
    congestion: str
    strategies: tuple[str, ...]
    seeds: str


DRIVEN = {
    f"{scenario}-{congestion}": Driven(scenario, congestion, strategies, seeds)
    for congestion, strategies, seeds in (
        ("lia", STRATEGIES, "1..5"),
        ("reno", (OURS,), "1..3"),
    )
    for scenario in (ONE, TWO)
}
"""By name of the comparison."""


@dataclass(frozen=True)
class Phase:
    """A time with the same units in reach (figure 3)."""

    from_s: int
    to_s: int
    units: tuple[str, ...]

    def of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows of the phase, after it has settled."""
        return frame.filter(pl.col("second").is_between(self.from_s + SETTLE_S, self.to_s - 1))


PHASES = (
    Phase(0, 20, ("rsu1",)),
    Phase(20, 50, ("rsu1", "rsu2")),
    Phase(50, 100, ("rsu2",)),
    Phase(100, 150, ("rsu2", "rsu3")),
)
FIRST, BOTH, SECOND, LAST = PHASES


def bitrates(run: Run) -> pl.DataFrame:
    """`second`, `path`, `mbit_s`: payload that the server received from each subflow in each second."""
    up = run.throughput.filter(pl.col("direction") == "up")
    second = (pl.col("t_ns") // _S).cast(pl.Int64).alias("second")
    sums = up.group_by(second, "path").agg((pl.col("payload_bytes").sum() * 8 / 1e6).alias("mbit_s"))
    return sums.sort("second", "path").collect()


def rtts(run: Run) -> pl.DataFrame:
    """`second`, `path`, `rtt_ms`: mean smoothed RTT of each subflow while its unit is in reach."""
    second = (pl.col("t_ns") // _S).cast(pl.Int64).alias("second")
    means = run.tcp_info.group_by(second, "path").agg((pl.col("rtt_us").mean() / 1e3).alias("rtt_ms"))
    in_reach = pl.any_horizontal(
        pl.col("second").is_between(each.from_s, each.to_s - 1) & pl.col("path").is_in(each.units)
        for each in PHASES
    )
    return means.filter(in_reach).sort("second", "path").collect()


def bitrate(run: Run, phase: Phase, unit: str = "") -> float:
    """Mean bitrate of a unit's subflow in a phase, or of all, in Mbit/s."""
    of = phase.of(bitrates(run)).filter(pl.lit(not unit) | (pl.col("path") == unit))
    return float(of["mbit_s"].sum()) / (phase.to_s - phase.from_s - SETTLE_S)


def rtt(run: Run, phase: Phase, unit: str) -> float | None:
    """Median RTT of a unit's subflow in a phase, in ms."""
    of = phase.of(rtts(run)).filter(pl.col("path") == unit)
    return of.select(pl.col("rtt_ms").median()).item()


def subflows(run: Run, phase: Phase, unit: str) -> int:
    """Number of subflows over a unit in a phase."""
    of = run.tcp_info.with_columns((pl.col("t_ns") // _S).cast(pl.Int64).alias("second"))
    return phase.of(of.filter(pl.col("path") == unit).collect())["local"].n_unique()


def share(run: Run, phase: Phase, unit: str) -> float:
    """Share of a unit in the bitrate of a phase."""
    return bitrate(run, phase, unit) / (bitrate(run, phase) or 1)


def rtt_ratio(run: Run, phase: Phase) -> float | None:
    """The higher RTT of the two subflows of a phase, divided by the lower one."""
    found = [each for unit in phase.units if (each := rtt(run, phase, unit))]
    return max(found) / min(found) if len(found) > 1 else None


def lower_carries_more(run: Run) -> float:
    """The part of both phases with two units in which the subflow with the lower RTT has the higher bitrate."""
    pairs = [sorted((rtt(run, at, unit) or 0, -bitrate(run, at, unit)) for unit in at.units) for at in (BOTH, LAST)]
    return sum(first[1] < second[1] for first, second in pairs) / len(pairs)


def change_s(run: Run, unit: str, event: str, since_s: float) -> float | None:
    """Time from `since_s` to the next event `event` of a unit's subflow on the vehicle, in s."""
    events = run.events_of("kernel", event)
    times = [e.t_s for e in events if e.text("path") == unit and e.text("side") == "vehicle" and e.t_s >= since_s]
    return min(times) - since_s if times else None


def spread(results: Results, run: str, strategy: str, read: Read) -> Spread | None:
    """Median and range over the seeds of what `read` finds in a run."""
    return stats([found for each in results.runs(run, strategy) if (found := read(each)) is not None])
