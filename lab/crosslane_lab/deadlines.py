"""The table of cases with deadlines: how near each strategy came to the least that the dear path had to carry."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crosslane_lab.errors import unreadable
from crosslane_lab.metrics import COST, LEAST_COST, MISSED, Spread, spread
from crosslane_lab.run import Run, RunFolder

OURS, THEIRS = "deadline", "mp-dpa"
MOST_MISSED = 0.005
"""An α misses as little as ours if it misses at most so much more (share of the objects)."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Enter the command among the others."""
    parser = commands.add_parser(
        "deadlines", help="make the table of cases with deadlines from several run folders", description=__doc__
    )
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="DIR", help="run folders; those of one case belong together"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="the page, as docs/deadlines-measured.md"
    )
    parser.set_defaults(act=_act)


def _act(options: argparse.Namespace) -> None:
    options.out.write_text(page([RunFolder.open(path) for path in options.runs]), encoding="utf-8")
    print(options.out)


@dataclass(frozen=True)
class Case:
    """A scenario on one engine, whatever folders its runs lie in."""

    name: str
    engine: str
    dear: str
    to_reach: float | None
    runs: tuple[Run, ...]

    def of(self, strategy: str) -> list[Run]:
        """The valid runs of a strategy."""
        return [run for run in self.runs if run.strategy == strategy and run.valid]

    def share(self, strategy: str) -> Spread | None:
        """What went over the dear path."""
        return spread(self.of(strategy), f"path.{self.dear}.share")

    def missed(self, strategy: str) -> float | None:
        """The share of all objects of all runs that were late."""
        found = [run.metrics[MISSED] for run in self.of(strategy) if MISSED in run.metrics]
        return sum(found) / len(found) if found else None

    @property
    def optimum(self) -> float | None:
        """The least possible share, known afterwards: the median."""
        over = spread([run for run in self.runs if run.valid], f"path.{self.dear}.share_optimum")
        return over.median if over else None

    @property
    def reached(self) -> bool | None:
        """Whether ours spared the dear path as it should, and missed nothing."""
        share, missed = self.share(OURS), self.missed(OURS)
        if share is None or missed is None or self.to_reach is None:
            return None
        return share.median <= self.to_reach and missed == 0

    @property
    def best_alpha(self) -> tuple[str, float] | None:
        """The variant of the thesis's rule that sends least over the dear path and misses as little as ours."""
        ours = self.missed(OURS)
        names = {run.strategy for run in self.runs if run.strategy.startswith(THEIRS)}
        found = [
            (over.median, name)
            for name in names
            if (over := self.share(name)) and (late := self.missed(name)) is not None
            if ours is not None and late <= ours + MOST_MISSED
        ]
        return (min(found)[1], min(found)[0]) if found else None


def cases(folders: list[RunFolder]) -> list[Case]:
    """The cases that the folders hold, by name and engine; raises `LabError` for other traffic."""
    found: dict[tuple[str, str], Case] = {}
    for folder in folders:
        dear = folder.scenario.dearest
        if folder.scenario.deadline_s is None or dear is None:
            remedy = "give runs of a scenario of scenarios/deadline"
            raise unreadable(folder.path, "its traffic has no deadlines, or no path that is dearer", remedy)
        key = (folder.name, folder.engine)
        before = found[key].runs if key in found else ()
        to_reach = folder.scenario.limits.get((OURS, f"path.{dear}.share"))
        found[key] = Case(folder.name, folder.engine, dear, to_reach, (*before, *folder.runs))
    return [found[key] for key in sorted(found)]


_BEFORE = ("case", "engine", "runs", "optimum", "to reach", "`deadline`", "missed", "reached")
_AFTER = ("`kernel`", "`kernel-tuned`", "`single`", "`mp-dpa`", "best α", "overhead", "cost")


def page(folders: list[RunFolder]) -> str:
    """The page as Markdown. The same folders give the same text."""
    rows = cases(folders)
    judged = [case.reached for case in rows if case.reached is not None]
    lines = [
        "# Deadlines, measured",
        "",
        "Made by `make deadlines`; `docs/deadlines.md` says what it means. Shares of the payload that went over",
        "the dear path, in %: medians over the runs (least–greatest), and after a stroke the share of deadlines",
        "missed over all runs. *Optimum*: the least possible, known afterwards. *Best α*: the variant of `mp-dpa`",
        "that sends least over the dear path of those that miss at most half a point more than `deadline`.",
        "Overhead: `deadline` / `kernel`, in % of the payload. Cost: of `deadline`, as a multiple of the least.",
        "",
        f"Reached: {judged.count(True)} of {len(judged)}.",
        "",
        "| " + " | ".join(_BEFORE + _AFTER) + " |",
        "|---|---|" + "---:|" * 5 + "---|" + "---:|" * len(_AFTER),
        *(_row(case) for case in rows),
    ]
    return "\n".join(lines) + "\n"


def _row(case: Case) -> str:
    verdict = {True: "yes", False: "no", None: "–"}[case.reached]
    best = case.best_alpha
    cells = [
        f"`{case.name}`",
        case.engine,
        str(len(case.of(OURS))),
        _percent(case.optimum),
        _percent(case.to_reach),
        _range(case.share(OURS)),
        _percent(case.missed(OURS), 2),
        verdict,
        *(_both(case, strategy) for strategy in ("kernel", "kernel-tuned", "single", THEIRS)),
        "none" if best is None else f"{_percent(best[1])} (`{best[0]}`)",
        " / ".join(_overheads(case)),
        _cost(case),
    ]
    return "| " + " | ".join(cells) + " |"


def _percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f}"


def _range(over: Spread | None) -> str:
    if over is None:
        return "–"
    return f"{_percent(over.median)} ({_percent(over.low)}–{_percent(over.high)})"


def _both(case: Case, strategy: str) -> str:
    over, missed = case.share(strategy), case.missed(strategy)
    return "–" if over is None else f"{_percent(over.median)} / {_percent(missed)}"


def _overheads(case: Case) -> Iterator[str]:
    for strategy in (OURS, "kernel"):
        over = spread(case.of(strategy), "overhead_share")
        yield _percent(over.median if over else None)


def _cost(case: Case) -> str:
    ratios = sorted(
        run.metrics[COST] / run.metrics[LEAST_COST] for run in case.of(OURS) if run.metrics.get(LEAST_COST)
    )
    return f"{ratios[len(ratios) // 2]:.2f}" if ratios else "–"
