"""`crosslane-lab learn collect`: drives simulated with each choice of the paths, a table of their windows.

A row is a window of 250 ms of one drive, with one kind of traffic, one send buffer and one choice: either path
first, either alone, or neither, when the packet scheduler selects a path for each packet. It has what the agent
measured of both paths in it, the goodput of the following window, and the mean delay of the 64-kB blocks that were
delivered in that one. Of files the delay is null here; a second table has a row for each file, with its delay and
goodput. Runs that exist are not made again.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import polars as pl

from crosslane_lab import columns
from crosslane_lab.errors import first_line, unreadable
from crosslane_lab.learn import tree, write
from crosslane_lab.learn.places import BUFFERS_KB, TRAFFICS, Drive, draw
from crosslane_lab.progress import Progress
from crosslane_lab.runs.folder import RunFolder
from crosslane_lab.runs.runner import Comparison, Runner, add_jobs, add_program

WINDOW_NS = 250_000_000
PATHS = ("wifi", "cellular")
QUANTITIES = tree.QUANTITIES
FIRST = {"WF": "wifi-first", "LF": "cellular-first"}
"""The orders, by the names of the paper, with the strategies that have them."""
ALONE = {"WO": "wifi-alone", "LO": "cellular-alone"}
"""The same with the other path in reserve: Wi-Fi only, LTE only; the paper has no such choice."""
NO_ORDER = "no-order"
"""The strategy that leaves the choice to the packet scheduler, with the same name of its tree and its fallback."""
PRIOS = {name: order for order, name in (FIRST | ALONE).items()} | {NO_ORDER: "NO"}
DATA, FILES = "windows.parquet", "files.parquet"
MAKE = "make it with `crosslane-lab learn collect`"
KEPT = ("windows", "messages")
"""Records that `windows` reads."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "collect", help="simulate drives with each choice of the paths", description=__doc__
    )
    add_draws(parser, drives=40, seed=1)
    parser.add_argument("--tunnel", action="store_true", help="choices of the tunnel, instead of MPTCP's")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/learn"), metavar="DIR", help="(default: %(default)s)"
    )
    parser.set_defaults(act=_act)


def _act(given: argparse.Namespace) -> None:
    if given.drives < 1 or given.jobs < 1:
        raise unreadable("the draws", "there is nothing to run", "give --drives and --jobs of at least 1")
    root = given.out / "runs"
    prepare(root, given.seed)
    chosen = cases(draw(given.seed, given.drives), given.traffic, given.tunnel)
    Runner(given.program, root, parallel=given.jobs).run(plan(chosen))
    for name, frame in ((DATA, table(root, chosen)), (FILES, files(root, chosen))):
        if not frame.is_empty():
            file = given.out / (f"tunnel-{name}" if given.tunnel else name)
            frame.write_parquet(file)
            print(file)


def add_draws(parser: argparse.ArgumentParser, drives: int, seed: int) -> None:
    """Add the options that draw drives and kinds of traffic, and run them."""
    parser.add_argument("--drives", type=int, default=drives, help="number of drives (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=seed, help="of the draws (default: %(default)s)")
    names = list(TRAFFICS)
    parser.add_argument(
        "--traffic",
        nargs="+",
        choices=names,
        default=names,
        metavar="KIND",
        help=f"{', '.join(names)} (default: all)",
    )
    add_program(parser)
    add_jobs(parser)


@dataclass(frozen=True)
class Case:
    """A drive with a kind of traffic and a send buffer; `in_tunnel`: its strategies are those of the tunnel."""

    drive: Drive
    traffic: str
    buffer_kb: int
    in_tunnel: bool = False

    @property
    def name(self) -> str:
        """Folder of its runs with either path first."""
        tunnel = "-tunnel" if self.in_tunnel else ""
        return f"{self.drive.seed}/{self.drive.number}-{self.traffic}-{self.buffer_kb}{tunnel}"

    def scenario(self, scheduler: str, trees: dict[str, tuple[str, str]]) -> str:
        """The scenario of the drive with this traffic and buffer."""
        return self.drive.scenario(self.buffer_kb, scheduler, trees, self.traffic, self.in_tunnel)


def cases(drives: list[Drive], traffics: Sequence[str] = tuple(TRAFFICS), in_tunnel: bool = False) -> list[Case]:
    """Each drive with each kind of traffic and each send buffer."""
    return [Case(*each, in_tunnel) for each in product(drives, traffics, BUFFERS_KB)]


def prepare(root: Path, seed: int) -> None:
    """Write the trees that always say the same, beside the scenarios that name them."""
    trees = {
        "wifi-first": tree.text("smartps", [{"a_first": 1.0}], {}),
        "cellular-first": tree.text("smartps", [{"a_first": 0.0}], {}),
        "wifi-alone": tree.text("smartps", [{"a_first": 1.0, "alone": True}], {}),
        "cellular-alone": tree.text("smartps", [{"a_first": 0.0, "alone": True}], {}),
        NO_ORDER: tree.text("learned", [{"a_first": 0.5}], {}, NO_ORDER),
    }
    for name, content in trees.items():
        file = root / "scenarios" / str(seed) / f"{name}.json"
        if not file.is_file() or file.read_text(encoding="utf-8") != content:
            write(file, content)


def plan(chosen: list[Case]) -> Iterator[Comparison]:
    """The runs: each case with each choice."""
    trees = {name: ("smartps", f"{name}.json") for name in (FIRST | ALONE).values()}
    trees[NO_ORDER] = ("learned", f"{NO_ORDER}.json")
    for case in chosen:
        yield Comparison(case.name, case.scenario("priority", trees), tuple(trees), keep=KEPT)


def table(root: Path, chosen: Sequence[Case]) -> pl.DataFrame:
    """The windows of all runs."""
    return _of_runs(root, chosen, lambda case, run: windows(run, is_bulk=case.traffic.startswith("bulk")))


def orders(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows with either path first."""
    return frame.filter(pl.col("prio").is_in(list(FIRST)))


def files(root: Path, chosen: list[Case]) -> pl.DataFrame:
    """A row per file that arrived: its number and size, when it was sent, its delay and its goodput."""
    named = [case for case in chosen if not case.traffic.startswith("bulk")]
    return _of_runs(root, named, lambda _, run: _files(run)) if named else pl.DataFrame()


def _of_runs(root: Path, chosen: Sequence[Case], read: Callable[[Case, Path], pl.DataFrame]) -> pl.DataFrame:
    parts: list[pl.DataFrame] = []
    progress = Progress()
    for place, case in enumerate(chosen, 1):
        drive = case.drive
        progress(f"reading {case.name} ({place} of {len(chosen)})")
        for run in RunFolder.open(root / case.name).runs:
            of_case = {
                "seed": pl.lit(drive.seed, pl.Int32),
                "drive": pl.lit(drive.number, pl.Int32),
                "kind": pl.lit(drive.kind),
                "wifi": pl.lit(f"{drive.band} GHz"),
                "cellular": pl.lit(drive.rat),
                "traffic": pl.lit(case.traffic),
                "buffer_kb": pl.lit(case.buffer_kb, pl.Int32),
                "prio": pl.lit(PRIOS[run.strategy]),
            }
            parts.append(read(case, run.folder).with_columns(**of_case))
    progress.done()
    return pl.concat(parts)


def _files(run: Path) -> pl.DataFrame:
    took = (pl.col("received_ns") - pl.col("sent_ns")).cast(pl.Float64)
    return _messages(run).select(
        "number",
        "size_bytes",
        t_ns=pl.col("sent_ns"),
        delay_ms=took / 1e6,
        goodput_mbit_s=pl.col("size_bytes").cast(pl.Float64) * 8e3 / took,
    )


def _messages(run: Path) -> pl.DataFrame:
    """The messages that arrived."""
    return _read(run / "messages.arrow").filter(pl.col("received_ns").is_not_null())


def _read(file: Path) -> pl.DataFrame:
    try:
        return pl.read_ipc(file)
    except (OSError, pl.exceptions.PolarsError) as error:
        remedy = f"remove {file.parents[2]} and make its runs again with the same command"
        raise unreadable(file, first_line(error), remedy) from error


def windows(run: Path, is_bulk: bool = True) -> pl.DataFrame:
    """A row per window of a run: the quantities of both paths at its end, goodput and delay of the one after it."""
    rows = _read(run / "windows.arrow")
    missing = {"t_ns", "path", "delivered_bytes", *QUANTITIES} - set(rows.columns)
    if missing:
        remedy = "make it again with this version"
        raise unreadable(run / "windows.arrow", f"the columns {', '.join(sorted(missing))} are missing", remedy)
    wide = rows.select("t_ns", "delivered_bytes").unique().sort("t_ns")
    for path in PATHS:
        own = rows.filter(pl.col("path") == path).drop("delivered_bytes", "path")
        wide = wide.join(own.rename({name: f"{path}_{name}" for name in QUANTITIES}), on="t_ns", how="left")
    delays = (
        _messages(run)
        .filter(is_bulk)
        .select(
            t_ns=pl.col("received_ns") // WINDOW_NS * WINDOW_NS,
            delay_ms=(pl.col("received_ns") - pl.col("sent_ns")).cast(pl.Float64) / 1e6,
        )
        .group_by("t_ns")
        .agg(delay_ms=pl.col("delay_ms").mean().cast(pl.Float32))
    )
    after = pl.col("delivered_bytes").shift(-1).cast(pl.Int64) - pl.col("delivered_bytes").cast(pl.Int64)
    goodput = (after * 8 / (WINDOW_NS / 1e3)).cast(pl.Float32)
    joined = wide.with_columns(goodput_mbit_s=goodput).join(delays, on="t_ns", how="left")
    return joined.drop("delivered_bytes").drop_nulls("goodput_mbit_s").sort("t_ns")


def read(file: Path) -> pl.DataFrame:
    """A table that `collect` made; raises `LabError` if columns are missing or values impossible."""
    try:
        frame = pl.read_parquet(file)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise unreadable(file, first_line(error), MAKE) from error
    names = [f"{path}_{name}" for path in PATHS for name in QUANTITIES]
    numbers = (*names, "t_ns", "drive", "buffer_kb", "goodput_mbit_s", "delay_ms")
    columns.check(file, frame.schema, numbers, ("wifi", "cellular", "traffic", "prio"), MAKE)
    for path in PATHS:
        for name, (low, high) in QUANTITIES.items():
            column = frame[f"{path}_{name}"]
            bad = column.filter((column < low) | (column > high))
            if len(bad):
                cause = f"{bad[0]:g} in `{path}_{name}` is outside {low} to {high}"
                raise unreadable(file, cause, "correct it, or leave the value out (null)")
    return frame


def provenance(frame: pl.DataFrame) -> dict[str, object]:
    """What a tree's file says of its data; `seeds` are those of the draws."""
    seeds = {"seeds": frame["seed"].unique().sort().to_list()} if "seed" in frame.columns else {}
    return {"rows": frame.height, "drives": frame["drive"].n_unique(), **seeds}
