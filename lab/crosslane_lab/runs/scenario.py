"""The parts of a scenario that the lab uses: paths, traffic, strategies, threshold crossings."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosslane_lab.errors import unreadable

BASELINES = ("single", "kernel", "kernel-tuned")
"""The strategies that every comparison includes; all others are compared with them."""


@dataclass(frozen=True)
class Crossing:
    """A threshold that the mean signal of a path crosses, from an `[[expect]]` of the scenario."""

    path: str
    threshold_dbm: float
    direction: str
    between_s: tuple[float, float]


@dataclass(frozen=True)
class Scenario:
    """A scenario as it was run. Every key has a default."""

    text: str
    paths: tuple[str, ...]
    cells: tuple[str, ...]
    prefer: tuple[str, ...]
    mode: str
    traffic: str
    direction: str
    period_ms: float | None
    deadline_s: float | None
    prices: dict[str, float]
    bases: dict[str, str]
    roadside_units: int
    is_fleet: bool
    crossings: tuple[Crossing, ...]
    outages: dict[str, tuple[tuple[float, float], ...]]
    expected_metrics: tuple[str, ...]
    limits: dict[tuple[str, str], float]

    @staticmethod
    def read(file: Path) -> "Scenario":
        """Read `scenario.toml`; raises `LabError`."""
        remedy = "give a folder that `crosslane drive` wrote"
        try:
            text = file.read_text(encoding="utf-8")
            data = tomllib.loads(text)
            return _scenario(text, data)
        except FileNotFoundError:
            raise unreadable(file, "the file is missing", remedy) from None
        except (OSError, ValueError) as error:
            raise unreadable(file, f"not TOML ({error})", remedy) from error
        except (KeyError, TypeError, AttributeError) as error:
            cause = f"not a scenario ({type(error).__name__}: {error})"
            raise unreadable(file, cause, "`crosslane check` reports the error") from error

    @staticmethod
    def unknown() -> "Scenario":
        """A scenario with all values at their defaults."""
        return _scenario("", {})

    def base(self, strategy: str) -> str:
        """The base of a strategy: its name if the scenario does not define it."""
        return self.bases.get(strategy, strategy)

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

    def is_baseline(self, strategy: str) -> bool:
        """Whether a strategy is one of the baselines."""
        return self.base(strategy) in BASELINES


def _scenario(text: str, data: dict[str, Any]) -> Scenario:
    service, traffic = data.get("service", {}), data.get("traffic", {})
    expects = data.get("expect", [])
    expects = [expects] if isinstance(expects, dict) else expects
    every, deadline = traffic.get("every_ms"), traffic.get("deadline_s")
    return Scenario(
        text=text,
        paths=tuple(entry["name"] for kind in ("radio", "wifi", "cellular") for entry in data.get(kind, [])),
        cells=tuple(entry["name"] for entry in data.get("cellular", [])),
        prefer=tuple(service.get("prefer", ())),
        mode=service.get("mode", "aggregate"),
        traffic=traffic.get("kind", "messages"),
        direction=traffic.get("direction", "up"),
        period_ms=None if every is None else float(every),
        deadline_s=None if deadline is None else float(deadline),
        prices={path: float(price) for path, price in service.get("cost_per_gb", {}).items()},
        bases={s["name"]: s.get("base", s["name"]) for s in data.get("strategy", [])},
        roadside_units=len(data.get("roadside_unit", [])),
        is_fleet="fleet" in data,
        crossings=tuple(_crossing(e) for e in expects if "crossing" in e),
        outages=_outages(data),
        expected_metrics=tuple(dict.fromkeys(e["metric"] for e in expects if "metric" in e)),
        limits={(e["strategy"], e["metric"]): float(e["at_most"]) for e in expects if "at_most" in e},
    )


def _crossing(expect: dict[str, Any]) -> Crossing:
    begin, end = expect.get("between_s", (0.0, float("inf")))
    threshold = float(expect["threshold_dbm"])
    return Crossing(expect["crossing"], threshold, expect.get("direction", "below"), (float(begin), float(end)))


def _outages(data: dict[str, Any]) -> dict[str, tuple[tuple[float, float], ...]]:
    """Intervals in which a path is down by the scenario: `outages_s` of its link, or of its only roadside unit."""
    units = [(unit["radio"], _outages_of(unit)) for unit in data.get("roadside_unit", [])]
    only_units = [(path, spans) for path, spans in units if sum(p == path for p, _ in units) == 1]
    links = [
        (link["name"], _outages_of(link)) for kind in ("cellular", "wifi", "wire") for link in data.get(kind, [])
    ]
    return {path: tuple((float(a), float(b)) for a, b in spans) for path, spans in only_units + links if spans}


def _outages_of(table: dict[str, Any]) -> Any:  # noqa: ANN401
    """`outages_s`, which the previous version called `silent_s`."""
    return table.get("outages_s", table.get("silent_s", ()))
