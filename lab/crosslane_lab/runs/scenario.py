"""The parts of a resolved scenario (`scenario.json`) that the lab uses."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosslane_lab.errors import unreadable
from crosslane_lab.runs.values import list_of, loads, number_of, optional_number, span_of, text_of

Spans = tuple[tuple[float, float], ...]
"""Intervals, in s."""


@dataclass(frozen=True)
class Crossing:
    """A threshold that the mean signal of a path crosses, from an `[[expect]]` of the scenario."""

    path: str
    threshold_dbm: float
    direction: str
    between_s: tuple[float, float]


@dataclass(frozen=True)
class Scenario:
    """A scenario as it was run."""

    paths: tuple[str, ...]
    cells: tuple[str, ...]
    wires: tuple[str, ...]
    prefer: tuple[str, ...]
    mode: str
    congestion: str
    traffic: str
    protocol: str
    direction: str
    deadline_s: float | None
    objects: int | None
    prices: dict[str, float]
    late_ms: float
    baselines: frozenset[str]
    roadside_units: int
    is_fleet: bool
    crossings: tuple[Crossing, ...]
    outages: dict[str, Spans]
    expected_metrics: tuple[str, ...]

    @staticmethod
    def read(file: Path) -> "Scenario":
        """Read `scenario.json`; raises `LabError`."""
        remedy = "run it again with this version of crosslane"
        try:
            return _scenario(loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise unreadable(file, "the file is missing: an earlier version wrote the folder", remedy) from None
        except (OSError, ValueError) as error:
            raise unreadable(file, f"not JSON ({error})", remedy) from error
        except (KeyError, TypeError, AttributeError) as error:
            raise unreadable(file, f"not a scenario ({type(error).__name__}: {error})", remedy) from error

    @property
    def expensive_path(self) -> str | None:
        """The path with the highest price per byte; without prices the least preferred one."""
        if self.prices:
            return max(self.prices, key=lambda path: self.prices[path])
        return self.prefer[-1] if len(self.prefer) > 1 else None

    @property
    def expects_recovery(self) -> bool:
        """Whether a path is expected to recover: a mean signal to rise above a threshold."""
        return any(crossing.direction == "above" for crossing in self.crossings)


def _scenario(data: dict[str, Any]) -> Scenario:
    service, traffic, paths = data["service"], data["traffic"], list_of(data, "paths", dict)
    expected, units = list_of(data, "expect", dict), list_of(data, "roadside_units", dict)
    links = {text_of(path, "name"): text_of(path, "link") for path in paths}
    objects = optional_number(traffic, "objects")
    return Scenario(
        paths=tuple(links),
        cells=tuple(name for name, link in links.items() if link == "cellular"),
        wires=tuple(name for name, link in links.items() if link == "wire"),
        prefer=tuple(list_of(service, "prefer", str)),
        mode=text_of(service, "mode"),
        congestion=text_of(data, "congestion"),
        traffic=text_of(traffic, "kind"),
        protocol=text_of(traffic, "protocol"),
        direction=text_of(traffic, "direction"),
        deadline_s=optional_number(traffic, "deadline_s"),
        objects=None if objects is None else int(objects),
        prices={path: number_of(service["cost_per_gb"], path) for path in service["cost_per_gb"]},
        late_ms=number_of(service, "late_ms") if "late_ms" in service else 200.0,
        baselines=frozenset(
            text_of(entry, "name")
            for entry in list_of(data, "strategies", dict)
            if text_of(entry, "kind") == "baseline"
        ),
        roadside_units=len(units),
        is_fleet=data["fleet"] is not None,
        crossings=tuple(_crossing(entry) for entry in expected if "crossing" in entry),
        outages=_outages(paths, units),
        expected_metrics=tuple(dict.fromkeys(text_of(entry, "metric") for entry in expected if "metric" in entry)),
    )


def _crossing(entry: dict[str, Any]) -> Crossing:
    between_s = span_of(entry["between_s"], "between_s")
    path, threshold_dbm = text_of(entry, "crossing"), number_of(entry, "threshold_dbm")
    return Crossing(path, threshold_dbm, text_of(entry, "direction"), between_s)


def _outages(paths: list[dict[str, Any]], units: list[dict[str, Any]]) -> dict[str, Spans]:
    """Intervals in which a path is down by the scenario: those of its link, or of its only roadside unit."""
    radios = [text_of(unit, "radio") for unit in units]
    spans = {unit["radio"]: unit["outages_s"] for unit in units if radios.count(unit["radio"]) == 1}
    spans |= {path["name"]: path.get("outages_s", []) for path in paths if path["link"] != "radio"}
    return {path: tuple(span_of(pair, "outages_s") for pair in each) for path, each in spans.items() if each}
