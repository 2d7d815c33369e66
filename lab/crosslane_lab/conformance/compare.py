"""Compares the simulator with the kernel: the medians of the same scenarios and strategies in both.

The golden file (CSV) has both sides and the verdict on each value. The kernel's side is kept until it is
re-measured, so that a new simulation can be compared with it on a machine that cannot drive. A value that is
outside its tolerance for a known reason is listed in the exceptions (TOML); an exception that is no longer
needed is an error.
"""

import csv
import io
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from crosslane_lab.errors import unreadable
from crosslane_lab.runs.catalog import GAP, GOODPUT, WORST_DELAY, in_order
from crosslane_lab.runs.folder import RunFolder, by_scenario
from crosslane_lab.runs.frame import Spread, spread

SHARE_POINTS = 0.05
GOODPUT_SHARE = 0.10
DELAY_FACTOR = 1.5
DELAY_MS = 20.0
HANDOVERS = 1.0
HANDOVER_SHARE = 0.10

INSIDE, OUTSIDE, REPORTED = "inside", "outside", "reported"

_HANDOVERS, _REINJECTED = "handover.count", "reinjected_bytes"
_METRICS = (GOODPUT, WORST_DELAY, GAP, _HANDOVERS, _REINJECTED)
BY_SEED = (_HANDOVERS,)
"""Metrics that the seed determines through the shadowing: compared over the seeds of the kernel only.
The others vary more by chance than by seed, and are compared over all simulated seeds."""

_SIDE = ("", "_low", "_high", "_runs")
_COLUMNS = (
    *("scenario", "strategy", "metric", "seeds", "kernel_version"),
    *(f"{side}{part}" for side in ("kernel", "simulator") for part in _SIDE),
    "verdict",
)
_REGENERATE = "remove it and run `make conformance`"

Key = tuple[str, str, str]
"""Scenario, strategy, metric."""


@dataclass(frozen=True)
class Figure:
    """One metric of one strategy in one scenario, on both sides; None if a side does not have it.

    `seeds` are those of the valid runs on the kernel.
    """

    key: Key
    seeds: tuple[int, ...]
    kernel_version: str
    kernel: Spread | None
    simulator: Spread | None = None
    verdict: str = ""

    @property
    def name(self) -> str:
        """As `pass-by, threshold: gap_ms.max`."""
        scenario, strategy, metric = self.key
        return f"{scenario}, {strategy}: {metric}"


@dataclass(frozen=True)
class Exemption:
    """Values that are outside their tolerance, and why; metrics may be patterns, as `path.*.share`."""

    scenarios: tuple[str, ...]
    strategies: tuple[str, ...]
    metrics: tuple[str, ...]
    reason: str

    def covers(self, key: Key) -> bool:
        """Whether a value is among them."""
        return any(_matches(single, key) for single in self.each())

    def each(self) -> Iterator[Key]:
        """Every combination."""
        for scenario in self.scenarios:
            for strategy in self.strategies:
                for metric in self.metrics:
                    yield scenario, strategy, metric


def verdict(metric: str, kernel: Spread | None, simulator: Spread | None) -> str:
    """Whether the median of the simulator is within the tolerance around that of the kernel."""
    if metric == _REINJECTED:
        return REPORTED
    if kernel is None or simulator is None:
        return OUTSIDE
    return INSIDE if _agree(metric, kernel.median, simulator.median) else OUTSIDE


def _agree(metric: str, kernel: float, simulator: float) -> bool:
    difference = abs(simulator - kernel)
    slack = 1e-9
    if metric.startswith("path."):
        return difference <= SHARE_POINTS + slack
    if metric == GOODPUT:
        return difference <= GOODPUT_SHARE * kernel + slack
    if metric == _HANDOVERS:
        return difference <= max(HANDOVERS, HANDOVER_SHARE * kernel) + slack
    low, high = sorted((kernel, simulator))
    return difference <= DELAY_MS + slack or high <= DELAY_FACTOR * low + slack


def compare(golden: list[Figure], folders: Iterable[RunFolder]) -> list[Figure]:
    """The golden values updated with those of the folders, and evaluated again.

    Kernel folders replace the kernel's side of their scenario. A scenario that then has one side must have
    the other. Only scenarios with a simulation are returned.
    """
    given = by_scenario(folders)
    kernels = {name: folder for (name, engine), folder in given.items() if engine == "kernel"}
    simulations = {name: folder for (name, engine), folder in given.items() if engine != "kernel"}
    for name in kernels.keys() - simulations.keys():
        raise unreadable(
            kernels[name].path, f"no simulation of {name} is given", "give the folder of the simulator, too"
        )
    figures: list[Figure] = []
    for name, simulation in simulations.items():
        sides = _kernel_side(kernels[name]) if name in kernels else [f for f in golden if f.key[0] == name]
        if not sides:
            cause = f"the golden file has no kernel side of {name}"
            raise unreadable(simulation.path, cause, "give the folder of the kernel, too")
        figures += [_evaluated(figure, simulation) for figure in sides]
    return figures


def updated(golden: list[Figure], figures: list[Figure]) -> list[Figure]:
    """The golden values with those of the figures in place of all of their scenarios; other scenarios stay."""
    scenarios = dict.fromkeys(figure.key[0] for figure in [*golden, *figures])
    again = {figure.key[0] for figure in figures}
    sources = ((name, figures if name in again else golden) for name in scenarios)
    return [figure for name, source in sources for figure in source if figure.key[0] == name]


def _kernel_side(folder: RunFolder) -> list[Figure]:
    version = str(folder.versions.get("kernel", "not known"))
    measured = {name for run in folder.runs for name in run.metrics}
    names = in_order({name for name in measured if _is_share(name)} | set(_METRICS) & measured)
    sides: list[Figure] = []
    for strategy in folder.strategies:
        for name in names:
            runs = folder.valid_runs(strategy)
            seeds = tuple(run.seed for run in runs)
            sides.append(Figure((folder.name, strategy, name), seeds, version, _rounded(spread(runs, name))))
    return sides


def _evaluated(figure: Figure, simulation: RunFolder) -> Figure:
    _, strategy, metric = figure.key
    if strategy not in simulation.strategies:
        raise unreadable(
            simulation.path, f"{strategy} was not simulated", "simulate every strategy that was driven"
        )
    runs = [run for run in simulation.valid_runs(strategy) if run.seed in figure.seeds]
    if len(runs) < len(figure.seeds):
        seeds = ",".join(str(seed) for seed in figure.seeds)
        raise unreadable(
            simulation.path, f"{strategy} lacks a seed", f"simulate those of the kernel: --seed {seeds}"
        )
    stats = _rounded(spread(runs if metric in BY_SEED else simulation.valid_runs(strategy), metric))
    return replace(figure, simulator=stats, verdict=verdict(metric, figure.kernel, stats))


def _is_share(name: str) -> bool:
    return name.startswith("path.") and name.endswith(".share")


def _rounded(stats: Spread | None) -> Spread | None:
    """Rounded as in the golden file, so that the verdict does not depend on writing and reading it."""
    if stats is None:
        return None
    median, low, high = (float(f"{value:.6g}") for value in (stats.median, stats.low, stats.high))
    return Spread(median, low, high, stats.count)


def read_golden(file: Path) -> list[Figure]:
    """The golden file; raises `LabError`. No values if the file does not exist."""
    if not file.exists():
        return []
    try:
        rows = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))
        return [_figure(row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, OverflowError, csv.Error) as error:
        raise unreadable(file, f"not a golden file ({type(error).__name__}: {error})", _REGENERATE) from error


def _figure(row: dict[str, str]) -> Figure:
    if None in row.values() or row["verdict"] not in (INSIDE, OUTSIDE, REPORTED):
        raise ValueError(f"the row of {row['scenario']}, {row['strategy']}: {row['metric']} is not complete")
    seeds = tuple(int(seed) for seed in row["seeds"].split())

    def side(name: str) -> Spread | None:
        if not row[name]:
            return None
        median, low, high, runs = (float(row[f"{name}{part}"]) for part in _SIDE)
        return Spread(median, low, high, int(runs))

    key = (row["scenario"], row["strategy"], row["metric"])
    return Figure(key, seeds, row["kernel_version"], side("kernel"), side("simulator"), row["verdict"])


def golden_text(figures: list[Figure]) -> str:
    """The golden file's text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for figure in figures:
        seeds = " ".join(str(seed) for seed in figure.seeds)
        sides = [*_cells(figure.kernel), *_cells(figure.simulator)]
        writer.writerow([*figure.key, seeds, figure.kernel_version, *sides, figure.verdict])
    return out.getvalue()


def _cells(stats: Spread | None) -> list[str]:
    if stats is None:
        return [""] * 4
    return [f"{value:.6g}" for value in (stats.median, stats.low, stats.high, stats.count)]


def read_exemptions(file: Path) -> list[Exemption]:
    """The exceptions; raises `LabError`. None if the file does not exist."""
    if not file.exists():
        return []
    try:
        entries = tomllib.loads(file.read_text(encoding="utf-8")).get("exception", [])
        return [_exemption(entry) for entry in entries]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = "each [[exception]] has scenario, strategy, metric (a string or a list of strings) and reason"
        raise unreadable(file, f"not a list of exceptions ({type(error).__name__}: {error})", remedy) from error


def _exemption(entry: dict[str, object]) -> Exemption:
    def several(key: str) -> tuple[str, ...]:
        value = entry[key]
        return tuple(str(item) for item in value) if isinstance(value, list) else (str(value),)

    return Exemption(several("scenario"), several("strategy"), several("metric"), str(entry["reason"]).strip())


def _matches(single: Key, key: Key) -> bool:
    return single[:2] == key[:2] and fnmatchcase(key[2], single[2])


def reason_for(figure: Figure, exemptions: list[Exemption]) -> str | None:
    """Why a value may be outside its tolerance, if known."""
    return next((exemption.reason for exemption in exemptions if exemption.covers(figure.key)), None)


def stale_exemptions(figures: list[Figure], exemptions: list[Exemption]) -> list[str]:
    """Exceptions that no value of the given scenarios needs, one message each."""
    names = {figure.key[0] for figure in figures}
    outside = [figure.key for figure in figures if figure.verdict == OUTSIDE]
    singles = (single for exemption in exemptions for single in exemption.each() if single[0] in names)
    unused = [single for single in singles if not any(_matches(single, key) for key in outside)]
    return [f"{s}, {t}: {m} is an exception but within its tolerance; remove it" for s, t, m in unused]


def regressions(figures: list[Figure], golden: list[Figure]) -> list[str]:
    """Values that were inside their tolerance and are outside now, one message each."""
    before = {figure.key: figure.verdict for figure in golden}
    left = [f for f in figures if f.verdict == OUTSIDE and before.get(f.key) == INSIDE]
    return [
        f"{f.name} left its tolerance: the kernel has {_median(f.kernel)}, now {_median(f.simulator)}" for f in left
    ]


def _median(stats: Spread | None) -> str:
    return "none" if stats is None else f"{stats.median:.6g}"
