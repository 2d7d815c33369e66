"""The metrics that the thesis uses, and its utility factors (chapter 5.1.3).

The utility is a weighted sum of deadlines met, savings and low overhead. The printed formula sums the shares; with
their complements, as here, 1 is best, as the text requires.
"""

from dataclasses import dataclass

import polars as pl

from crosslane_lab.papers import frame
from crosslane_lab.papers.nota.cases import ALPHAS, ROADS, Case, mp_dpa
from crosslane_lab.runs.folder import Run
from crosslane_lab.runs.frame import Spread

EXPENSIVE = "path.lte-b.share"
"""Share of the payload on the expensive path."""
MINIMUM = "path.lte-b.share_optimum"
MISSED, UNWRITTEN = "deadline.missed_share", "deadline.unwritten_share"
DELIVERED_S, WRITTEN_S = "object.completion_s.p50", "object.written_s.p50"
OVERHEAD = "overhead_share"

RECORDED = {
    Case("symmetric", 10): ("single", "kernel", "mp-dpa", "deadline-mptcp", "deadline"),
    Case("symmetric", 7.5): ("mp-dpa", "deadline-mptcp", "deadline"),
    Case("asymmetric", 10): ("single", "kernel", "mp-dpa", "deadline-mptcp", "deadline"),
    Case("triangular", 1): ("single", "kernel", "mp-dpa-08", "deadline-mptcp", "deadline"),
    Case("triangular", 0.8): ("mp-dpa-08", "deadline-mptcp", "deadline"),
} | {
    Case(f"{road}-{kind}", deadline): ("kernel", "mp-dpa-08", "deadline-mptcp", "deadline")
    for road in ROADS
    for kind, deadline in (("bulk", 60), ("stream", 1))
}
"""Cases whose throughput over time is drawn, from one run each."""


@dataclass(frozen=True)
class Weights:
    """Weights of deadlines met, of the preferred path, of low overhead (table 5.1); their sum is 1."""

    met: float
    preferred: float
    low_overhead: float


MU1 = Weights(0.60, 0.25, 0.15)
"""For reliability."""
MU2 = Weights(0.10, 0.80, 0.10)
"""For savings on the expensive path."""

_SENT = (1 + pl.col(OVERHEAD).fill_null(0)) * pl.col("delivered_bytes").fill_null(0)
"""IP bytes sent in a run; 0 if no object was delivered completely, since the overhead is relative to those."""
_KERNEL = pl.col("kernel_sent")
EXCESS = pl.when(_KERNEL > 0).then((_SENT / _KERNEL - 1).clip(0, 1)).otherwise(0.0)
"""IP bytes sent in excess of MPTCP's, as a share of these (0 to 1); 0 if fewer were sent (figure 6.23)."""


def utility(weights: Weights) -> pl.Expr:
    """μ of a run (0 to 1), relative to the kernel's MPTCP with the same seed."""
    met, preferred = 1 - pl.col(MISSED), 1 - pl.col(EXPENSIVE).fill_null(0)
    return weights.met * met + weights.preferred * preferred + weights.low_overhead * (1 - EXCESS)


@dataclass(frozen=True)
class Results:
    """The results by case."""

    all: frame.Results

    def spread(self, case: Case, strategy: str, metric: str) -> Spread | None:
        """Median and range over the seeds; None if no run has the metric."""
        return self.all.spread(case.name, strategy, metric)

    def median(self, case: Case, strategy: str, metric: str) -> float | None:
        """The median over the seeds."""
        return self.all.median(case.name, strategy, metric)

    def of_pairs(self, case: Case, strategy: str, value: pl.Expr) -> float:
        """The median of a value of each run and that of the kernel's MPTCP with the same seed."""
        kernel = self.all.of(case.name, "kernel").select("seed", kernel_sent=_SENT)
        pairs = self.all.of(case.name, strategy).join(kernel, on="seed")
        return float(pairs.select(value.median()).item())

    def mu(self, case: Case, strategy: str, weights: Weights) -> float:
        """The median of μ."""
        return self.of_pairs(case, strategy, utility(weights))

    def excess(self, case: Case, strategy: str) -> float:
        """Bytes sent in excess of the kernel's MPTCP, as a share of its bytes: the overhead of the thesis."""
        return self.of_pairs(case, strategy, EXCESS)

    def best_alpha(self, case: Case, weights: Weights) -> float:
        """The α with the highest μ; the lowest α if several have it."""
        return max(ALPHAS, key=lambda alpha: (self.mu(case, mp_dpa(alpha), weights), -alpha))

    def safe_alpha(self, case: Case, metric: str = MISSED) -> float | None:
        """The highest α up to which no run misses a deadline."""
        safe = None
        for alpha in ALPHAS:
            found = self.spread(case, mp_dpa(alpha), metric)
            if found is None or found.high > 0:
                break
            safe = alpha
        return safe

    def recorded(self, case: Case, strategy: str) -> Run:
        """The run with records of throughput."""
        return self.all.runs(f"recorded/{case.name}", strategy)[0]
