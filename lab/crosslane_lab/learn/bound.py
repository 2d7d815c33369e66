"""`crosslane-lab learn bound`: what there is to win, and what trees win of it, on drives that no tree has seen.

The bound is the better of both orders in each second, known afterwards: both are run with the same seed, and the
world does not depend on the traffic. It is no strategy's goodput: a change of the order has a cost, and what a
second carries depends on the seconds before it.
"""

import argparse
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from crosslane_lab.errors import unreadable
from crosslane_lab.learn import collect, label, write
from crosslane_lab.learn.collect import KEPT, Case
from crosslane_lab.learn.places import BUFFERS_KB, CLASSES, draw
from crosslane_lab.render.markdown import table
from crosslane_lab.runs.folder import RunFolder
from crosslane_lab.runs.runner import Comparison, Runner, default_program

SCHEDULERS = ("minrtt", "roundrobin", "default")
COLUMNS = ("minrtt", "roundrobin", "default", "wifi-first", "cellular-first", "smartps", "learned", "bound")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("bound", help="compare trees with the best order", description=__doc__)
    parser.add_argument("--drives", type=int, default=20, help="number of drives (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=2, help="of the draws (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once (default: %(default)s)")
    parser.add_argument(
        "--program", type=Path, default=default_program(), metavar="FILE", help="(default: %(default)s)"
    )
    for name in ("smartps", "learned"):
        parser.add_argument(f"--{name}", type=Path, required=True, metavar="TREE", help=f"tree for `{name}`")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/learn"), metavar="DIR", help="(default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page (default: bound.md below the runs)")
    parser.set_defaults(act=_act)


def _act(given: argparse.Namespace) -> None:
    if given.drives < 1 or given.jobs < 1:
        raise unreadable("the draws", "there is nothing to run", "give --drives and --jobs of at least 1")
    root = given.runs / "runs"
    collect.prepare(root, given.seed)
    drives = draw(given.seed, given.drives)
    cases = collect.cases(drives)
    scenarios = root / "scenarios" / str(given.seed)
    for name in ("smartps", "learned"):
        shutil.copyfile(vars(given)[name], scenarios / f"{name}.json")
    # A tree is no part of the scenario's text, so its runs are made again each time.
    for case in cases:
        shutil.rmtree(root / f"{case.name}-trees", ignore_errors=True)
    Runner(given.program, root, parallel=given.jobs).run([*collect.plan(drives), *plan(cases)])
    frame = outcomes(root, cases, collect.table(root, drives))
    out = given.out or given.runs / "bound.md"
    write(out, "\n".join(page(frame)) + "\n")
    frame.write_csv(out.with_suffix(".csv"))
    print(out, out.with_suffix(".csv"), sep="\n")


def plan(cases: list[Case]) -> Iterator[Comparison]:
    """The runs beside those with a fixed order: with the trees, and with other schedulers."""
    trees = {f"with-{name}": (name, f"{name}.json") for name in ("smartps", "learned")}
    for case in cases:
        text = case.drive.scenario(case.buffer_kb, "priority", trees)
        yield Comparison(f"{case.name}-trees", text, tuple(trees), keep=KEPT)
        for scheduler in SCHEDULERS:
            text = case.drive.scenario(case.buffer_kb, scheduler, {})
            yield Comparison(f"{case.name}-{scheduler}", text, ("threshold",), keep=KEPT)


def outcomes(root: Path, cases: list[Case], windows: pl.DataFrame) -> pl.DataFrame:
    """A row per case and way to choose: mean goodput of the windows in Mbit/s, and median delay in ms."""
    bounds = best(windows)
    rows: list[dict[str, object]] = []
    for case in cases:
        key = {"drive": case.drive.number, "kind": case.drive.kind, "buffer_kb": case.buffer_kb}
        for suffix in ("", "-trees", *(f"-{scheduler}" for scheduler in SCHEDULERS)):
            for run in RunFolder.open(root / f"{case.name}{suffix}").runs:
                name = suffix[1:] if run.strategy == "threshold" else run.strategy.removeprefix("with-")
                goodput = collect.windows(run.folder)["goodput_mbit_s"].mean()
                delay = run.metrics.get("delivery_delay_ms.p50")
                rows.append({**key, "by": name, "goodput_mbit_s": goodput, "delay_ms": delay})
        of_case = (pl.col("drive") == case.drive.number) & (pl.col("buffer_kb") == case.buffer_kb)
        bound = bounds.filter(of_case)["goodput_mbit_s"]
        rows.append({**key, "by": "bound", "goodput_mbit_s": bound[0] if len(bound) else None, "delay_ms": None})
    schema = {"drive": pl.Int64, "kind": pl.Utf8, "buffer_kb": pl.Int64, "by": pl.Utf8}
    return pl.DataFrame(rows, schema={**schema, "goodput_mbit_s": pl.Float64, "delay_ms": pl.Float64})


def best(windows: pl.DataFrame) -> pl.DataFrame:
    """Mean goodput of the better order in each second, for each drive and buffer."""
    second = label.HORIZON * collect.WINDOW_NS
    seconds = windows.group_by("drive", "buffer_kb", "prio", pl.col("t_ns") // second).agg(
        pl.mean("goodput_mbit_s")
    )
    better = seconds.group_by("drive", "buffer_kb", "t_ns").agg(pl.max("goodput_mbit_s"))
    return better.group_by("drive", "buffer_kb").agg(pl.mean("goodput_mbit_s")).sort("drive", "buffer_kb")


def page(frame: pl.DataFrame) -> Iterator[str]:
    """Medians by class of drive and buffer, and the least ratio to MinRTT."""
    for buffer_kb in BUFFERS_KB:
        of = frame.filter(pl.col("buffer_kb") == buffer_kb)
        yield f"Send buffer {f'of {buffer_kb} kB' if buffer_kb else 'by autotuning'}, median goodput in Mbit/s:"
        yield ""
        yield from table(["drives", "number", *(f"`{name}`" for name in COLUMNS)], _rows(of), compact=True)
        yield ""
        yield "Each drive compared with `minrtt`:"
        yield ""
        yield from table(
            ["by", "goodput, median ratio", "least", "drives below 0.97", "delay, median ratio"],
            _ratios(of),
            compact=True,
        )
        yield ""


def _rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    for kind in (*CLASSES, "all"):
        of = frame if kind == "all" else frame.filter(pl.col("kind") == kind)
        if of.is_empty():
            continue
        medians = dict(of.group_by("by").agg(pl.median("goodput_mbit_s")).iter_rows())
        yield [kind, str(of["drive"].n_unique()), *(f"{medians[name]:.1f}" for name in COLUMNS)]


def _ratios(frame: pl.DataFrame) -> Iterator[list[str]]:
    reference = frame.filter(pl.col("by") == "minrtt").select("drive", goodput="goodput_mbit_s", delay="delay_ms")
    joined = frame.join(reference, on="drive").with_columns(
        ratio=pl.col("goodput_mbit_s") / pl.col("goodput"), late=pl.col("delay_ms") / pl.col("delay")
    )
    for name in COLUMNS[1:]:
        of = joined.filter(pl.col("by") == name)
        late = of["late"].median()
        yield [
            f"`{name}`",
            f"{of['ratio'].median():.2f}",
            f"{of['ratio'].min():.2f}",
            str(of.filter(pl.col("ratio") < 0.97).height),
            f"{late:.2f}" if late is not None else "",
        ]
