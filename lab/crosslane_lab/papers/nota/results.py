"""The results: the run folders of all cases, and the metrics that the thesis uses."""

import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

from crosslane_lab import program
from crosslane_lab.papers.nota import utility
from crosslane_lab.papers.nota.cases import ALPHAS, Case, mp_dpa, plan, scenario
from crosslane_lab.progress import Progress
from crosslane_lab.runs.folder import Run, RunFolder
from crosslane_lab.runs.frame import Spread, spread

EXPENSIVE = "path.lte-b.share"
"""Share of the payload on the expensive path."""
MINIMUM = "path.lte-b.share_optimum"
MISSED, UNWRITTEN = "deadline.missed_share", "deadline.unwritten_share"
DELIVERED_S, WRITTEN_S = "object.completion_s.p50", "object.written_s.p50"
OVERHEAD = "overhead_share"

RECORDED = {
    Case("symmetric", 10): ("single", "kernel", "mp-dpa", "deadline"),
    Case("symmetric", 7.5): ("mp-dpa", "deadline"),
    Case("asymmetric", 10): ("single", "kernel", "mp-dpa", "deadline"),
    Case("triangular", 1): ("single", "kernel", "mp-dpa-08", "deadline"),
    Case("triangular", 0.8): ("mp-dpa-08", "deadline"),
} | {
    Case(f"{road}-{kind}", deadline): ("kernel", "mp-dpa-08", "deadline")
    for road in ("highway", "rural", "city")
    for kind, deadline in (("bulk", 60), ("stream", 1))
}
"""Cases whose throughput over time is drawn, from one run each."""


@dataclass(frozen=True)
class Results:
    """The run folders below `root`, one per case."""

    root: Path

    def folder(self, case: Case) -> RunFolder:
        """The run folder of a case; raises `LabError` if there is none."""
        return _opened(self.root / case.name)

    def spread(self, case: Case, strategy: str, metric: str) -> Spread | None:
        """Median and range over the seeds; None if no run has the metric."""
        return spread(self._runs(case, strategy), metric)

    def median(self, case: Case, strategy: str, metric: str) -> float | None:
        """The median over the seeds."""
        stats = self.spread(case, strategy, metric)
        return stats.median if stats else None

    def mu(self, case: Case, strategy: str, weights: utility.Weights) -> float:
        """μ: the median over the seeds, each relative to the kernel's MPTCP with the same seed."""
        return median(
            utility.utility(run.metrics, other.metrics, weights) for run, other in self._pairs(case, strategy)
        )

    def excess(self, case: Case, strategy: str) -> float:
        """Bytes sent in excess of the kernel's MPTCP, as a share of its bytes: the overhead of the thesis."""
        pairs = self._pairs(case, strategy)
        return median(utility.excess(run.metrics, other.metrics) for run, other in pairs)

    def best_alpha(self, case: Case, weights: utility.Weights) -> float:
        """The α with the highest μ; the lowest α if several have it."""
        return max(ALPHAS, key=lambda alpha: (self.mu(case, mp_dpa(alpha), weights), -alpha))

    def safe_alpha(self, case: Case, metric: str = MISSED) -> float | None:
        """The highest α up to which no run misses a deadline."""
        safe = None
        for alpha in ALPHAS:
            stats = self.spread(case, mp_dpa(alpha), metric)
            if stats is None or stats.high > 0:
                break
            safe = alpha
        return safe

    def recorded(self, case: Case, strategy: str) -> Run:
        """The run with records of throughput."""
        folder = RunFolder.open(self.root / "recorded" / case.name)
        return folder.shown_runs(strategy)[0]

    def _runs(self, case: Case, strategy: str) -> list[Run]:
        return self.folder(case).valid_runs(strategy)

    def _pairs(self, case: Case, strategy: str) -> list[tuple[Run, Run]]:
        return list(zip(self._runs(case, strategy), self._runs(case, "kernel"), strict=True))


def simulate(binary: Path, scenarios: Path, data: Path, root: Path) -> Results:
    """Simulate every case of the plan with the `crosslane` program into folders below `root`."""
    progress = Progress()
    try:
        root.mkdir(parents=True, exist_ok=True)
        cases = plan()
        for index, case in enumerate(cases, 1):
            progress(f"simulating {case.name} ({index} of {len(cases)})")
            _simulate(
                binary, _file(case, scenarios, data, root), root / case.name, case.strategies, case.seeds, "none"
            )
        for case, strategies in RECORDED.items():
            progress(f"recording {case.name}")
            out = root / "recorded" / case.name
            _simulate(binary, _file(case, scenarios, data, root), out, strategies, "1", "all")
            for file in out.glob("runs/*/*"):
                if file.stem not in ("throughput", "messages"):
                    file.unlink()
    finally:
        progress.done()
    return Results(root)


@cache
def _opened(path: Path) -> RunFolder:
    return RunFolder.open(path, records=False)


def _file(case: Case, scenarios: Path, data: Path, root: Path) -> Path:
    file = root / "scenarios" / f"{case.name}.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(scenario(case, scenarios, data), encoding="utf-8")
    return file


def _simulate(binary: Path, file: Path, out: Path, strategies: tuple[str, ...], seeds: str, records: str) -> None:
    shutil.rmtree(out, ignore_errors=True)
    options = ["--strategy", ",".join(strategies), "--seed", seeds, "--records", records, "--out", str(out)]
    program.run(binary, ["simulate", str(file), *options], f"simulating {file}")
