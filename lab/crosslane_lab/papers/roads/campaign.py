"""Uploads with deadlines over recorded drives (docs/roads.md): every uplink drive of PAM 2025 of at least 60 s.

Each drive gives one scenario per load, in which an object is generated every 20 s and is due 20 s later. Its
size is the load times the mean capacity of both operators in 20 s. The drives prefer AT&T and Verizon in turn;
the other operator costs five times as much.
"""

import json
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import polars as pl

from crosslane_lab import program
from crosslane_lab.errors import unreadable
from crosslane_lab.progress import Progress

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

_TEMPLATE = """\
# {file} of PAM 2025 (docs/real-data.md), made by `crosslane-lab reproduce roads`.
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

_STRATEGY = """
[[strategy]]
name = "{name}"
base = "{base}"
{parameters}
"""


@dataclass(frozen=True)
class Drive:
    """A recording: its file, how long both operators were recorded, and their mean rates."""

    file: str
    duration_s: float
    mbit_s: tuple[float, float]
    prefers: str

    @property
    def name(self) -> str:
        """A short name for files and scenarios."""
        return self.file.removeprefix("UL_atnt_verizon_").removesuffix(".csv").replace("_", "-")

    @property
    def objects(self) -> int:
        """Number of objects that are generated and due within the drive."""
        return int((self.duration_s - MAX_LEAD_S) // PERIOD_S)

    def object_bytes(self, load: int) -> int:
        """Size of the objects at a load."""
        return round(load / 100 * sum(self.mbit_s) * 1e6 / 8 * PERIOD_S * PAYLOAD)


@dataclass(frozen=True)
class Variant:
    """A strategy with parameters, one line of TOML each."""

    name: str
    base: str
    parameters: tuple[str, ...] = ()


def mp_dpa_variants() -> list[Variant]:
    """MP-DPA at every α."""
    return [Variant(alpha_name(alpha), "mp-dpa", (f"alpha = {alpha}",)) for alpha in ALPHAS]


def alpha_name(alpha: float) -> str:
    """Name of the strategy: `mp-dpa-05` is α 0.5."""
    return f"mp-dpa-{round(alpha * 10):02d}"


def drives(binary: str, data: Path, scratch: Path) -> list[Drive]:
    """All uplink drives of sufficient length, imported by the program as scenarios import them."""
    folder = data / "pam2025" / "uplink"
    files = sorted(folder.glob("UL_*.csv"))
    if not files:
        raise unreadable(folder, "no file UL_*.csv", "docs/real-data.md has its source")
    found = [_drive(binary, file, scratch) for file in files]
    long = [drive for drive in found if drive.duration_s >= MIN_DURATION_S]
    return [
        Drive(drive.file, drive.duration_s, drive.mbit_s, OPERATORS[index % 2]) for index, drive in enumerate(long)
    ]


def _drive(binary: str, file: Path, scratch: Path) -> Drive:
    durations, rates = [], []
    for operator in OPERATORS:
        trace = scratch / f"{operator}.csv"
        options = ["--operator", operator, "--out", str(trace)]
        program.run(binary, ["import", "pam2025", str(file), *options], f"importing {file}")
        rows = pl.read_csv(trace, comment_prefix="#", columns=["t_s", "rate_mbit_s"]).rows()
        durations.append(rows[-1][0])
        rates.append(sum((later[0] - row[0]) * row[1] for row, later in pairwise(rows)) / max(rows[-1][0], 0.1))
    return Drive(file.name, min(durations), (rates[0], rates[1]), OPERATORS[0])


def scenario(drive: Drive, load: int, congestion: str, variants: Iterable[Variant]) -> str:
    """The scenario of a drive at a load."""
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
    strategies = [
        _STRATEGY.format(name=each.name, base=each.base, parameters="\n".join(each.parameters)) for each in variants
    ]
    return text + "".join(strategies)


@dataclass(frozen=True)
class Campaign:
    """The runs and their folders."""

    program: str
    data: Path
    out: Path
    congestion: str = "cubic"
    every: int = 1
    jobs: int = 0


def simulate(
    campaign: Campaign, strategies: Sequence[str], variants: Sequence[Variant], progress: Progress
) -> pl.DataFrame:
    """Run every strategy over every drive at every load; returns one row each."""
    folder = campaign.out / "scenarios"
    folder.mkdir(parents=True, exist_ok=True)
    progress("importing the drives")
    chosen = drives(campaign.program, campaign.data, campaign.out)[:: campaign.every]
    tasks = [(drive, load) for drive in chosen for load in LOADS]
    done = 0

    def run_task(task: tuple[Drive, int]) -> list[dict[str, object]]:
        nonlocal done
        drive, load = task
        rows = _simulate(campaign, drive, load, strategies, variants)
        done += 1
        progress(f"{done} of {len(tasks)} drives simulated")
        return rows

    with ThreadPoolExecutor(campaign.jobs or os.cpu_count()) as pool:
        return pl.DataFrame([row for rows in pool.map(run_task, tasks) for row in rows])


def _simulate(
    campaign: Campaign, drive: Drive, load: int, strategies: Sequence[str], variants: Sequence[Variant]
) -> list[dict[str, object]]:
    text = scenario(drive, load, campaign.congestion, variants)
    file = campaign.out / "scenarios" / f"{drive.name}-{load}.toml"
    file.write_text(text, encoding="utf-8")
    names = ",".join(strategies)
    options = ["--strategy", names, "--data", str(campaign.data), "--jobs", "1", "--records", "none", "--json"]
    summary = json.loads(program.run(campaign.program, ["simulate", str(file), *options], f"simulating {file}"))
    expensive = next(operator for operator in OPERATORS if operator != drive.prefers)
    return [
        {
            "drive": drive.name,
            "load": load,
            "objects": drive.objects,
            "strategy": run["strategy"],
            "missed": run["metrics"]["deadline.missed_share"],
            "share": run["metrics"].get(f"path.{expensive}.share", 0.0),
            "share_optimum": run["metrics"].get(f"path.{expensive}.share_optimum", 0.0),
            "cost": run["metrics"]["cost"],
            "cost_optimum": run["metrics"]["cost_optimum"],
            "switches": run["metrics"].get("handover.count"),
            "overhead": run["metrics"].get("overhead_share"),
        }
        for run in summary["runs"]
    ]


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
    )
