"""Messages (docs/results/drives.md) over every segment of imc23: pairs of operators in both orders, and the triple.

The first operator named is the preferred one. Each choice gives one scenario per kind of message.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import polars as pl

from crosslane_lab import columns
from crosslane_lab.errors import first_line, unreadable
from crosslane_lab.papers.frame import Options, Results
from crosslane_lab.runs.frame import metric
from crosslane_lab.runs.runner import Comparison

NAMES = {"verizon": "Verizon", "att": "AT&T", "tmobile": "T-Mobile"}

MODES = ("backup", "aggregate")
"""Modes of the service; the first is the default."""

TRAFFIC = {"1kB-50Hz": (1000, 20), "200B-5Hz": (200, 200)}
"""Kinds of messages: bytes, and the period in ms. The second is close to what was recorded."""
FIRST_TRAFFIC = next(iter(TRAFFIC))

STRATEGIES = (
    "kernel",
    "kernel-tuned",
    "threshold",
    "adaptive",
    "tunnel",
    "tunnel-adaptive",
    "tunnel-redundant",
)

SIMULATED = (*STRATEGIES, "oracle")
"""Only the simulator knows the future."""

RATE_MBIT_S = 10
"""Rate of each path; the recordings do not have it."""

QUICK_EVERY = 5
"""With `--quick`, every fifth segment."""

_TEMPLATE = """\
# {file} of {data_set} (docs/guide/real-data.md), made by `crosslane-lab reproduce drives`.
# Run it with --data DIR.

name = "{name}"
title = "Messages over {over} in one car, as recorded"
duration_s = {duration_s:.1f}

[vehicle]
route = {{ from_m = [0, 0], to_m = [2000, 0], speed_kmh = 80 }}   # a trace does not depend on the position
{paths}
[service]
mode = "{mode}"
prefer = [{prefer}]

[traffic]
kind = "messages"
direction = "{direction}"
size_bytes = {size_bytes}
every_ms = {every_ms}
"""

_PATH = """
[[cellular]]
name = "{operator}"
rat = "lte"
rate_mbit_s = {rate}                # assumed
trace = "data:imc23/{file}#imc23:{operator}"
"""


@dataclass(frozen=True)
class Drive:
    """A segment, and the operators used, the preferred one first."""

    file: str
    duration_s: float
    operators: tuple[str, ...]

    @property
    def name(self) -> str:
        """A short name for files and scenarios."""
        segment = self.file.removesuffix(".csv").replace("_", "-")
        return f"{segment}-{'-'.join(self.operators)}"


def drives(data: Path | None, every: int = 1) -> list[Drive]:
    """Every pair of operators of every segment in both orders, and the triple, preferring each operator in turn."""
    index = (data or Path()) / "imc23" / "index.csv"
    if not index.is_file():
        raise unreadable(index, "there is none", "name the folder of imc23 with --data (docs/guide/real-data.md)")
    segments = list(enumerate(_index(index).sort("file").rows()))
    return [
        Drive(file, duration_s, operators)
        for place, (file, duration_s, recorded) in segments[::every]
        for operators in _choices(recorded.split("+"), place)
    ]


def _index(file: Path) -> pl.DataFrame:
    """File, duration and operators of each segment."""
    remedy = "restore the published file, or make it again (docs/guide/real-data.md)"
    try:
        rows = pl.read_csv(file)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise unreadable(file, first_line(error), remedy) from error
    columns.check(file, rows.schema, ("duration_s",), ("file", "operators"), remedy)
    return rows.select("file", "duration_s", "operators").drop_nulls()


def _choices(recorded: list[str], place: int) -> Iterator[tuple[str, ...]]:
    yield from permutations(recorded, 2)
    if len(recorded) > 2:
        first = place % len(recorded)
        yield (*recorded[first:], *recorded[:first])


def scenario(drive: Drive, traffic: str, mode: str, most_s: float = 7200) -> str:
    """The scenario of a drive, at most `most_s` long."""
    paths = (_PATH.format(operator=operator, rate=RATE_MBIT_S, file=drive.file) for operator in drive.operators)
    return messages(
        data_set="imc23",
        file=drive.file,
        name=f"{drive.name}-{traffic}-{mode}".lower(),
        over=f"the networks of {', '.join(NAMES[operator] for operator in drive.operators)}",
        duration_s=min(drive.duration_s, most_s),
        paths="".join(paths),
        mode=mode,
        operators=drive.operators,
        traffic=traffic,
    )


def messages(*, operators: Sequence[str], traffic: str, direction: str = "up", **parts: str | float) -> str:
    """The scenario of a kind of messages over the operators of a recording, the preferred one first."""
    size_bytes, every_ms = TRAFFIC[traffic]
    prefer = ", ".join(f'"{operator}"' for operator in operators)
    return _TEMPLATE.format(prefer=prefer, direction=direction, size_bytes=size_bytes, every_ms=every_ms, **parts)


def chosen(options: Options) -> tuple[str, list[Drive]]:
    """The mode and the drives."""
    mode, *others = options.figures or MODES[:1]
    if others:
        raise unreadable("the command line", "several modes", "name one; each has its page")
    return mode, drives(options.runner.data, QUICK_EVERY if options.quick else 1)


def plan(options: Options) -> list[Comparison]:
    """Every strategy over every drive with each kind of message."""
    mode, found = chosen(options)
    return [
        Comparison(name(drive, traffic, mode), scenario(drive, traffic, mode), SIMULATED)
        for drive in found
        for traffic in TRAFFIC
    ]


def name(drive: Drive, traffic: str, mode: str) -> str:
    """Name of the run folder: mode, traffic, and segment with the operators after `@`."""
    return f"{mode}/{traffic}/{drive.file.removesuffix('.csv')}@{'+'.join(drive.operators)}"


def title(operators: str) -> str:
    """The operators of a run folder's name, the preferred one first."""
    return ", then ".join(NAMES[operator] for operator in operators.split("+"))


def rows(results: Results) -> pl.DataFrame:
    """A row per drive, kind of message and strategy."""
    wanted = {
        "late": "late_share",
        "messages": "messages.sent",
        "p50_ms": "delivery_delay_ms.p50",
        "p99_ms": "delivery_delay_ms.p99",
        "worst_ms": "delivery_delay_ms.max",
        "changes": "handover.count",
        "overhead": "overhead_share",
    }
    frame = results.frame
    parts = pl.col("run").str.split("/")
    place = parts.list.last().str.split("@")
    return frame.select(
        place.list.first().alias("segment"),
        place.list.last().alias("operators"),
        parts.list.get(-2).alias("traffic"),
        "strategy",
        *(metric(frame, name).alias(short) for short, name in wanted.items()),
    )


def pooled(frame: pl.DataFrame) -> pl.DataFrame:
    """Per kind of message, operators and strategy: the late share of all messages, and delays over drives."""
    worst, late = pl.col("worst_ms"), pl.col("late") * pl.col("messages")
    return frame.group_by("traffic", "operators", "strategy", maintain_order=True).agg(
        drives=pl.len(),
        late=late.sum() / pl.col("messages").sum(),
        p50_ms=pl.col("p50_ms").median(),
        p99_ms=pl.col("p99_ms").median(),
        worst_p50_ms=worst.median(),
        worst_p75_ms=worst.quantile(0.75, "nearest"),
        worst_p90_ms=worst.quantile(0.9, "nearest"),
        changes=pl.col("changes").median(),
    )
