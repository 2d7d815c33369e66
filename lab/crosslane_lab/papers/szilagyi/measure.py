"""Szilágyi & Kovács 2022 (MPT-GRE), re-measured on the kernel of this machine: goodput, CPU time, redundancy."""

import re
import shutil
from argparse import ArgumentTypeError
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from crosslane_lab import program
from crosslane_lab.progress import Progress
from crosslane_lab.runs.catalog import GOODPUT
from crosslane_lab.runs.folder import Run, RunFolder
from crosslane_lab.runs.frame import Spread, spread

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
class Repetitions:
    """Number of runs of each case with bars, and seconds of traffic in each."""

    runs: int = 10
    seconds: int = 30

    @staticmethod
    def read(text: str) -> "Repetitions":
        """From `10x30`; raises `ArgumentTypeError`."""
        found = re.fullmatch(r"([1-9]\d{0,2})x([1-9]\d{0,3})", text)
        if not found:
            raise ArgumentTypeError(f"{text!r} is not RUNSxSECONDS, as 10x30")
        return Repetitions(int(found[1]), int(found[2]))


@dataclass(frozen=True)
class Case:
    """The runs of one scenario. Values of a strategy without a valid run are None or empty."""

    folder: RunFolder

    @property
    def seconds(self) -> int:
        """Seconds of traffic in a run."""
        return round(self.folder.duration_s - 2 * TRAFFIC_START_S)

    def goodput(self, strategy: str) -> Spread | None:
        """Goodput in Mbit/s."""
        return spread(self.folder.valid_runs(strategy), GOODPUT)

    def cpu_s_per_gb(self, strategy: str) -> Spread | None:
        """CPU time of both tunnel endpoints per GB of payload."""
        return spread(self.folder.valid_runs(strategy), CPU)

    def core(self, strategy: str) -> Spread | None:
        """Share of one core that both tunnel endpoints used together."""
        runs = self.folder.valid_runs(strategy)
        shares = [_with(run, run.metrics[CPU] * run.metrics[GOODPUT] / 8000) for run in runs if CPU in run.metrics]
        return spread(shares, "core")

    def share_of_sum(self, strategy: str) -> float | None:
        """The median goodput relative to the sum of the goodputs of a single connection over each path."""
        parts = [self.goodput(name) for name in (strategy, FIRST, SECOND)]
        total, *single = [stats.median if stats else 0.0 for stats in parts]
        return total / sum(single) if total and all(single) else None

    def per_second(self, strategy: str) -> list[float]:
        """Goodput of the first valid run in each second of the traffic, in Mbit/s."""
        runs = self.folder.valid_runs(strategy)
        return per_second(runs[0], self.seconds) if runs else []


def per_second(run: Run, seconds: int) -> list[float]:
    """Goodput of a run in each second of its traffic, in Mbit/s."""
    second = ((pl.col("received_ns").cast(pl.Int64) - int(TRAFFIC_START_S * _S)) // _S).alias("second")
    delivered = run.messages.drop_nulls("received_ns").select(second, pl.col("size_bytes").cast(pl.Int64))
    sums = dict(delivered.group_by("second").sum().collect().iter_rows())
    return [sums.get(each, 0) * 8 / 1e6 for each in range(seconds)]


def drive(binary: Path, scenarios: Path, root: Path, cases: list[str], repetitions: Repetitions) -> None:
    """Drive the cases into folders below `root`. The timeline of 100 s is driven once."""
    progress = Progress()
    try:
        (root / "scenarios").mkdir(parents=True, exist_ok=True)
        for case in cases:
            text = (scenarios / "szilagyi" / f"{case}.toml").read_text(encoding="utf-8")
            seeds = "1"
            if case != "redundancy":
                text, seeds = with_seconds(text, repetitions.seconds), f"1..{repetitions.runs}"
            file = root / "scenarios" / f"{case}.toml"
            file.write_text(text, encoding="utf-8")
            progress(f"driving {case}: {len(CASES[case])} strategies")
            _drive(binary, file, root / case, CASES[case], seeds)
    finally:
        progress.done()


def load(root: Path) -> dict[str, Case]:
    """The cases driven; raises `LabError` if one is missing."""
    return {case: Case(RunFolder.open(root / case)) for case in CASES}


def with_seconds(scenario: str, seconds: int) -> str:
    """The scenario with this number of seconds of traffic."""
    return re.sub(r"(?m)^duration_s = .*$", f"duration_s = {seconds + 2 * TRAFFIC_START_S:g}", scenario, count=1)


def _with(run: Run, core: float) -> Run:
    return Run(run.strategy, run.seed, run.folder, run.valid, run.attempts, run.reason, {"core": core})


def _drive(binary: Path, file: Path, out: Path, strategies: tuple[str, ...], seeds: str) -> None:
    shutil.rmtree(out, ignore_errors=True)
    options = ["--strategy", ",".join(strategies), "--seed", seeds, "--jobs", "1", "--out", str(out)]
    program.run(binary, ["drive", str(file), *options], f"driving {file}", show_messages=True)
