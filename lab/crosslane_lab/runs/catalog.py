"""The metrics that there are: labels, units and order as in docs/reference/scenario.md."""

import json
import re
from dataclasses import dataclass, replace
from importlib.resources import files

WORST_DELAY = "delivery_delay_ms.max"
HANDOVER_DELAY = "handover_delay_ms.max"
GAP = "gap_ms.max"
READ_GAP = "read_gap_ms.max"
DELIVERED = "delivered_bytes"
GOODPUT = "goodput_mbit_s"
RECOVERY = "recovery_ms"
LOST = "messages.lost"
LATE = "late_share"
COPIES = "copied_bytes"
MISSED = "deadline.missed_share"
COST = "cost"
LEAST_COST = "cost_optimum"


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
    """Metric names in the order of docs/reference/scenario.md; shares after the goodput, unknown names last."""

    def rank(name: str) -> tuple[float, str]:
        share = name.startswith("path.")
        return (_ORDER[GOODPUT] + 0.5 if share else _ORDER.get(name, len(_ORDER)), name)

    return sorted(names, key=rank)
