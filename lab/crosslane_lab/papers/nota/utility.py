"""The utility factors of the thesis (chapter 5.1.3): a weighted sum of deadlines met, savings and low overhead.

The printed formula sums the shares; with their complements, as here, 1 is best, as the text requires.
"""

from collections.abc import Mapping
from dataclasses import dataclass


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


def utility(metrics: Mapping[str, float], kernel: Mapping[str, float], weights: Weights) -> float:
    """μ of a run (0 to 1), from its metrics and those of the kernel's MPTCP with the same seed."""
    missed, expensive = metrics["deadline.missed_share"], metrics.get("path.lte-b.share", 0.0)
    return (
        weights.met * (1 - missed)
        + weights.preferred * (1 - expensive)
        + weights.low_overhead * (1 - excess(metrics, kernel))
    )


def excess(metrics: Mapping[str, float], kernel: Mapping[str, float]) -> float:
    """IP bytes sent in excess of MPTCP's, as a share of these (0 to 1); 0 if fewer were sent (figure 6.23)."""
    own, others = sent_bytes(metrics), sent_bytes(kernel)
    return min(max(own / others - 1, 0.0), 1.0) if others else 0.0


def sent_bytes(metrics: Mapping[str, float]) -> float:
    """IP bytes sent in a run; 0 if no object was delivered completely, since the overhead is relative to those."""
    return (1 + metrics.get("overhead_share", 0.0)) * metrics.get("delivered_bytes", 0.0)
