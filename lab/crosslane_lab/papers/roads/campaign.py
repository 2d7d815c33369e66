"""Uploads with deadlines (docs/results/roads.md) over every uplink drive of PAM 2025 of at least 60 s.

Each drive gives one scenario per load, in which an object is generated every 20 s and is due 20 s later. Its
size is the load times the mean capacity of both operators in 20 s. The drives prefer AT&T and Verizon in turn;
the other operator costs five times as much.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import polars as pl

from crosslane_lab.errors import unreadable
from crosslane_lab.papers.frame import Options, Results
from crosslane_lab.runs.catalog import COST, LEAST_COST, MISSED
from crosslane_lab.runs.folder import Run
from crosslane_lab.runs.frame import metric
from crosslane_lab.runs.runner import Comparison, Runner

OPERATORS = ("att", "verizon")
LOADS = (50, 70, 90)
"""Size of the objects, in % of the mean capacity of both paths in a period."""

PERIOD_S = 20
"""Interval between objects; an object is due when the next is generated."""

MIN_DURATION_S = 60
"""Shorter drives are excluded."""

MAX_LEAD_S = 2
"""Latest start of the first object: traffic starts after 1 s, the first object up to 1 s later, by the seed."""

DELAY_MS = 40
"""One-way delay of each path; the recordings do not have it."""

PAYLOAD = 1424 / 1500
"""Payload per IP byte (a full MPTCP segment)."""

PRICES = (0.1, 0.5)
"""Per 10⁹ bytes, on the preferred path and on the other."""

ALPHAS = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.3, 1.6, 1.9)
"""Deadline sensitivities at which MP-DPA is run."""

BASELINES = ("kernel", "kernel-tuned")
"""The better of them is the reference for missed deadlines."""

OURS = "deadline"

OVER_MPTCP = "deadline-mptcp"
"""The same plan over one MPTCP connection."""

CONGESTIONS = ("cubic", "bbr")

QUICK_EVERY = 5
"""With `--quick`, every fifth drive."""

QUICK_ALPHAS = (0.5, 0.8, 1.0)
"""With `--quick`, MP-DPA at these α."""

TUNED_EVERY = 5
"""The parameters of the plan were chosen on every fifth drive from the first on; the others are held out."""

RIGHT_WITHIN = 0.1
"""A prediction is right if it differs from the completion by this part of it at most."""

_KEEP = ("windows", "events", "messages")

_TEMPLATE = """\
# {file} of PAM 2025 (docs/guide/real-data.md), made by `crosslane-lab reproduce roads`.
# Run it with --data DIR.

name = "{name}"
title = "Objects of {load} % of the capacity of both operators of a recorded drive, each due in {period} s"
duration_s = {duration_s:.1f}
congestion = "{congestion}"

[vehicle]
route = {{ from_m = [0, 0], to_m = [2000, 0], speed_kmh = 80 }}   # a trace does not depend on the position

[[cellular]]
name = "{preferred}"
rat = "lte"
delay_ms = {delay_ms}                   # one way, assumed
trace = "data:pam2025/uplink/{file}#pam2025:{preferred}"

[[cellular]]
name = "{expensive}"
rat = "lte"
delay_ms = {delay_ms}
trace = "data:pam2025/uplink/{file}#pam2025:{expensive}"

[service]
prefer = ["{preferred}", "{expensive}"]
cost_per_gb = {{ {preferred} = {prices[0]}, {expensive} = {prices[1]} }}

[traffic]
kind = "deadline"
object_bytes = {object_bytes}
period_s = {period}
deadline_s = {period}
objects = {objects}
late = "give-up"
start_s = 1
"""

_PATH = """
[[cellular]]
name = "{operator}"
rat = "lte"
delay_ms = {delay_ms}                   # one way, assumed
trace = "data:pam2025/{folder}/{file}#pam2025:{operator}"
"""

_PREFIXES = {"uplink": "UL", "downlink": "DL"}
"""How the names of files in a folder begin."""

_STRATEGY = """
[[strategy]]
name = "{name}"
base = "mp-dpa"
alpha = {alpha}
"""


@dataclass(frozen=True)
class Drive:
    """A recording: its file, how long both operators were recorded, and their mean rates."""

    file: str
    duration_s: float
    mbit_s: tuple[float, float]
    prefers: str
    folder: str = "uplink"

    @property
    def name(self) -> str:
        """A short name for files and scenarios."""
        prefix = f"{_PREFIXES[self.folder]}_atnt_verizon_"
        return self.file.removeprefix(prefix).removesuffix(".csv").replace("_", "-")

    @property
    def objects(self) -> int:
        """Number of objects that are generated and due within the drive."""
        return int((self.duration_s - MAX_LEAD_S) // PERIOD_S)

    def path(self, operator: str, delay_ms: int) -> str:
        """The path over an operator in a scenario, with this one-way delay."""
        return _PATH.format(operator=operator, delay_ms=delay_ms, folder=self.folder, file=self.file)

    def object_bytes(self, load: int) -> int:
        """Size of the objects at a load."""
        return round(load / 100 * sum(self.mbit_s) * 1e6 / 8 * PERIOD_S * PAYLOAD)


def alpha_name(alpha: float) -> str:
    """Name of the strategy: `mp-dpa-05` is α 0.5."""
    return f"mp-dpa-{round(alpha * 10):02d}"


def strategies(alphas: Sequence[float]) -> tuple[str, ...]:
    """All that are compared, with MP-DPA at these α."""
    return (*BASELINES, *map(alpha_name, alphas), OVER_MPTCP, OURS)


def drives(runner: Runner, min_duration_s: float = MIN_DURATION_S, folder: str = "uplink") -> list[Drive]:
    """All drives of a folder of at least this length, imported by the program as scenarios import them.

    Files without a sample are left out.
    """
    path = (runner.data or Path()) / "pam2025" / folder
    pattern = f"{_PREFIXES[folder]}_*.csv"
    files = [file for file in sorted(path.glob(pattern)) if len(file.read_bytes().splitlines()) > 1]
    if not files:
        raise unreadable(
            path, f"no file {pattern}", "name the folder of pam2025 with --data (docs/guide/real-data.md)"
        )
    runner.root.mkdir(parents=True, exist_ok=True)
    found = [_drive(runner, file) for file in files]
    long = [drive for drive in found if drive.duration_s >= min_duration_s]
    return [replace(drive, prefers=OPERATORS[index % 2]) for index, drive in enumerate(long)]


def _drive(runner: Runner, file: Path) -> Drive:
    durations, rates = [], []
    for operator in OPERATORS:
        trace = runner.root / f"{operator}.csv"
        options = ["--operator", operator, "--out", str(trace)]
        runner.call(["import", "pam2025", str(file), *options], f"importing {file}")
        rows = pl.read_csv(
            trace, comment_prefix="#", columns=["t_s", "rate_mbit_s"], infer_schema_length=None
        ).rows()
        durations.append(rows[-1][0])
        rates.append(sum((later[0] - row[0]) * row[1] for row, later in pairwise(rows)) / max(rows[-1][0], 0.1))
    return Drive(file.name, min(durations), (rates[0], rates[1]), OPERATORS[0], file.parent.name)


def scenario(drive: Drive, load: int, congestion: str, alphas: Sequence[float] = ALPHAS) -> str:
    """The scenario of a drive at a load, with MP-DPA at these α."""
    preferred = drive.prefers
    text = _TEMPLATE.format(
        file=drive.file,
        name=f"road-{drive.name}-{load}-{congestion}",
        load=load,
        period=PERIOD_S,
        duration_s=drive.duration_s,
        congestion=congestion,
        preferred=preferred,
        expensive=next(operator for operator in OPERATORS if operator != preferred),
        delay_ms=DELAY_MS,
        prices=PRICES,
        object_bytes=drive.object_bytes(load),
        objects=drive.objects,
    )
    return text + "".join(_STRATEGY.format(name=alpha_name(alpha), alpha=alpha) for alpha in alphas)


def plan(options: Options) -> list[Comparison]:
    """Every strategy over every drive at every load."""
    all_drives = drives(options.runner)
    chosen, alphas = (all_drives[1::QUICK_EVERY], QUICK_ALPHAS) if options.quick else (all_drives, ALPHAS)
    congestion, *others = options.figures or CONGESTIONS[:1]
    if others:
        raise unreadable("the command line", "several congestion controls", "name one; each has its page")
    engine = options.engine or "simulator"
    return [
        Comparison(
            f"{congestion}/{drive.name}-{load}",
            scenario(drive, load, congestion, alphas),
            strategies(alphas),
            engine=engine,
            keep=_KEEP,
        )
        for drive in chosen
        for load in LOADS
    ]


def tuned_on(names: Iterable[str]) -> list[str]:
    """The drives that parameters were chosen on, of those of the comparisons, also if a drive has no valid run."""
    return list(dict.fromkeys(_drive_and_load(name)[0] for name in names))[::TUNED_EVERY]


def _drive_and_load(name: str) -> tuple[str, int]:
    """The drive and load of a comparison."""
    drive, load = name.split("/")[-1].rsplit("-", 1)
    return drive, int(load)


def rows(results: Results) -> pl.DataFrame:
    """A row per drive, load and strategy."""
    parts = [_row(results, name) for name in results.names]
    return pl.concat(parts, how="diagonal").drop_nulls("missed")


def _row(results: Results, name: str) -> pl.DataFrame:
    drive, load = _drive_and_load(name)
    scenario = results.folders[name].scenario
    expensive = f"path.{scenario.expensive_path}"
    frame = results.frame.filter(pl.col("run") == name)
    return frame.select(
        drive=pl.lit(drive),
        load=pl.lit(load),
        objects=pl.lit(scenario.objects),
        strategy="strategy",
        missed=metric(frame, MISSED),
        share=metric(frame, f"{expensive}.share").fill_null(0.0),
        share_optimum=metric(frame, f"{expensive}.share_optimum").fill_null(0.0),
        cost=metric(frame, COST),
        cost_optimum=metric(frame, LEAST_COST),
        switches=metric(frame, "handover.count"),
    ).join(_predictions(results, name), on="strategy", how="left", maintain_order="left")


def _predictions(results: Results, name: str) -> pl.DataFrame:
    """Of our objects, how many were predicted rightly when the first prediction was possible."""
    right = [right_predictions(run) for run in results.runs(name, OURS)]
    return pl.DataFrame({"strategy": [OURS] * len(right), "right": right}, schema={"strategy": str, "right": int})


def right_predictions(run: Run) -> int:
    """How many objects were predicted rightly: within a tenth of their completion or, if late, not in time."""
    expected: dict[int, float] = {}
    for event in run.events_of("agent", "admission"):
        if event.fields["expected_s"] is not None:
            expected.setdefault(event.fields["object"], event.fields["expected_s"])
    objects = run.messages.select("number", "sent_ns", "received_ns").collect().rows()
    return sum(_is_right(expected.get(number), sent, received) for number, sent, received in objects)


def _is_right(expected_s: float | None, sent_ns: int, received_ns: int | None) -> bool:
    if expected_s is None:
        return False
    after_s = expected_s - sent_ns / 1e9
    took_s = math.inf if received_ns is None else (received_ns - sent_ns) / 1e9
    return abs(after_s - took_s) <= RIGHT_WITHIN * took_s if took_s <= PERIOD_S else after_s > PERIOD_S


def pooled(frame: pl.DataFrame) -> pl.DataFrame:
    """Per strategy over all drives: missed (share of all objects), cost / optimum, share above the optimum."""
    above = pl.col("share") - pl.col("share_optimum")
    return frame.group_by("strategy", maintain_order=True).agg(
        missed=(pl.col("missed") * pl.col("objects")).sum() / pl.col("objects").sum(),
        cost=pl.col("cost").sum() / pl.col("cost_optimum").sum(),
        cost_median=(pl.col("cost") / pl.col("cost_optimum")).median(),
        above=above.median(),
        above_low=above.quantile(0.1),
        above_high=above.quantile(0.9),
        switches=pl.col("switches").mean(),
        right=pl.col("right").sum() / pl.col("objects").sum(),
    )
