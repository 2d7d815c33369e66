"""Nota 2020 (MP-DPA): chapter 6, re-simulated and compared with the published values."""

from dataclasses import replace
from pathlib import Path

from crosslane_lab.papers import frame
from crosslane_lab.papers.nota import page, published
from crosslane_lab.papers.nota.cases import comparison, plan
from crosslane_lab.papers.nota.results import RECORDED, Results
from crosslane_lab.runs.runner import Comparison


def _plan(options: frame.Options) -> list[Comparison]:
    planned = [comparison(case, options.scenarios, options.quick) for case in plan()]
    recorded = [
        replace(
            comparison(case, options.scenarios),
            name=f"recorded/{case.name}",
            strategies=strategies,
            seeds="1",
            keep=("throughput", "messages"),
        )
        for case, strategies in RECORDED.items()
    ]
    engine = options.engine or "simulator"
    return [replace(each, engine=engine) for each in (*planned, *recorded)]


def _write(results: frame.Results, options: frame.Options) -> list[Path]:
    return page.write(Results(results), options.out)


PAPER = frame.Paper(
    name="nota",
    what="the thesis on MP-DPA: simulates all its measurements, some minutes",
    claims=published.ALL,
    plan=_plan,
    write=_write,
)
