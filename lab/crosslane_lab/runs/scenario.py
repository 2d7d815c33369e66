"""The parts of a resolved scenario (`scenario.json`) that the lab uses."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosslane_lab.errors import unreadable

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
            return _scenario(json.loads(file.read_text(encoding="utf-8")))
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
    service, traffic, paths = data["service"], data["traffic"], data["paths"]
    bounds = [entry for entry in data["expect"] if "metric" in entry]
    return Scenario(
        paths=tuple(path["name"] for path in paths),
        cells=tuple(path["name"] for path in paths if path["link"] == "cellular"),
        wires=tuple(path["name"] for path in paths if path["link"] == "wire"),
        prefer=tuple(service["prefer"]),
        mode=service["mode"],
        congestion=data["congestion"],
        traffic=traffic["kind"],
        protocol=traffic["protocol"],
        direction=traffic["direction"],
        deadline_s=traffic.get("deadline_s"),
        objects=traffic.get("objects"),
        prices=service["cost_per_gb"],
        late_ms=service.get("late_ms", 200),
        baselines=frozenset(entry["name"] for entry in data["strategies"] if entry["kind"] == "baseline"),
        roadside_units=len(data["roadside_units"]),
        is_fleet=data["fleet"] is not None,
        crossings=tuple(
            Crossing(entry["crossing"], entry["threshold_dbm"], entry["direction"], tuple(entry["between_s"]))
            for entry in data["expect"]
            if "crossing" in entry
        ),
        outages=_outages(paths, data["roadside_units"]),
        expected_metrics=tuple(dict.fromkeys(entry["metric"] for entry in bounds)),
    )


def _outages(
    paths: list[dict[str, Any]], units: list[dict[str, Any]]
) -> dict[str, tuple[tuple[float, float], ...]]:
    """Intervals in which a path is down by the scenario: those of its link, or of its only roadside unit."""
    radios = [unit["radio"] for unit in units]
    spans = {unit["radio"]: unit["outages_s"] for unit in units if radios.count(unit["radio"]) == 1}
    spans |= {path["name"]: path.get("outages_s", []) for path in paths if path["link"] != "radio"}
    return {path: tuple((a, b) for a, b in each) for path, each in spans.items() if each}
