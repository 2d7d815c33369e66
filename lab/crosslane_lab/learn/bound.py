"""`crosslane-lab learn bound`: what there is to win, and what trees win of it, on drives that no tree has seen.

The bound is the better of both orders in each second, known afterwards; `bound-alone` is the best of all choices,
either path alone too. All are run with the same seed, and the world does not depend on the traffic. A bound is no
strategy's goodput: a change of the order has a cost, and what a
second carries depends on the seconds before it.
"""

import argparse
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path

import polars as pl

from crosslane_lab.errors import first_line, unreadable
from crosslane_lab.learn import collect, label, tree, write
from crosslane_lab.learn.collect import KEPT, Case
from crosslane_lab.learn.places import BUFFERS_KB, CLASSES, TRAFFICS, draw
from crosslane_lab.output import write_file
from crosslane_lab.pages.made_by import made_by
from crosslane_lab.render.markdown import table
from crosslane_lab.runs.folder import RunFolder
from crosslane_lab.runs.runner import Comparison, Runner

TREES = ("smartps", "learned")
BOUNDS = {"bound": tuple(collect.FIRST), "bound-alone": tuple(collect.PRIOS.values())}
"""The choices that each bound has."""
SCHEDULERS = ("minrtt", "roundrobin", "default")
COLUMNS = (
    *SCHEDULERS,
    *collect.FIRST.values(),
    *collect.ALONE.values(),
    *TREES,
    *BOUNDS,
)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("bound", help="compare trees with the best order", description=__doc__)
    collect.add_draws(parser, drives=20, seed=2)
    for name in TREES:
        parser.add_argument(f"--{name}", type=Path, required=True, metavar="TREE", help=f"tree for `{name}`")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/learn"), metavar="DIR", help="(default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page (default: bound.md below the runs)")
    parser.set_defaults(act=_act)


def _act(given: argparse.Namespace) -> None:
    if min(given.drives, given.jobs) < 1:
        raise unreadable("the draws", "there is nothing to run", "give counts of at least 1")
    root = given.runs / "runs"
    chosen = collect.cases(draw(given.seed, given.drives), given.traffic)
    prepare(root, given.seed, {name: vars(given)[name] for name in TREES})
    planned = [*collect.plan(chosen), *plan(root, chosen)]
    Runner(given.program, root, parallel=given.jobs).run(planned)
    made = made_by(RunFolder.open(root / each.name) for each in planned)
    frame = outcomes(root, chosen, collect.table(root, chosen))
    out = given.out or given.runs / "bound.md"
    write(out, "\n".join([*page(frame), made]) + "\n")
    write_file(out.with_suffix(".csv"), frame.write_csv())
    print(out, out.with_suffix(".csv"), sep="\n")


def prepare(root: Path, seed: int, trees: dict[str, Path]) -> None:
    """Put the trees, by strategy, beside the scenarios that name them."""
    collect.prepare(root, seed)
    for name, file in trees.items():
        write(root / "scenarios" / str(seed) / f"{name}.json", tree.unseen(file, seed))


def plan(root: Path, chosen: list[Case]) -> Iterator[Comparison]:
    """The runs beside those with a fixed order: with the trees, and with other schedulers."""
    trees = {f"with-{name}": (name, f"{name}.json") for name in TREES}
    for case in chosen:
        text = digests(root / "scenarios" / str(case.drive.seed), TREES) + case.scenario("priority", trees)
        yield Comparison(f"{case.name}-trees", text, tuple(trees), keep=KEPT)
        for scheduler in SCHEDULERS:
            text = case.scenario(scheduler, {})
            yield Comparison(f"{case.name}-{scheduler}", text, ("threshold",), keep=KEPT)


def digests(folder: Path, trees: Iterable[str]) -> str:
    """Comments with the digests of trees in a folder, so that runs with other trees are stale."""
    lines: list[str] = []
    for name in trees:
        file = folder / f"{name}.json"
        try:
            lines.append(f"# {file.name}: SHA-256 {hashlib.sha256(file.read_bytes()).hexdigest()}\n")
        except OSError as error:
            raise unreadable(file, first_line(error), "make it with `crosslane-lab learn train`") from error
    return "".join(lines)


def outcomes(root: Path, chosen: list[Case], windows: pl.DataFrame) -> pl.DataFrame:
    """A row per case and way to choose: mean goodput of the windows in Mbit/s, and median delay in ms."""
    bounds = {name: best(windows, choices) for name, choices in BOUNDS.items()}
    rows: list[dict[str, object]] = []
    for case in chosen:
        key = {"drive": case.drive.number, "traffic": case.traffic, "buffer_kb": case.buffer_kb}
        for suffix in ("", "-trees", *(f"-{scheduler}" for scheduler in SCHEDULERS)):
            for run in RunFolder.open(root / f"{case.name}{suffix}").runs:
                name = suffix[1:] if run.strategy == "threshold" else run.strategy.removeprefix("with-")
                goodput = collect.windows(run.folder)["goodput_mbit_s"].mean()
                delay = run.metrics.get("delivery_delay_ms.p50")
                kind = case.drive.kind
                rows.append({**key, "kind": kind, "by": name, "goodput_mbit_s": goodput, "delay_ms": delay})
        for by, goodputs in bounds.items():
            bound = goodputs.filter(*(pl.col(name) == value for name, value in key.items()))["goodput_mbit_s"]
            most = bound[0] if len(bound) else None
            rows.append({**key, "kind": case.drive.kind, "by": by, "goodput_mbit_s": most, "delay_ms": None})
    texts = dict.fromkeys(("traffic", "kind", "by"), pl.Utf8)
    schema = {"drive": pl.Int64, "buffer_kb": pl.Int64, **texts}
    return pl.DataFrame(rows, schema={**schema, "goodput_mbit_s": pl.Float64, "delay_ms": pl.Float64})


def best(windows: pl.DataFrame, choices: Sequence[str] = BOUNDS["bound"]) -> pl.DataFrame:
    """Mean goodput of the best choice in each second, for each drive, kind of traffic and buffer."""
    own = label.KEYS[:-1]
    second = label.HORIZON * collect.WINDOW_NS
    seconds = (
        windows.filter(pl.col("prio").is_in(choices))
        .group_by(*own, "prio", pl.col("t_ns") // second)
        .agg(pl.mean("goodput_mbit_s"))
    )
    better = seconds.group_by(*own, "t_ns").agg(pl.max("goodput_mbit_s"))
    return better.group_by(own).agg(pl.mean("goodput_mbit_s")).sort(own)


def page(frame: pl.DataFrame) -> Iterator[str]:
    """For each kind of traffic and buffer medians by class of drive, and the ratios to MinRTT."""
    for traffic, buffer_kb in product(TRAFFICS, BUFFERS_KB):
        of = frame.filter(pl.col("traffic") == traffic, pl.col("buffer_kb") == buffer_kb)
        if of.is_empty():
            continue
        yield f"Traffic `{traffic}`, send buffer {buffer_text(buffer_kb)}, median goodput in Mbit/s:"
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


def buffer_text(buffer_kb: int) -> str:
    """A send buffer in words."""
    return f"of {buffer_kb} kB" if buffer_kb else "by autotuning"


def _rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    for kind in (*CLASSES, "all"):
        of = frame if kind == "all" else frame.filter(pl.col("kind") == kind)
        if of.is_empty():
            continue
        medians = dict(of.group_by("by").agg(pl.median("goodput_mbit_s")).iter_rows())
        yield [kind, str(of["drive"].n_unique()), *(f"{medians[name]:.1f}" for name in COLUMNS)]


def ratios(frame: pl.DataFrame) -> pl.DataFrame:
    """Each row with its goodput (`ratio`) and delay (`late`) relative to those of MinRTT in the same case."""
    own = ("drive", "traffic", "buffer_kb")
    reference = frame.filter(pl.col("by") == "minrtt").select(*own, goodput="goodput_mbit_s", delay="delay_ms")
    return frame.join(reference, on=own).with_columns(
        ratio=pl.col("goodput_mbit_s") / pl.col("goodput"), late=pl.col("delay_ms") / pl.col("delay")
    )


def _ratios(frame: pl.DataFrame) -> Iterator[list[str]]:
    joined = ratios(frame)
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
