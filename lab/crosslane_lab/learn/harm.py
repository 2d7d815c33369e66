"""`crosslane-lab learn harm`: in which drives a tree brings less than MinRTT, by means of several runs of each.

Much of what one run of a drive shows is chance. So each drive is simulated several times, each time with all delays
0.02 ms longer, and the means are compared: of the tree if it is left alone, and with the trials in which a vehicle
compares it with its fallback, by which a tree that does harm is withdrawn.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import polars as pl

from crosslane_lab.errors import unreadable
from crosslane_lab.learn import collect, repeat, tree, write
from crosslane_lab.learn.bound import buffer_text, digests
from crosslane_lab.learn.collect import Case
from crosslane_lab.learn.places import draw
from crosslane_lab.output import write_file
from crosslane_lab.pages.made_by import made_by
from crosslane_lab.papers.frame import DASH
from crosslane_lab.render.markdown import table
from crosslane_lab.runs.catalog import GOODPUT
from crosslane_lab.runs.folder import Run, RunFolder
from crosslane_lab.runs.runner import Comparison, Runner

HARM = 0.97
"""A ratio to MinRTT below this is harm."""
TREE = "learned"
WITHOUT, WITH = "without-trials", "with-trials"
"""The strategies with the tree; the second has the program's own trials."""
_STRATEGY = f"""
[[strategy]]
name = "{WITH}"
base = "{TREE}"
tree = "{TREE}.json"
"""
CASE = ("drive", "kind", "traffic", "buffer_kb")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("harm", help="show where a tree does harm", description=__doc__)
    collect.add_draws(parser, drives=40, seed=2)
    parser.add_argument("--repeats", type=int, default=8, help="runs of each drive (default: %(default)s)")
    parser.add_argument(f"--{TREE}", type=Path, required=True, metavar="TREE", help=f"tree for `{TREE}`")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/learn"), metavar="DIR", help="(default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page (default: harm.md below the runs)")
    parser.set_defaults(act=_act)


def _act(given: argparse.Namespace) -> None:
    if min(given.drives, given.jobs) < 1 or given.repeats < 2:
        raise unreadable("the draws", "there is nothing to compare", "give counts of at least 1, 2 of --repeats")
    root = given.runs / "runs"
    chosen = collect.cases(draw(given.seed, given.drives), given.traffic)
    runs = [chosen, *(repeat.again(chosen, number) for number in range(1, given.repeats))]
    write(root / "scenarios" / str(given.seed) / f"{TREE}.json", tree.unseen(given.learned, given.seed))
    planned = [*plan(root, list(chain(*runs)))]
    Runner(given.program, root, parallel=given.jobs).run(planned)
    made = made_by(RunFolder.open(root / each.name) for each in planned)
    frame = ratios(outcomes(root, runs))
    out = given.out or given.runs / "harm.md"
    write(out, "\n".join([*page(frame), "", made]) + "\n")
    write_file(out.with_suffix(".csv"), frame.write_csv())
    print(out, out.with_suffix(".csv"), sep="\n")


def plan(root: Path, chosen: Sequence[Case]) -> Iterator[Comparison]:
    """The runs: each case with the tree, without and with trials, and with MinRTT."""
    strategy = {WITHOUT: (TREE, f"{TREE}.json")}
    for case in chosen:
        digest = digests(root / "scenarios" / str(case.drive.seed), [TREE])
        text = digest + case.scenario("priority", strategy) + _STRATEGY
        yield Comparison(f"{case.name}-harm", text, (WITHOUT, WITH), keep=("windows", "events"))
        yield Comparison(f"{case.name}-harm-minrtt", case.scenario("minrtt", {}), ("threshold",))


def outcomes(root: Path, runs: Sequence[Sequence[Case]]) -> pl.DataFrame:
    """A row per run: its case, what chose the paths, goodput in Mbit/s, and whether the tree was withdrawn."""
    rows = [
        {
            "drive": case.drive.number,
            "kind": case.drive.kind,
            "traffic": case.traffic,
            "buffer_kb": case.buffer_kb,
            "by": "minrtt" if run.strategy == "threshold" else run.strategy,
            "goodput_mbit_s": run.metrics.get(GOODPUT, 0.0),
            "withdrawn": run.strategy == WITH and _is_withdrawn(run),
        }
        for case in chain(*runs)
        for suffix in ("harm", "harm-minrtt")
        for run in RunFolder.open(root / f"{case.name}-{suffix}").runs
    ]
    return pl.DataFrame(rows)


def _is_withdrawn(run: Run) -> bool:
    return any(event.text("rule") == "learned.withdrawn" for event in run.events_of("agent", "order"))


def ratios(frame: pl.DataFrame) -> pl.DataFrame:
    """A row per case: ratios of mean goodputs to MinRTT's, their standard errors, and the share withdrawn.

    A case in which MinRTT delivered nothing has no ratio.
    """
    mean = pl.col("goodput_mbit_s").mean()
    error = ((pl.col("goodput_mbit_s").var() / pl.len()).sqrt() / mean).fill_nan(0.0)
    groups = frame.group_by(*CASE, "by", maintain_order=True)
    means = groups.agg(mean=mean, error=error, withdrawn=pl.col("withdrawn").mean())
    minrtt = means.filter(pl.col("by") == "minrtt").select(*CASE, of_minrtt="mean", error_of_minrtt="error")
    both = means.filter(pl.col("by") != "minrtt").join(minrtt, on=CASE, maintain_order="left")
    ratio = pl.when(pl.col("of_minrtt") > 0).then(pl.col("mean") / pl.col("of_minrtt"))
    error = ratio * (pl.col("error").pow(2) + pl.col("error_of_minrtt").pow(2)).sqrt()
    each = both.select(*CASE, "by", ratio=ratio, error=error, withdrawn="withdrawn")
    return each.pivot("by", index=CASE, values=["ratio", "error", "withdrawn"]).drop(f"withdrawn_{WITHOUT}")


def page(frame: pl.DataFrame) -> Iterator[str]:
    """A row per kind of traffic and buffer, and the cases with harm."""
    head = ["median", "least", f"below {HARM}", "with trials: median", "least", f"below {HARM}", "withdrawn"]
    groups = frame.select("traffic", "buffer_kb").unique(maintain_order=True).rows()
    each = [
        [traffic, buffer_text(size), *_cells(frame.filter(traffic=traffic, buffer_kb=size))]
        for traffic, size in groups
    ]
    yield from table(["traffic", "buffer", *head], [*each, ["all", "", *_cells(frame)]], "ll", compact=True)
    yield ""
    harm = frame.filter((pl.col(f"ratio_{WITHOUT}") < HARM) | (pl.col(f"ratio_{WITH}") < HARM))
    names = [f"{what}_{by}" for by in (WITHOUT, WITH) for what in ("ratio", "error")]
    rows = [
        [f"{drive}", kind, traffic, buffer_text(size), *(f"{value:.2f}" for value in values)]
        for drive, kind, traffic, size, *values in harm.select(*CASE, *names).rows()
    ]
    head = ["ratio", "standard error", "with trials: ratio", "standard error"]
    yield from table(["drive", "class", "traffic", "buffer", *head], rows, "rlll", compact=True)


def _cells(frame: pl.DataFrame) -> Iterator[str]:
    for by in (WITHOUT, WITH):
        ratio = frame[f"ratio_{by}"]
        yield from (DASH if value is None else f"{value:.2f}" for value in (ratio.median(), ratio.min()))
        yield f"{(ratio < HARM).sum()} of {ratio.count()}"
    yield f"{frame[f'withdrawn_{WITH}'].mean():.1%}"
