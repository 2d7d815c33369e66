"""Holds the simulator against the kernel: the same scenarios and strategies in both, median against median.

The golden file (CSV) keeps both sides and the verdict on each figure; the kernel's side stays as it is until
it is measured again, so that a fresh simulation can be held against it where no drive can run. A figure that
lies outside its tolerance for a known reason is listed in the exceptions (TOML), which must not outlive it.
"""

import csv
import io
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from crosslane_lab.errors import unreadable
from crosslane_lab.metrics import GAP, GOODPUT, WORST_DELAY, Spread, in_order, spread
from crosslane_lab.run import RunFolder

SHARE_POINTS = 0.05
GOODPUT_SHARE = 0.10
DELAY_FACTOR = 1.5
DELAY_MS = 20.0
HANDOVERS = 1.0
HANDOVER_SHARE = 0.10

INSIDE, OUTSIDE, REPORTED = "inside", "outside", "reported"

_HANDOVERS, _REINJECTED = "handover.count", "reinjected_bytes"
_FIGURES = (GOODPUT, WORST_DELAY, GAP, _HANDOVERS, _REINJECTED)
BY_SEED = (_HANDOVERS,)
"""What the seed decides, by the shadowing that it draws: held against the simulator over the kernel's seeds only.
For the rest, chance beyond the seed weighs more, and all seeds simulated count."""

_SIDE = ("", "_low", "_high", "_runs")
_COLUMNS = (
    *("scenario", "strategy", "metric", "seeds", "kernel_version"),
    *(f"{side}{part}" for side in ("kernel", "simulator") for part in _SIDE),
    "verdict",
)
_AFRESH = "remove it and run `make conformance`"

Key = tuple[str, str, str]
"""Scenario, strategy, metric."""


@dataclass(frozen=True)
class Figure:
    """One metric of one strategy in one scenario, on both sides; None where a side does not have it.

    `seeds` are those of the kernel's valid runs.
    """

    key: Key
    seeds: tuple[int, ...]
    kernel_version: str
    kernel: Spread | None
    simulator: Spread | None = None
    verdict: str = ""

    @property
    def words(self) -> str:
        """The figure by name, as `pass-by, threshold: gap_ms.max`."""
        scenario, strategy, metric = self.key
        return f"{scenario}, {strategy}: {metric}"


@dataclass(frozen=True)
class Excuse:
    """Figures that lie outside their tolerance, and why; metrics may be patterns as `path.*.share`."""

    scenarios: tuple[str, ...]
    strategies: tuple[str, ...]
    metrics: tuple[str, ...]
    reason: str

    def covers(self, key: Key) -> bool:
        """Whether a figure is among them."""
        return any(_matches(single, key) for single in self.each())

    def each(self) -> Iterator[Key]:
        """Every single combination."""
        for scenario in self.scenarios:
            for strategy in self.strategies:
                for metric in self.metrics:
                    yield scenario, strategy, metric


def verdict(metric: str, kernel: Spread | None, simulator: Spread | None) -> str:
    """Whether the simulator's median lies within the tolerance around the kernel's."""
    if metric == _REINJECTED:
        return REPORTED
    if kernel is None or simulator is None:
        return OUTSIDE
    return INSIDE if _agree(metric, kernel.median, simulator.median) else OUTSIDE


def _agree(metric: str, kernel: float, simulator: float) -> bool:
    apart = abs(simulator - kernel)
    slack = 1e-9
    if metric.startswith("path."):
        return apart <= SHARE_POINTS + slack
    if metric == GOODPUT:
        return apart <= GOODPUT_SHARE * kernel + slack
    if metric == _HANDOVERS:
        return apart <= max(HANDOVERS, HANDOVER_SHARE * kernel) + slack
    low, high = sorted((kernel, simulator))
    return apart <= DELAY_MS + slack or high <= DELAY_FACTOR * low + slack


def compare(golden: list[Figure], folders: Iterable[RunFolder]) -> list[Figure]:
    """The golden figures with what the folders measured in their place, judged anew.

    Kernel folders replace the kernel's side of their scenario; each scenario that is then there on one
    side must be there on the other. Only scenarios of which a simulation is given are returned.
    """
    folders = list(folders)
    kernels = {folder.name: folder for folder in folders if folder.engine == "kernel"}
    simulations = {folder.name: folder for folder in folders if folder.engine != "kernel"}
    for name in kernels.keys() - simulations.keys():
        raise unreadable(
            kernels[name].path, f"no simulation of {name} is given", "give the simulator's folder, too"
        )
    figures: list[Figure] = []
    for name, simulation in simulations.items():
        sides = _kernel_side(kernels[name]) if name in kernels else [f for f in golden if f.key[0] == name]
        if not sides:
            cause = f"the golden file has no kernel's side of {name}"
            raise unreadable(simulation.path, cause, "give the kernel's folder, too")
        figures += [_judged(figure, simulation) for figure in sides]
    return figures


def _kernel_side(folder: RunFolder) -> list[Figure]:
    version = str(folder.versions.get("kernel", "not known"))
    measured = {name for run in folder.runs for name in run.metrics}
    names = in_order({name for name in measured if _is_share(name)} | set(_FIGURES) & measured)
    sides: list[Figure] = []
    for strategy in folder.strategies:
        for name in names:
            runs = folder.valid_runs(strategy)
            seeds = tuple(run.seed for run in runs)
            sides.append(Figure((folder.name, strategy, name), seeds, version, _rounded(spread(runs, name))))
    return sides


def _judged(figure: Figure, simulation: RunFolder) -> Figure:
    _, strategy, metric = figure.key
    if strategy not in simulation.strategies:
        raise unreadable(
            simulation.path, f"{strategy} was not simulated", "simulate every strategy that was driven"
        )
    runs = [run for run in simulation.valid_runs(strategy) if run.seed in figure.seeds]
    if len(runs) < len(figure.seeds):
        seeds = ",".join(str(seed) for seed in figure.seeds)
        raise unreadable(simulation.path, f"{strategy} lacks a seed", f"simulate the kernel's: --seed {seeds}")
    over = _rounded(spread(runs if metric in BY_SEED else simulation.valid_runs(strategy), metric))
    return replace(figure, simulator=over, verdict=verdict(metric, figure.kernel, over))


def _is_share(name: str) -> bool:
    return name.startswith("path.") and name.endswith(".share")


def _rounded(over: Spread | None) -> Spread | None:
    """As the golden file holds it, so that a verdict is the same before and after."""
    if over is None:
        return None
    median, low, high = (float(f"{value:.6g}") for value in (over.median, over.low, over.high))
    return Spread(median, low, high, over.count)


def read_golden(file: Path) -> list[Figure]:
    """The golden file; raises `LabError`. None is written yet: no figures."""
    if not file.exists():
        return []
    try:
        rows = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))
        return [_figure(row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise unreadable(file, f"not a golden file ({type(error).__name__}: {error})", _AFRESH) from error


def _figure(row: dict[str, str]) -> Figure:
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


def _cells(over: Spread | None) -> list[str]:
    if over is None:
        return [""] * 4
    return [f"{value:.6g}" for value in (over.median, over.low, over.high, over.count)]


def read_excuses(file: Path) -> list[Excuse]:
    """The exceptions; raises `LabError`. Where there is no file there is none."""
    if not file.exists():
        return []
    try:
        entries = tomllib.loads(file.read_text(encoding="utf-8")).get("exception", [])
        return [_excuse(entry) for entry in entries]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = "each [[exception]] has scenario, strategy, metric (a text or a list of them) and reason"
        raise unreadable(file, f"not a list of exceptions ({type(error).__name__}: {error})", remedy) from error


def _excuse(entry: dict[str, object]) -> Excuse:
    def several(key: str) -> tuple[str, ...]:
        value = entry[key]
        return tuple(str(item) for item in value) if isinstance(value, list) else (str(value),)

    return Excuse(several("scenario"), several("strategy"), several("metric"), str(entry["reason"]).strip())


def _matches(single: Key, key: Key) -> bool:
    return single[:2] == key[:2] and fnmatchcase(key[2], single[2])


def reason_for(figure: Figure, excuses: list[Excuse]) -> str | None:
    """Why a figure may lie outside, if that is known."""
    return next((excuse.reason for excuse in excuses if excuse.covers(figure.key)), None)


def outlived(figures: list[Figure], excuses: list[Excuse]) -> list[str]:
    """Exceptions without a figure that needs them, among the scenarios at hand, one sentence each."""
    names = {figure.key[0] for figure in figures}
    outside = [figure.key for figure in figures if figure.verdict == OUTSIDE]
    singles = (single for excuse in excuses for single in excuse.each() if single[0] in names)
    gone = [single for single in singles if not any(_matches(single, key) for key in outside)]
    return [f"{s}, {t}: {m} is an exception, but lies within its tolerance; take it out" for s, t, m in gone]


def left_tolerance(figures: list[Figure], golden: list[Figure]) -> list[str]:
    """Figures that lay inside and lie outside, one sentence each."""
    was = {figure.key: figure.verdict for figure in golden}
    left = [f for f in figures if f.verdict == OUTSIDE and was.get(f.key) == INSIDE]
    return [
        f"{f.words} left its tolerance: the kernel has {_median(f.kernel)}, now {_median(f.simulator)}"
        for f in left
    ]


def _median(over: Spread | None) -> str:
    return "none" if over is None else f"{over.median:.6g}"
