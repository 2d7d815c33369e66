"""What the lab needs to know of a scenario: its paths, its traffic, its strategies, its crossings."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosslane_lab.errors import unreadable

BASELINES = ("single", "kernel", "kernel-tuned")
"""The strategies that stand in every comparison; all others are held against them."""


@dataclass(frozen=True)
class Crossing:
    """A threshold that the mean signal of a path crosses, from an `[[expect]]` of the scenario."""

    path: str
    threshold_dbm: float
    direction: str
    between_s: tuple[float, float]


@dataclass(frozen=True)
class Scenario:
    """A scenario as it was run. Everything here has a default, so a scenario may leave it out."""

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
    units: int
    many: bool
    crossings: tuple[Crossing, ...]
    silent: dict[str, tuple[tuple[float, float], ...]]
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
            raise unreadable(file, cause, "`crosslane check` says what is wrong with it") from error

    @staticmethod
    def unknown() -> "Scenario":
        """A scenario of which nothing is known."""
        return _scenario("", {})

    def base(self, strategy: str) -> str:
        """The base of a strategy: its own name where the scenario does not define it."""
        return self.bases.get(strategy, strategy)

    @property
    def dearest(self) -> str | None:
        """The path whose bytes cost most; without prices the one that is preferred least."""
        if self.prices:
            return max(self.prices, key=lambda path: self.prices[path])
        return self.prefer[-1] if len(self.prefer) > 1 else None

    @property
    def comes_back(self) -> bool:
        """Whether the drive is about a path that comes back: some signal is expected to rise above a threshold."""
        return any(crossing.direction == "above" for crossing in self.crossings)

    def is_baseline(self, strategy: str) -> bool:
        """Whether a strategy is what others are compared with."""
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
        units=len(data.get("roadside_unit", [])),
        many="fleet" in data,
        crossings=tuple(_crossing(e) for e in expects if "crossing" in e),
        silent=_silences(data),
        expected_metrics=tuple(dict.fromkeys(e["metric"] for e in expects if "metric" in e)),
        limits={(e["strategy"], e["metric"]): float(e["at_most"]) for e in expects if "at_most" in e},
    )


def _crossing(expect: dict[str, Any]) -> Crossing:
    begin, end = expect.get("between_s", (0.0, float("inf")))
    threshold = float(expect["threshold_dbm"])
    return Crossing(expect["crossing"], threshold, expect.get("direction", "below"), (float(begin), float(end)))


def _silences(data: dict[str, Any]) -> dict[str, tuple[tuple[float, float], ...]]:
    """Times in which a path is off by the scenario: `silent_s` of its link, or of its only roadside unit."""
    units = [(u["radio"], u.get("silent_s", ())) for u in data.get("roadside_unit", [])]
    alone = [(path, spans) for path, spans in units if sum(p == path for p, _ in units) == 1]
    cells = [
        (c["name"], c.get("silent_s", ())) for kind in ("cellular", "wifi", "wire") for c in data.get(kind, [])
    ]
    return {path: tuple((float(a), float(b)) for a, b in spans) for path, spans in alone + cells if spans}
