"""The table of cases with deadlines: the share of each strategy on the expensive path, and the minimum possible."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crosslane_lab.errors import unreadable
from crosslane_lab.pages.command import add_page
from crosslane_lab.pages.made_by import made_by
from crosslane_lab.render.markdown import table
from crosslane_lab.runs.catalog import COST, LEAST_COST, MISSED
from crosslane_lab.runs.folder import Run, RunFolder
from crosslane_lab.runs.frame import Spread, spread, stats

OURS, OVER_MPTCP, THEIRS = "deadline", "deadline-mptcp", "mp-dpa"
MAX_ABOVE_OPTIMUM = 0.02
"""Target: ours sends at most this much more over the expensive path than the optimum (share of the payload)."""

MAX_MISSED_MORE = 0.005
"""An α may miss at most this much more than ours (share of the objects)."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "deadlines", help="make the table of cases with deadlines from several run folders", description=__doc__
    )
    add_page(parser, "run folders; those of one case are combined", "docs/results/deadlines-measured.md", page)


@dataclass(frozen=True)
class Case:
    """A scenario on one engine, with the runs of all its folders."""

    name: str
    engine: str
    expensive_path: str
    runs: tuple[Run, ...]

    def of(self, strategy: str) -> list[Run]:
        """The valid runs of a strategy."""
        return [run for run in self.runs if run.strategy == strategy and run.valid]

    def share(self, strategy: str) -> Spread | None:
        """The share on the expensive path."""
        return spread(self.of(strategy), f"path.{self.expensive_path}.share")

    def missed(self, strategy: str) -> float | None:
        """The share of late objects, over all runs."""
        found = [run.metrics[MISSED] for run in self.of(strategy) if MISSED in run.metrics]
        return sum(found) / len(found) if found else None

    @property
    def optimum(self) -> float | None:
        """The minimum share with our headers, computed with knowledge of the whole run: the median."""
        stats = spread(
            self.of(OURS) or [run for run in self.runs if run.valid], f"path.{self.expensive_path}.share_optimum"
        )
        return stats.median if stats else None

    @property
    def met(self) -> bool | None:
        """Whether our share is at most `MAX_ABOVE_OPTIMUM` above the optimum, without a missed deadline."""
        above, missed = self.above_optimum, self.missed(OURS)
        return None if above is None or missed is None else above <= MAX_ABOVE_OPTIMUM and missed == 0

    @property
    def above_optimum(self) -> float | None:
        """Our median share less the optimum."""
        share, optimum = self.share(OURS), self.optimum
        return None if share is None or optimum is None else share.median - optimum

    @property
    def best_alpha(self) -> tuple[str, float] | None:
        """The MP-DPA variant with the lowest share on the expensive path that misses as little as ours."""
        ours = self.missed(OURS)
        names = {run.strategy for run in self.runs if run.strategy.startswith(THEIRS)}
        found = [
            (stats.median, name)
            for name in names
            if (stats := self.share(name)) and (late := self.missed(name)) is not None
            if ours is not None and late <= ours + MAX_MISSED_MORE
        ]
        return (min(found)[1], min(found)[0]) if found else None


def cases(folders: Sequence[RunFolder]) -> list[Case]:
    """The cases in the folders, by name and engine; raises `LabError` for other traffic or a run given twice."""
    found: dict[tuple[str, str], Case] = {}
    for folder in folders:
        expensive_path = folder.scenario.expensive_path
        if folder.scenario.deadline_s is None or expensive_path is None:
            remedy = "give runs of a scenario of scenarios/deadline"
            raise unreadable(folder.path, "its traffic has no deadlines, or it has no expensive path", remedy)
        key = (folder.name, folder.engine)
        before = found[key].runs if key in found else ()
        known = {(run.strategy, run.seed) for run in before}
        if again := next((run for run in folder.runs if (run.strategy, run.seed) in known), None):
            cause = f"another folder has `{again.strategy}` with seed {again.seed} of {folder.name}, too"
            raise unreadable(folder.path, cause, "give each run once")
        found[key] = Case(folder.name, folder.engine, expensive_path, (*before, *folder.runs))
    return [found[key] for key in sorted(found)]


_COLUMNS = (
    *("case", "engine", "runs", "optimum", "`deadline`", "above", "missed", "met"),
    *("`deadline-mptcp`", "`kernel`", "`kernel-tuned`", "`single`", "`mp-dpa`", "best α", "overhead", "cost"),
)


def page(folders: Sequence[RunFolder]) -> str:
    """The page as Markdown, a function of the folders only."""
    rows = cases(folders)
    verdicts = [case.met for case in rows if case.met is not None]
    lines = [
        "# Deadlines, measured",
        "",
        "Written by `make deadlines`; `docs/design/deadline.md` explains the strategy. Shares of the payload on",
        "the expensive path, in %: medians over the runs (min–max), and after the slash the share of missed",
        "deadlines over all runs. *Optimum*: the minimum possible with knowledge of the whole run; *above* it:",
        f"`deadline`, in points (target: {100 * MAX_ABOVE_OPTIMUM:.0f}, and no deadline missed). *Best α*: the",
        "variant of `mp-dpa` with the lowest such share of those that miss at most half a point more than",
        "`deadline`. Overhead: `deadline` / `kernel`, in % of the payload. Cost: of `deadline`, as a multiple of",
        "the minimum.",
        "",
        made_by(folders),
        "",
        f"Targets met: {verdicts.count(True)} of {len(verdicts)}.",
        "",
        *table(_COLUMNS, map(_cells, rows), "llrrrrrl", compact=True),
    ]
    return "\n".join(lines) + "\n"


def _cells(case: Case) -> list[str]:
    verdict = {True: "yes", False: "no", None: "–"}[case.met]
    best = case.best_alpha
    return [
        f"`{case.name}`",
        case.engine,
        str(len(case.of(OURS))),
        _percent(case.optimum),
        _range(case.share(OURS)),
        _percent(case.above_optimum),
        _percent(case.missed(OURS), 2),
        verdict,
        *(_both(case, strategy) for strategy in (OVER_MPTCP, "kernel", "kernel-tuned", "single", THEIRS)),
        "none" if best is None else f"{_percent(best[1])} (`{best[0]}`)",
        " / ".join(_overheads(case)),
        _cost(case),
    ]


def _percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f}"


def _range(stats: Spread | None) -> str:
    if stats is None:
        return "–"
    return f"{_percent(stats.median)} ({_percent(stats.low)}–{_percent(stats.high)})"


def _both(case: Case, strategy: str) -> str:
    stats, missed = case.share(strategy), case.missed(strategy)
    return "–" if stats is None else f"{_percent(stats.median)} / {_percent(missed)}"


def _overheads(case: Case) -> Iterator[str]:
    for strategy in (OURS, "kernel"):
        stats = spread(case.of(strategy), "overhead_share")
        yield _percent(stats.median if stats else None)


def _cost(case: Case) -> str:
    ratios = stats(
        [run.metrics[COST] / run.metrics[LEAST_COST] for run in case.of(OURS) if run.metrics.get(LEAST_COST)]
    )
    return f"{ratios.median:.2f}" if ratios else "–"
