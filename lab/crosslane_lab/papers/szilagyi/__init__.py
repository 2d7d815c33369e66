"""Szilágyi & Kovács 2022 (MPT-GRE), re-measured on the kernel of this machine: goodput, CPU time, redundancy."""

from pathlib import Path

from crosslane_lab.papers import frame
from crosslane_lab.papers.szilagyi import page
from crosslane_lab.papers.szilagyi.results import CASES, TRAFFIC_START_S
from crosslane_lab.runs.runner import Comparison, scenario

RUNS, SECONDS = (10, 5), (30, 10)
"""Runs of a case with bars and seconds of traffic, as in the paper and with `--quick`; figure 9 is one of 100 s."""


def _plan(options: frame.Options) -> list[Comparison]:
    return [_comparison(case, options) for case in CASES]


def _comparison(case: str, options: frame.Options) -> Comparison:
    one = case == "redundancy"
    edits = {} if one else {"duration_s": f"{SECONDS[options.quick] + 2 * TRAFFIC_START_S:g}"}
    text = scenario(options.scenarios / "szilagyi" / f"{case}.toml", edits)
    seeds = "1" if one else f"1..{RUNS[options.quick]}"
    return Comparison(case, text, CASES[case], seeds, options.engine or "kernel", keep=("messages",))


def _write(results: frame.Results, options: frame.Options) -> list[Path]:
    return page.write(results, options.out)


PAPER = frame.Paper(
    name="szilagyi",
    what="the paper on MPT-GRE: drives all its measurements, an hour and a half",
    claims=page.CLAIMS,
    plan=_plan,
    write=_write,
)
