"""A run folder as `crosslane drive` and `crosslane simulate` write it (docs/reference/records.md, "Run folder").

`RunFolder.open` reads and checks the summary. The scenario and the records of a run are read on first use, these
as lazy polars frames whose columns have the documented types.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from crosslane_lab.errors import first_line, unreadable
from crosslane_lab.runs import tables
from crosslane_lab.runs.scenario import Scenario
from crosslane_lab.runs.tables import RERUN
from crosslane_lab.runs.values import is_number, loads, number_of

KNOWN_SCHEMA = 1

_FORMER_KEYS = {"because": "reason", "health": "liveness"}
_FORMER_VALUES = {
    "belief": {"stuck": "stalled"},
    "liveness": {"new": "unknown", "good": "up", "asked": "probing", "lost": "down", "trial": "recovering"},
}


def current_names(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of an event or of a run in the summary, with the names of the previous version replaced."""
    renamed = {_FORMER_KEYS.get(key, key): value for key, value in fields.items()}
    for key, values in _FORMER_VALUES.items():
        if key in renamed:
            renamed[key] = values.get(str(renamed[key]), renamed[key])
    return renamed


@dataclass(frozen=True)
class Event:
    """One line of `events.jsonl`; `fields` holds the fields of this kind of event, under their current names."""

    t_s: float
    source: str
    event: str
    fields: dict[str, Any]

    def text(self, field: str) -> str:
        """A field as text, empty where it is absent or null."""
        value = self.fields.get(field)
        return "" if value is None else str(value)


@dataclass(frozen=True)
class Run:
    """One strategy with one seed; `reason` is why it is invalid. Records are read lazily and raise `LabError`."""

    strategy: str
    seed: int
    folder: Path
    valid: bool
    attempts: int
    reason: str
    metrics: dict[str, float]

    @property
    def packets(self) -> pl.LazyFrame:
        """Every packet on every emulated link."""
        return self.table("packets")

    @property
    def throughput(self) -> pl.LazyFrame:
        """Bytes delivered per path and direction in each 100 ms."""
        return self.table("throughput")

    @property
    def samples(self) -> pl.LazyFrame:
        """Signal samples as the on-board unit received them, and the vehicle's CAMs as RSUs did."""
        return self.table("samples")

    @property
    def tcp_info(self) -> pl.LazyFrame:
        """State of each subflow, at least ten times a second."""
        return self.table("tcp_info")

    @property
    def messages(self) -> pl.LazyFrame:
        """Times at which each message was sent and received."""
        return self.table("messages")

    @property
    def links(self) -> pl.LazyFrame:
        """Ground truth of each link, 100 times a second."""
        return self.table("links")

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """All events in order of time."""
        return _read_events(self.folder / "events.jsonl")

    def events_of(self, source: str, *names: str) -> list[Event]:
        """The events of one source, of the given names or of all."""
        return [e for e in self.events if e.source == source and (not names or e.event in names)]

    def table(self, name: str) -> pl.LazyFrame:
        """A record file by name, with exactly the columns and types of `TABLES`."""
        return tables.read(self.folder / f"{name}.arrow")


@dataclass(frozen=True)
class Expectation:
    """One `[[expect]]` of the scenario as the drive evaluated it; `ok` is None if its strategy was not run."""

    text: str
    ok: bool | None
    value: float | None

    @property
    def verdict(self) -> str:
        """`ok`, `not ok`, or `not run`."""
        return "not run" if self.ok is None else "ok" if self.ok else "not ok"


@dataclass(frozen=True)
class RunFolder:
    """A comparison: several strategies with several seeds."""

    path: Path
    name: str
    title: str
    engine: str
    duration_s: float
    strategies: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: tuple[Run, ...]
    expectations: tuple[Expectation, ...]
    versions: dict[str, Any]

    @staticmethod
    def open(path: Path) -> "RunFolder":
        """Read and check a run folder's summary and versions; raises `LabError`."""
        if not path.is_dir():
            raise unreadable(path, "no such folder", "give the folder that `crosslane drive --out` wrote")
        file = path / "summary.json"
        summary = _read_object(file, "give the folder that `crosslane drive --out` wrote")
        schema = summary.get("schema")
        if schema != KNOWN_SCHEMA:
            raise unreadable(file, f"schema {schema!r} is not the known {KNOWN_SCHEMA}", _other_version(schema))
        versions_file = path / "versions.json"
        get = _Getter(file, summary)
        if "/" in (name := get("scenario", str)) or "\0" in name:
            raise unreadable(file, "`scenario` is no name of a scenario", RERUN)
        return RunFolder(
            path=path,
            name=name,
            title=get("title", str, ""),
            engine=get("engine", str),
            duration_s=get.number("duration_s"),
            strategies=tuple(get.list_of("strategies", str)),
            seeds=tuple(get.list_of("seeds", int)),
            runs=tuple(_run(path, _Getter(file, entry)) for entry in get("runs", list)),
            expectations=tuple(_expectation(_Getter(file, e)) for e in get("expect", list, [])),
            versions=_read_object(versions_file, RERUN) if versions_file.exists() else {},
        )

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario with all defaults; raises `LabError`."""
        return Scenario.read(self.path / "scenario.json")

    @property
    def scenario_text(self) -> str:
        """The scenario as its author wrote it; empty if the folder lacks it."""
        file = self.path / "scenario.toml"
        try:
            return file.read_text(encoding="utf-8") if file.is_file() else ""
        except UnicodeDecodeError as error:
            raise unreadable(file, first_line(error), RERUN) from error

    def valid_runs(self, strategy: str) -> list[Run]:
        """The valid runs of a strategy, in order of seed."""
        return sorted((r for r in self.runs if r.strategy == strategy and r.valid), key=lambda r: r.seed)

    def shown_runs(self, strategy: str) -> list[Run]:
        """The runs of a strategy to show: the valid ones or, if there are none, the invalid ones."""
        of_strategy = sorted((r for r in self.runs if r.strategy == strategy), key=lambda r: r.seed)
        return self.valid_runs(strategy) or of_strategy

    @property
    def measured(self) -> list[str]:
        """The strategies with at least one run, in the order of the command line."""
        return [s for s in self.strategies if self.shown_runs(s)]

    @property
    def only_invalid(self) -> list[str]:
        """The strategies without a valid run; their figures are marked as such."""
        return [s for s in self.measured if not self.valid_runs(s)]

    @property
    def invalid(self) -> list[Run]:
        """The runs excluded from all medians."""
        return [r for r in self.runs if not r.valid]


def by_scenario(folders: Iterable[RunFolder]) -> dict[tuple[str, str], RunFolder]:
    """Run folders by scenario and engine; raises `LabError` for two of the same, of which one would be lost."""
    found: dict[tuple[str, str], RunFolder] = {}
    for folder in folders:
        first = found.setdefault((folder.name, folder.engine), folder)
        if first is not folder:
            cause = f"{first.path} has {folder.name} on the same engine ({folder.engine})"
            raise unreadable(folder.path, cause, "give one of them")
    return found


class _Getter:
    """Typed access to a JSON object, with errors that name the file and the key."""

    def __init__(self, file: Path, data: object) -> None:
        self.file = file
        if not isinstance(data, dict):
            raise unreadable(file, "expected an object", RERUN)
        self.data: dict[str, Any] = data

    def __call__(self, key: str, kind: type | tuple[type, ...], default: object = None) -> Any:  # noqa: ANN401
        value = self.data.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, kind):
            problem = "is missing" if key not in self.data else "has the wrong type"
            raise unreadable(self.file, f"`{key}` {problem}", RERUN)
        return value

    def number(self, key: str) -> float:
        """A number that a drive can have, as a metric."""
        value = self(key, (int, float))
        if not isinstance(value, bool) and not is_number(value):
            shown = f"{value:.3g}" if isinstance(value, float) else "a number of many digits"
            raise unreadable(self.file, f"`{key}` is {shown}, which no drive has", RERUN)
        return float(value)

    def list_of(self, key: str, kind: type) -> list[Any]:
        """A list of values of a kind."""
        values = self(key, list)
        if not all(isinstance(value, kind) for value in values):
            raise unreadable(self.file, f"`{key}` has the wrong type", RERUN)
        return values


def _run(root: Path, get: _Getter) -> Run:
    get.data = current_names(get.data)
    strategy, seed = get("strategy", str), get("seed", int)
    values = _Getter(get.file, {k: v for k, v in get("metrics", dict, {}).items() if isinstance(v, int | float)})
    metrics = {name: values.number(name) for name in values.data}
    folder = get("folder", str, f"runs/{strategy}-{seed}")
    return Run(
        strategy=strategy,
        seed=seed,
        folder=_inside(root, folder),
        valid=get("valid", bool),
        attempts=get("attempts", int, 1),
        reason=get("reason", str, ""),
        metrics=metrics,
    )


def _inside(root: Path, folder: str) -> Path:
    """A run's folder; its path is relative to the run folder or to the drive's working directory."""
    direct = root / folder
    return direct if direct.is_dir() else root / "runs" / Path(folder).name


def _expectation(get: _Getter) -> Expectation:
    value = get.data.get("value")
    number = float(value) if is_number(value) else None
    ok = get.data.get("ok")
    return Expectation(get("text", str), ok if isinstance(ok, bool) else None, number)


def _other_version(schema: object) -> str:
    newer = isinstance(schema, int) and schema > KNOWN_SCHEMA
    return "install a newer crosslane-lab" if newer else RERUN


def _read_object(file: Path, remedy: str) -> dict[str, Any]:
    try:
        value = loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise unreadable(file, "the file is missing", remedy) from None
    except (OSError, ValueError) as error:
        raise unreadable(file, f"not JSON ({first_line(error)})", remedy) from error
    if not isinstance(value, dict):
        raise unreadable(file, "not a JSON object", remedy)
    return value


def _read_events(file: Path) -> tuple[Event, ...]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(file, first_line(error), RERUN) from error
    events = [_event(file, line_number, line) for line_number, line in enumerate(lines, 1) if line.strip()]
    return tuple(sorted(events, key=lambda event: event.t_s))


def _event(file: Path, line_number: int, line: str) -> Event:
    try:
        fields = loads(line)
        t_s = number_of(fields, "t_s")
        del fields["t_s"]
        return Event(t_s, str(fields.pop("source")), str(fields.pop("event")), current_names(fields))
    except (ValueError, KeyError, TypeError, AttributeError):
        where = f"{file} line {line_number}"
        raise unreadable(where, "not an event with `t_s`, `source` and `event`", RERUN) from None
