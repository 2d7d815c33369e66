"""The metrics of a run: names and units as in docs/reference/metrics.md, medians and ranges over the seeds."""

import json
import re
from dataclasses import dataclass, replace
from importlib.resources import files
from math import floor, log10
from statistics import median

from crosslane_lab.run import Run, RunFolder

WORST_DELAY = "delivery_delay_ms.max"
HANDOVER_DELAY = "handover_delay_ms.max"
GAP = "gap_ms.max"
GOODPUT = "goodput_mbit_s"
RECOVERY = "recovery_ms"
LOST = "messages.lost"
MISSED = "deadline.missed_share"
COST = "cost"
LEAST_COST = "cost_optimum"


_DIGITS = 3
_MOST_PLACES = 6


@dataclass(frozen=True)
class Metric:
    """How a metric is shown; `better` is "low", "high" or "" if neither is better."""

    name: str
    label: str
    unit: str
    better: str = ""


def _known() -> list[Metric]:
    """The metrics of `crosslane catalog --json`, in the order in which tables have them."""
    entries = json.loads(files("crosslane_lab").joinpath("catalog.json").read_text(encoding="utf-8"))["metrics"]
    units: dict[str, str] = {"0–1": "%", "count": "", "currency": ""}
    return [
        Metric(e["name"], e["label"], units.get(str(e["unit"]), str(e["unit"])), e["better"].replace("neither", ""))
        for e in entries
    ]


_KNOWN = _known()
_ORDER = {metric.name: rank for rank, metric in enumerate(_KNOWN)}


def describe(name: str) -> Metric:
    """A metric by name; one that the catalogue lacks has no unit."""
    if name in _ORDER:
        return _KNOWN[_ORDER[name]]
    for quantile_of_vehicles in (".vehicles_p10", ".vehicles_p90"):
        if name.endswith(quantile_of_vehicles):
            return replace(describe(name.removesuffix(quantile_of_vehicles)), name=name, label=name)
    of_path = re.fullmatch(r"path\.(?P<path>.+)\.(?P<what>\w+)", name)
    rank = _ORDER.get(f"path.NAME.{of_path['what']}") if of_path else None
    if of_path is None or rank is None:
        return Metric(name, name, "")
    known = _KNOWN[rank]
    return replace(known, name=name, label=known.label.replace("NAME", str(of_path["path"])))


def in_order(names: set[str]) -> list[str]:
    """Metric names in the order of docs/reference/metrics.md; shares after the goodput, unknown names last."""

    def rank(name: str) -> tuple[float, str]:
        share = name.startswith("path.")
        return (_ORDER[GOODPUT] + 0.5 if share else _ORDER.get(name, len(_ORDER)), name)

    return sorted(names, key=rank)


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest value of a metric over `count` valid runs."""

    median: float
    low: float
    high: float
    count: int


def spread(runs: list[Run], metric: str) -> Spread | None:
    """The spread of a metric over the runs that have it; None if no run has it."""
    values = [run.metrics[metric] for run in runs if metric in run.metrics]
    return Spread(median(values), min(values), max(values), len(values)) if values else None


def quantile(values: list[float], share: float) -> float:
    """The quantile of the values at `share` (0 to 1), with linear interpolation."""
    ranked = sorted(values)
    position = share * (len(ranked) - 1)
    below = floor(position)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (position - below) * (ranked[above] - ranked[below])


def worst(runs: list[Run], metric: str) -> float | None:
    """The value of the worst run; None if no run has the metric."""
    stats = spread(runs, metric)
    if stats is None:
        return None
    return stats.low if describe(metric).better == "high" else stats.high


def representative(folder: RunFolder, strategy: str) -> Run:
    """The median run of a strategy by worst delay (without this metric: by pause, then by goodput).

    For an even number of runs, the lower of the two middle ones. The strategy must have a run.
    """
    runs = folder.shown_runs(strategy)
    key = next((m for m in (WORST_DELAY, GAP, GOODPUT) if all(m in r.metrics for r in runs)), None)
    ranked = sorted(runs, key=lambda run: (run.metrics[key] if key else 0.0, run.seed))
    return ranked[(len(ranked) - 1) // 2]


def number(value: float, unit: str = "") -> str:
    """A value with at most three significant digits, thin spaces between thousands, and its unit."""
    if unit == "%":
        value *= 100
    places = _DIGITS - 1 - floor(log10(abs(value))) if value else 0
    digits = min(max(places, 0), _MOST_PLACES)
    if digits < _DIGITS and abs(round(value, digits)) >= 10 ** (_DIGITS - digits):
        digits = max(digits - 1, 0)
    text = f"{value:,.{digits}f}".replace(",", "\u202f").replace("-", "−")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"{text}\u00a0{unit}" if unit else text


def spread_text(stats: Spread, unit: str = "") -> str:
    """The median with its range, as `27 ms (24–31)`; for a single run only the median."""
    if stats.count == 1 or stats.low == stats.high:
        return number(stats.median, unit)
    bare = "%" if unit == "%" else ""
    low, high = (number(v, bare).removesuffix("\u00a0%") for v in (stats.low, stats.high))
    return f"{number(stats.median, unit)} ({low}–{high})"


def were(count: int) -> str:
    """The verb that agrees with a count: `1 run was`, `2 runs were`."""
    return "was" if count == 1 else "were"


def duration_ratio(ratio: float) -> str:
    """A ratio of two durations in words: `33 times as long`, `just as long`."""
    if 0.95 < ratio < 1.05:
        return "just as long"
    return f"{ratio:.0f} times as long" if ratio >= 9.95 else f"{ratio:.1f} times as long"
