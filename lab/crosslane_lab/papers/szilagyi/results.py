"""The scenarios and strategies of Szilágyi & Kovács 2022 (MPT-GRE), and the values that the paper has."""

from dataclasses import dataclass

import polars as pl

from crosslane_lab.papers import frame
from crosslane_lab.runs.catalog import GAP, GOODPUT
from crosslane_lab.runs.folder import Run
from crosslane_lab.runs.frame import Spread, stats

CPU = "tunnel.cpu_s_per_gb"
FIRST, SECOND = "single-first", "single-second"
VXLAN_FIRST, VXLAN_SECOND = "vxlan-first", "vxlan-second"
BARS = (FIRST, SECOND, VXLAN_FIRST, VXLAN_SECOND, "kernel", "kernel-tuned", "tunnel", "tunnel-plain")
REDUNDANCY_STRATEGIES = ("kernel", "kernel-tuned", "tunnel", "tunnel-redundant")
CASES = {"equal": BARS, "unequal": BARS, "redundancy": REDUNDANCY_STRATEGIES}
"""The scenarios of scenarios/szilagyi and the strategies of each."""

TRAFFIC_START_S = 1.0
"""Time from the start of the run to that of the traffic, and from the end of the traffic to that of the run."""
_S = 1_000_000_000


@dataclass(frozen=True)
class Case:
    """The runs of one scenario. Values of a strategy without a valid run are None or empty."""

    all: frame.Results
    name: str

    @property
    def seconds(self) -> int:
        """Seconds of traffic in a run."""
        return round(self.all.folders[self.name].duration_s - 2 * TRAFFIC_START_S)

    @property
    def outages_s(self) -> list[tuple[float, float]]:
        """When an interface is down, since the start of the traffic."""
        spans = self.all.folders[self.name].scenario.outages.values()
        return [(a - TRAFFIC_START_S, b - TRAFFIC_START_S) for path in spans for a, b in path]

    def goodput(self, strategy: str) -> Spread | None:
        """Goodput in Mbit/s."""
        return self.all.spread(self.name, strategy, GOODPUT)

    def cpu_s_per_gb(self, strategy: str) -> Spread | None:
        """CPU time of both tunnel endpoints per GB of payload."""
        return self.all.spread(self.name, strategy, CPU)

    def core(self, strategy: str) -> Spread | None:
        """Share of one core that both tunnel endpoints used together."""
        of = self.all.of(self.name, strategy)
        return stats((of[CPU] * of[GOODPUT] / 8000).drop_nulls().to_list()) if CPU in of.columns else None

    def share_of_sum(self, strategy: str) -> float | None:
        """The median goodput relative to the sum of the goodputs of a single connection over each path."""
        total, *single = [self.all.median(self.name, name, GOODPUT) or 0.0 for name in (strategy, FIRST, SECOND)]
        return total / sum(single) if total and all(single) else None

    def pause(self, strategy: str) -> float | None:
        """The longest pause of the first valid run, in ms."""
        runs = self.all.runs(self.name, strategy)
        return runs[0].metrics.get(GAP) if runs else None

    def per_second(self, strategy: str) -> list[float]:
        """Goodput of the first valid run in each second of the traffic, in Mbit/s."""
        runs = self.all.runs(self.name, strategy)
        return per_second(runs[0], self.seconds) if runs else []


def per_second(run: Run, seconds: int) -> list[float]:
    """Goodput of a run in each second of its traffic, in Mbit/s."""
    second = ((pl.col("received_ns").cast(pl.Int64) - int(TRAFFIC_START_S * _S)) // _S).alias("second")
    delivered = run.messages.drop_nulls("received_ns").select(second, pl.col("size_bytes").cast(pl.Int64))
    sums = dict(delivered.group_by("second").sum().collect().iter_rows())
    return [sums.get(each, 0) * 8 / 1e6 for each in range(seconds)]
