"""Szilágyi & Kovács 2022 (MPT-GRE), driven anew on this machine's kernel: goodput, processor time, redundancy."""

import re
import shutil
import subprocess
from argparse import ArgumentTypeError
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from crosslane_lab.errors import LabError
from crosslane_lab.metrics import GOODPUT, Spread, spread
from crosslane_lab.progress import Progress
from crosslane_lab.run import Run, RunFolder

CPU = "tunnel.cpu_s_per_gb"
FIRST, SECOND = "single-first", "single-second"
VXLAN_FIRST, VXLAN_SECOND = "vxlan-first", "vxlan-second"
BARS = (FIRST, SECOND, VXLAN_FIRST, VXLAN_SECOND, "kernel", "kernel-tuned", "tunnel", "tunnel-plain")
IN_TURN = ("kernel", "kernel-tuned", "tunnel", "tunnel-redundant")
CASES = {"equal": BARS, "unequal": BARS, "redundancy": IN_TURN}
"""The scenarios of scenarios/szilagyi and the strategies that drive each."""

STARTS_S = 1.0
"""The traffic begins so long after the run, and ends as long before its end."""
_S = 1_000_000_000


@dataclass(frozen=True)
class RunsOf:
    """How often each case with bars is driven, and for how many seconds of traffic."""

    runs: int = 10
    seconds: int = 30

    @staticmethod
    def read(text: str) -> "RunsOf":
        """From `10x30`; raises `ArgumentTypeError`."""
        found = re.fullmatch(r"([1-9]\d{0,2})x([1-9]\d{0,3})", text)
        if not found:
            raise ArgumentTypeError(f"{text!r} is not RUNSxSECONDS, as 10x30")
        return RunsOf(int(found[1]), int(found[2]))


@dataclass(frozen=True)
class Case:
    """One scenario's runs. What is asked for a strategy without a valid run is None, or empty."""

    folder: RunFolder

    @property
    def seconds(self) -> int:
        """Seconds of traffic in a run."""
        return round(self.folder.duration_s - 2 * STARTS_S)

    def goodput(self, strategy: str) -> Spread | None:
        """Goodput in Mbit/s."""
        return spread(self.folder.valid_runs(strategy), GOODPUT)

    def cpu_s_per_gb(self, strategy: str) -> Spread | None:
        """Processor time of both ends of the tunnel over a GB of payload."""
        return spread(self.folder.valid_runs(strategy), CPU)

    def core(self, strategy: str) -> Spread | None:
        """Share of one core that both ends of the tunnel took together."""
        runs = self.folder.valid_runs(strategy)
        shares = [_with(run, run.metrics[CPU] * run.metrics[GOODPUT] / 8000) for run in runs if CPU in run.metrics]
        return spread(shares, "core")

    def of_sum(self, strategy: str) -> float | None:
        """The median goodput over the sum of what a single connection carries over each path."""
        parts = [self.goodput(name) for name in (strategy, FIRST, SECOND)]
        whole, *alone = [over.median if over else 0.0 for over in parts]
        return whole / sum(alone) if whole and all(alone) else None

    def per_second(self, strategy: str) -> list[float]:
        """Goodput in Mbit/s in each second of the traffic, of the first valid run."""
        runs = self.folder.valid_runs(strategy)
        return per_second(runs[0], self.seconds) if runs else []


def per_second(run: Run, seconds: int) -> list[float]:
    """What a run delivered in each second of its traffic, in Mbit/s."""
    second = ((pl.col("received_ns").cast(pl.Int64) - int(STARTS_S * _S)) // _S).alias("second")
    got = run.messages.drop_nulls("received_ns").select(second, pl.col("size_bytes").cast(pl.Int64))
    sums = dict(got.group_by("second").sum().collect().iter_rows())
    return [sums.get(each, 0) * 8 / 1e6 for each in range(seconds)]


def drive(program: Path, scenarios: Path, root: Path, cases: list[str], runs_of: RunsOf) -> None:
    """Drive the cases into folders below `root`. The timeline of 100 s is driven once."""
    progress = Progress()
    try:
        (root / "scenarios").mkdir(parents=True, exist_ok=True)
        for case in cases:
            text = (scenarios / "szilagyi" / f"{case}.toml").read_text(encoding="utf-8")
            seeds = "1"
            if case != "redundancy":
                text, seeds = with_seconds(text, runs_of.seconds), f"1..{runs_of.runs}"
            file = root / "scenarios" / f"{case}.toml"
            file.write_text(text, encoding="utf-8")
            progress(f"driving {case}: {len(CASES[case])} strategies")
            _drive(program, file, root / case, CASES[case], seeds)
    finally:
        progress.done()


def found(root: Path) -> dict[str, Case]:
    """What was driven; raises `LabError` if a case is missing."""
    return {case: Case(RunFolder.open(root / case)) for case in CASES}


def with_seconds(scenario: str, seconds: int) -> str:
    """The scenario with so many seconds of traffic."""
    return re.sub(r"(?m)^duration_s = .*$", f"duration_s = {seconds + 2 * STARTS_S:g}", scenario, count=1)


def _with(run: Run, core: float) -> Run:
    return Run(run.strategy, run.seed, run.folder, run.valid, run.attempts, run.because, {"core": core})


def _drive(program: Path, file: Path, out: Path, strategies: tuple[str, ...], seeds: str) -> None:
    shutil.rmtree(out, ignore_errors=True)
    options = ["--strategy", ",".join(strategies), "--seed", seeds, "--jobs", "1", "--out", str(out)]
    try:
        # What it says of its progress and of its faults is for the user.
        done = subprocess.run([str(program), "drive", str(file), *options], stdout=subprocess.DEVNULL, check=False)
    except OSError as error:
        cause = error.strerror or str(error)
        raise LabError(f"while starting {program}: {cause}; `make build`, or name it with --program") from error
    if done.returncode:
        raise LabError(f"while driving {file}: it failed; its own sentence stands above")
