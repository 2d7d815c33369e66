"""The published numbers of the thesis (text, captions, tables).

Shares are 0 to 1, times in s. Savings given in the text are already subtracted from the value of MPTCP.
"""

from dataclasses import dataclass, field

from crosslane_lab.papers.frame import Claim, Results
from crosslane_lab.papers.nota.cases import BULK_S, ROADS, STREAM_S, Case
from crosslane_lab.papers.nota.results import DELIVERED_S, EXPENSIVE, MISSED

SHARE_TOLERANCE = 0.05
"""Shares within this difference are the same: one object of 6 is 17 points, one of 13 is 8."""
TIME_TOLERANCE = 0.1
"""Relative, for times."""


@dataclass(frozen=True)
class Published(Claim):
    """A published number of one strategy in one case."""

    case: Case = field(default_factory=lambda: Case("", 0))


def _claim(
    place: str, case: Case, strategy: str, metric: str, value: float, maximum: float | None = None, reason: str = ""
) -> Published:
    """A published number; with `maximum`, a range."""

    def better(results: Results) -> bool:
        """Fewer misses, or MP-DPA saving more without a miss."""
        saves = metric == EXPENSIVE and strategy.startswith("mp-dpa")
        return metric == MISSED or (saves and results.median(case.name, strategy, MISSED) == 0)

    is_time = metric.endswith("_s.p50")
    return Published(
        place=place,
        run=case.name,
        case=case,
        strategy=strategy,
        metric=metric,
        published=value if maximum is None else (value, maximum),
        tolerance=TIME_TOLERANCE if is_time else SHARE_TOLERANCE,
        relative=is_time,
        better=better,
        reason=reason,
    )


_ESTIMATE = "its estimate is not published"
_IDEAL = "the published value excludes headers"
_ONE = "one connection for all objects here, one per object there"
_LATE = "read too late, written in time"

_NARROW = [Case("narrow", d) for d in (10.0, 9.0, 8.0)]
_SYMMETRIC = {d: Case("symmetric", d) for d in (10.0, 9.0, 7.5, 6.0, 5.0)}
_ASYMMETRIC = {d: Case("asymmetric", d) for d in (10.0, 9.0, 7.5, 6.0, 5.0)}
_STREAM = [Case("triangular", d) for d in STREAM_S]

STATIC = [
    _claim("6.1", _NARROW[0], "kernel", EXPENSIVE, 0.44),
    _claim("6.2", _NARROW[0], "mp-dpa", EXPENSIVE, 0.177, reason=_ESTIMATE),
    *(_claim("6.2", case, "mp-dpa", MISSED, 0.0, reason=_ESTIMATE) for case in _NARROW),
    _claim("6.1 text", _NARROW[0], "single", DELIVERED_S, 10.5, reason=f"{_IDEAL}; a late object delays the next"),
    _claim("6.1 text", _NARROW[0], "kernel", DELIVERED_S, 6.0, reason=_IDEAL),
    _claim("6.7", _SYMMETRIC[10], "single", DELIVERED_S, 10.0, reason=f"{_IDEAL}; a late object delays the next"),
    _claim("6.7", _SYMMETRIC[10], "kernel", DELIVERED_S, 5.2),
    _claim("6.8", _SYMMETRIC[10], "kernel", EXPENSIVE, 0.5),
    _claim("6.8", _SYMMETRIC[10], "mp-dpa", EXPENSIVE, 0.25, reason=_ESTIMATE),
    _claim("6.8", _SYMMETRIC[7.5], "mp-dpa", EXPENSIVE, 0.37, reason=_ESTIMATE),
    _claim("6.8", _SYMMETRIC[10], "mp-dpa-08", EXPENSIVE, 0.30, 0.34, reason=_ESTIMATE),
    _claim("6.8", _SYMMETRIC[7.5], "mp-dpa-08", EXPENSIVE, 0.42, 0.46, reason=_ESTIMATE),
    *(
        _claim("6.9", _SYMMETRIC[d], s, MISSED, 0.0, reason=_ESTIMATE)
        for d in (10, 9, 7.5)
        for s in ("mp-dpa", "mp-dpa-08")
    ),
    _claim("6.13", _ASYMMETRIC[10], "kernel", EXPENSIVE, 0.75),
    _claim("6.13", _ASYMMETRIC[10], "mp-dpa", EXPENSIVE, 0.59, reason=_ESTIMATE),
    _claim("6.13", _ASYMMETRIC[7.5], "mp-dpa", EXPENSIVE, 0.65, reason=_ESTIMATE),
    _claim("6.13", _ASYMMETRIC[10], "mp-dpa-08", EXPENSIVE, 0.607, 0.635, reason=_ESTIMATE),
    _claim("6.13", _ASYMMETRIC[7.5], "mp-dpa-08", EXPENSIVE, 0.667, 0.695, reason=_ESTIMATE),
    _claim("6.14", _ASYMMETRIC[7.5], "mp-dpa", MISSED, 1 / 6, 4 / 6, reason=_ESTIMATE),
    *(_claim("6.14", _ASYMMETRIC[d], "mp-dpa-08", MISSED, 0.0, reason=_ESTIMATE) for d in (10, 9, 7.5)),
    _claim("6.15", _SYMMETRIC[6], "kernel", MISSED, 0.0),
    _claim("6.15", _SYMMETRIC[6], "mp-dpa", MISSED, 1 / 6, 1.0),
    _claim("6.15", _SYMMETRIC[6], "mp-dpa-08", MISSED, 0.0, reason=_ESTIMATE),
    _claim("6.15", _SYMMETRIC[5], "kernel", MISSED, 1.0),
    _claim("6.16", _ASYMMETRIC[6], "kernel", MISSED, 0.0),
    _claim("6.16", _ASYMMETRIC[6], "mp-dpa-08", MISSED, 1 / 6, reason=_ESTIMATE),
    _claim("6.16", _ASYMMETRIC[5], "kernel", MISSED, 1.0),
]
"""Chapters 6.1 to 6.4."""

STREAMING = [
    *(_claim("6.30", case, "kernel", EXPENSIVE, 0.40) for case in _STREAM),
    _claim("6.30", _STREAM[0], "mp-dpa-08", EXPENSIVE, 0.224, reason=_ESTIMATE),
    _claim("6.30", _STREAM[2], "mp-dpa-08", EXPENSIVE, 0.232, reason=_ESTIMATE),
    *(
        _claim("6.31", case, strategy, MISSED, 0.0, reason=_LATE)
        for case in _STREAM
        for strategy in ("kernel", "mp-dpa-08")
    ),
]
"""Chapter 6.6. Savings of 44 and 42 % of a share of 40 % must be relative."""

BULK_KERNEL = {"highway": 0.70, "rural": 0.68, "city": 0.417}
STREAM_KERNEL = {"highway": 0.579, "rural": 0.45, "city": 0.459}
"""Share of MPTCP on the expensive path, for every deadline."""
TABLE_6_1 = {
    "highway": ((0.609, 0.125, 0.011), (0.655, 0.125, 0.008), (0.663, 0.25, 0.012)),
    "rural": ((0.622, 0.307, 0.011), (0.639, 0.538, 0.017), (0.667, 0.692, 0.017)),
    "city": ((0.257, 0.0, 0.071), (0.305, 0.0, 0.052), (0.339, 0.0, 0.03)),
}
"""Bulk: share on the expensive path, missed, overhead relative to MPTCP; for deadlines of 60, 50, 40 s."""
TABLE_6_2 = {
    "highway": ((0.529, 0.029, 0.001), (0.537, 0.037, 0.002), (0.551, 0.041, 0.002)),
    "rural": ((0.413, 0.087, 0.001), (0.431, 0.108, 0.0), (0.443, 0.166, 0.0)),
    "city": ((0.389, 0.006, 0.001), (0.403, 0.006, 0.001), (0.419, 0.01, 0.001)),
}
"""Streaming: the same, for deadlines of 1, 0.9, 0.8 s. MPTCP misses as many (6.35, 6.39, 6.47, 6.50, 6.53)."""


def on_roads(kind: str, variant: str) -> list[Published]:
    """Tables 6.1 (`bulk`) and 6.2 (`stream`), and the values of MPTCP in the text."""
    table, deadlines = (TABLE_6_1, BULK_S) if kind == "bulk" else (TABLE_6_2, STREAM_S)
    kernel = BULK_KERNEL if kind == "bulk" else STREAM_KERNEL
    table_number = "table 6.1" if kind == "bulk" else "table 6.2"
    found = []
    for road in ROADS:
        for deadline_s, (share, missed, _) in zip(deadlines, table[road], strict=True):
            case = Case(f"{road}-{kind}", deadline_s, "bbr", variant)
            found += [
                _claim(table_number, case, "kernel", EXPENSIVE, kernel[road]),
                _claim(table_number, case, "kernel", MISSED, missed, reason=_LATE if kind == "stream" else _ONE),
                _claim(table_number, case, "mp-dpa-08", EXPENSIVE, share, reason=_ESTIMATE),
                _claim(table_number, case, "mp-dpa-08", MISSED, missed, reason=_LATE if kind == "stream" else _ONE),
            ]
    return found


SAFE_ALPHA = {
    ("symmetric", 10.0): 1.9,
    ("symmetric", 7.5): 1.1,
    ("asymmetric", 10.0): 0.9,
    ("asymmetric", 7.5): 0.8,
}
"""Highest α without a miss (figures 6.17 to 6.20), which is also the best by μ₁ (6.24, 6.25)."""
SAVING_ALPHA = {
    ("symmetric", 10.0): 2.1,
    ("symmetric", 7.5): 1.3,
    ("asymmetric", 10.0): 0.9,
    ("asymmetric", 7.5): 0.8,
}
"""Best α by μ₂ (figures 6.26, 6.27)."""
OVERHEAD = {"single": (0.02, 0.02), "kernel": (0.066, 0.066), "mp-dpa": (0.10, 0.14)}
"""Figure 6.21: bytes sent in excess of the payload."""

ALL = [*STATIC, *STREAMING, *(claim for kind in ("bulk", "stream") for claim in on_roads(kind, "autotuned"))]
"""All published numbers that have a verdict."""
