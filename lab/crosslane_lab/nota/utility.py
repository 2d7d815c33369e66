"""The thesis's utility factors (chapter 5.1.3): how much of what can go wrong does not, weighted.

The printed formula sums the shares themselves; with complements, as here, 1 is best, as the text says.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Weights:
    """Weights of deadlines met, of the preferred path, of no overhead (table 5.1); they sum to 1."""

    met: float
    spared: float
    lean: float


MU1 = Weights(0.60, 0.25, 0.15)
"""For reliability."""
MU2 = Weights(0.10, 0.80, 0.10)
"""For sparing the path that is not preferred."""


def utility(metrics: Mapping[str, float], kernel: Mapping[str, float], weights: Weights) -> float:
    """μ of a run (0 to 1), from its metrics and those of the kernel's MPTCP under the same seed."""
    missed, dear = metrics["deadline.missed_share"], metrics.get("path.lte-b.share", 0.0)
    return weights.met * (1 - missed) + weights.spared * (1 - dear) + weights.lean * (1 - surplus(metrics, kernel))


def surplus(metrics: Mapping[str, float], kernel: Mapping[str, float]) -> float:
    """IP bytes sent beyond MPTCP's, as a share of these (0 to 1); 0 where fewer were sent (figure 6.23)."""
    own, others = sent_bytes(metrics), sent_bytes(kernel)
    return min(max(own / others - 1, 0.0), 1.0) if others else 0.0


def sent_bytes(metrics: Mapping[str, float]) -> float:
    """IP bytes sent in a run; 0 where nothing was delivered whole, of which the overhead is told."""
    return (1 + metrics.get("overhead_share", 0.0)) * metrics.get("delivered_bytes", 0.0)
