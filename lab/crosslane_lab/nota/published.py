"""What the thesis's text, captions and tables tell in numbers, and how ours compare.

Shares are 0 to 1, times in s. A `saves` of the text is already subtracted from what it tells of MPTCP.
"""

from dataclasses import dataclass

from crosslane_lab.metrics import Spread
from crosslane_lab.nota.cases import BULK_S, ROADS, STREAM_S, Case
from crosslane_lab.nota.found import DEAR, DELIVERED_S, MISSED

SHARE_TOLERANCE = 0.05
"""Shares that differ by less are the same: one object of 6 is 17 points, one of 13 is 8."""
TIME_TOLERANCE = 0.1
"""Relative, of times."""


@dataclass(frozen=True)
class Told:
    """A published number (or, with `most`, a range) of one strategy in one case."""

    figure: str
    case: Case
    strategy: str
    metric: str
    value: float
    most: float | None = None
    because: str = ""
    """Why ours may differ."""

    @property
    def published(self) -> tuple[float, float]:
        """Least and greatest."""
        return self.value, self.value if self.most is None else self.most


_ESTIMATE = "its estimate is not published"
_IDEAL = "published is the rate without headers"
_ONE = "one connection for all objects here, one for each there"
_LATE = "read too late, handed over in time"

_NARROW = [Case("narrow", d) for d in (10.0, 9.0, 8.0)]
_SYMMETRIC = {d: Case("symmetric", d) for d in (10.0, 9.0, 7.5, 6.0, 5.0)}
_ASYMMETRIC = {d: Case("asymmetric", d) for d in (10.0, 9.0, 7.5, 6.0, 5.0)}
_STREAM = [Case("triangular", d) for d in STREAM_S]

STATIC = [
    Told("6.1", _NARROW[0], "kernel", DEAR, 0.44),
    Told("6.2", _NARROW[0], "mp-dpa", DEAR, 0.177, because=_ESTIMATE),
    *(Told("6.2", case, "mp-dpa", MISSED, 0.0, because=_ESTIMATE) for case in _NARROW),
    Told(
        "6.1 text",
        _NARROW[0],
        "single",
        DELIVERED_S,
        10.5,
        because=f"{_IDEAL}; what is late delays the next",
    ),
    Told("6.1 text", _NARROW[0], "kernel", DELIVERED_S, 6.0, because=_IDEAL),
    Told(
        "6.7",
        _SYMMETRIC[10],
        "single",
        DELIVERED_S,
        10.0,
        because=f"{_IDEAL}; what is late delays the next",
    ),
    Told("6.7", _SYMMETRIC[10], "kernel", DELIVERED_S, 5.2),
    Told("6.8", _SYMMETRIC[10], "kernel", DEAR, 0.5),
    Told("6.8", _SYMMETRIC[10], "mp-dpa", DEAR, 0.25, because=_ESTIMATE),
    Told("6.8", _SYMMETRIC[7.5], "mp-dpa", DEAR, 0.37, because=_ESTIMATE),
    Told("6.8", _SYMMETRIC[10], "mp-dpa-08", DEAR, 0.30, 0.34, because=_ESTIMATE),
    Told("6.8", _SYMMETRIC[7.5], "mp-dpa-08", DEAR, 0.42, 0.46, because=_ESTIMATE),
    *(
        Told("6.9", _SYMMETRIC[d], s, MISSED, 0.0, because=_ESTIMATE)
        for d in (10, 9, 7.5)
        for s in ("mp-dpa", "mp-dpa-08")
    ),
    Told("6.13", _ASYMMETRIC[10], "kernel", DEAR, 0.75),
    Told("6.13", _ASYMMETRIC[10], "mp-dpa", DEAR, 0.59, because=_ESTIMATE),
    Told("6.13", _ASYMMETRIC[7.5], "mp-dpa", DEAR, 0.65, because=_ESTIMATE),
    Told("6.13", _ASYMMETRIC[10], "mp-dpa-08", DEAR, 0.607, 0.635, because=_ESTIMATE),
    Told("6.13", _ASYMMETRIC[7.5], "mp-dpa-08", DEAR, 0.667, 0.695, because=_ESTIMATE),
    Told("6.14", _ASYMMETRIC[7.5], "mp-dpa", MISSED, 1 / 6, 4 / 6, because=_ESTIMATE),
    *(Told("6.14", _ASYMMETRIC[d], "mp-dpa-08", MISSED, 0.0, because=_ESTIMATE) for d in (10, 9, 7.5)),
    Told("6.15", _SYMMETRIC[6], "kernel", MISSED, 0.0),
    Told("6.15", _SYMMETRIC[6], "mp-dpa", MISSED, 1 / 6, 1.0),
    Told("6.15", _SYMMETRIC[6], "mp-dpa-08", MISSED, 0.0, because=_ESTIMATE),
    Told("6.15", _SYMMETRIC[5], "kernel", MISSED, 1.0),
    Told("6.16", _ASYMMETRIC[6], "kernel", MISSED, 0.0),
    Told("6.16", _ASYMMETRIC[6], "mp-dpa-08", MISSED, 1 / 6, because=_ESTIMATE),
    Told("6.16", _ASYMMETRIC[5], "kernel", MISSED, 1.0),
]
"""Chapters 6.1 to 6.4."""

STREAMING = [
    *(Told("6.30", case, "kernel", DEAR, 0.40) for case in _STREAM),
    Told("6.30", _STREAM[0], "mp-dpa-08", DEAR, 0.224, because=_ESTIMATE),
    Told("6.30", _STREAM[2], "mp-dpa-08", DEAR, 0.232, because=_ESTIMATE),
    *(
        Told("6.31", case, strategy, MISSED, 0.0, because=_LATE)
        for case in _STREAM
        for strategy in ("kernel", "mp-dpa-08")
    ),
]
"""Chapter 6.6. Savings of 44 and 42 % of a share of 40 % can only be relative ones."""

BULK_KERNEL = {"highway": 0.70, "rural": 0.68, "city": 0.417}
STREAM_KERNEL = {"highway": 0.579, "rural": 0.45, "city": 0.459}
"""What MPTCP sends over the path not preferred, whatever the deadline."""
TABLE_6_1 = {
    "highway": ((0.609, 0.125, 0.011), (0.655, 0.125, 0.008), (0.663, 0.25, 0.012)),
    "rural": ((0.622, 0.307, 0.011), (0.639, 0.538, 0.017), (0.667, 0.692, 0.017)),
    "city": ((0.257, 0.0, 0.071), (0.305, 0.0, 0.052), (0.339, 0.0, 0.03)),
}
"""Bulk: share over the path not preferred, missed, overhead against MPTCP; by deadline of 60, 50, 40 s."""
TABLE_6_2 = {
    "highway": ((0.529, 0.029, 0.001), (0.537, 0.037, 0.002), (0.551, 0.041, 0.002)),
    "rural": ((0.413, 0.087, 0.001), (0.431, 0.108, 0.0), (0.443, 0.166, 0.0)),
    "city": ((0.389, 0.006, 0.001), (0.403, 0.006, 0.001), (0.419, 0.01, 0.001)),
}
"""Streaming: the same, by deadline of 1, 0.9, 0.8 s. MPTCP misses as many (6.35, 6.39, 6.47, 6.50, 6.53)."""


def on_roads(kind: str, twist: str) -> list[Told]:
    """Tables 6.1 (`bulk`) and 6.2 (`stream`), and what the text tells of MPTCP."""
    table, deadlines = (TABLE_6_1, BULK_S) if kind == "bulk" else (TABLE_6_2, STREAM_S)
    kernel = BULK_KERNEL if kind == "bulk" else STREAM_KERNEL
    number = "6.1" if kind == "bulk" else "6.2"
    told = []
    for road in ROADS:
        for deadline_s, (dear, missed, _) in zip(deadlines, table[road], strict=True):
            case = Case(f"{road}-{kind}", deadline_s, "bbr", twist)
            told += [
                Told(number, case, "kernel", DEAR, kernel[road]),
                Told(number, case, "kernel", MISSED, missed, because=_LATE if kind == "stream" else _ONE),
                Told(number, case, "mp-dpa-08", DEAR, dear, because=_ESTIMATE),
                Told(number, case, "mp-dpa-08", MISSED, missed, because=_LATE if kind == "stream" else _ONE),
            ]
    return told


SAFE_ALPHA = {
    ("symmetric", 10.0): 1.9,
    ("symmetric", 7.5): 1.1,
    ("asymmetric", 10.0): 0.9,
    ("asymmetric", 7.5): 0.8,
}
"""Greatest α without a miss (figures 6.17 to 6.20), which is also the best by μ₁ (6.24, 6.25)."""
SPARING_ALPHA = {
    ("symmetric", 10.0): 2.1,
    ("symmetric", 7.5): 1.3,
    ("asymmetric", 10.0): 0.9,
    ("asymmetric", 7.5): 0.8,
}
"""Best α by μ₂ (figures 6.26, 6.27)."""
OVERHEAD = {"single": (0.02, 0.02), "kernel": (0.066, 0.066), "mp-dpa": (0.10, 0.14)}
"""Figure 6.21: bytes sent beyond the payload."""


def verdict(told: Told, ours: Spread | None, missed: float | None = None) -> str:
    """Same; better (fewer misses, or the thesis's rule sparing more with no object `missed`); or how it differs."""
    if ours is None:
        return "nothing delivered"
    low, high = told.published
    slack = high * TIME_TOLERANCE if told.metric.endswith("_s.p50") else SHARE_TOLERANCE
    if low - slack <= ours.median <= high + slack:
        return "same"
    fewer = ours.median < low
    spares = told.metric == DEAR and told.strategy.startswith("mp-dpa") and missed == 0
    if fewer and (told.metric == MISSED or spares):
        return "better"
    word = "less" if fewer else "more"
    return f"{word}: {told.because}" if told.because else word
