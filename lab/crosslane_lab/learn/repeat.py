"""`crosslane-lab learn repeat`: how much of a label, of the bound and of a comparison with MinRTT is chance.

Each drive is simulated twice: the second time every delay is 0.02 ms longer, and nothing else of the world differs.
What the orders bring then differs by chance only. The greatest accuracy is that of a model which knows all of the
drive and nothing of the chance in one run, as the state of its connection is.
"""

import argparse
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import polars as pl

from crosslane_lab.errors import unreadable
from crosslane_lab.learn import collect, label
from crosslane_lab.learn.collect import Case
from crosslane_lab.learn.places import draw
from crosslane_lab.render.markdown import table
from crosslane_lab.runs.runner import Runner

LATER_MS = 0.02
OWN = label.KEYS[:-1]
HEAD = [
    "traffic",
    "buffer",
    "labels that are the same",
    "greatest accuracy",
    "bound",
    "the same, chosen in the other run",
    "no order, repeated: least",
    "below 0.97",
]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("repeat", help="show how much of a label is chance", description=__doc__)
    collect.add_draws(parser, drives=40, seed=1)
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/learn"), metavar="DIR", help="(default: %(default)s)"
    )
    parser.set_defaults(act=_act)


@dataclass(frozen=True)
class Repeated(Case):
    """A case with longer delays: of repetition `number`, from 1 on."""

    number: int = 1

    @property
    def name(self) -> str:
        """Folder of its runs."""
        return f"{super().name}-repeated{self.number if self.number > 1 else ''}"

    def scenario(self, scheduler: str, trees: dict[str, tuple[str, str]]) -> str:
        """The scenario with longer delays."""

        def later(found: re.Match[str]) -> str:
            return f"delay_ms = {int(found[1]) + self.number * LATER_MS:.2f}"

        return re.sub(r"\bdelay_ms = (\d+)", later, super().scenario(scheduler, trees))


def again(chosen: Iterable[Case], number: int = 1) -> list[Case]:
    """Cases as they are in a repetition."""
    return [Repeated(each.drive, each.traffic, each.buffer_kb, each.in_tunnel, number) for each in chosen]


def _act(given: argparse.Namespace) -> None:
    if given.drives < 1 or given.jobs < 1:
        raise unreadable("the draws", "there is nothing to run", "give --drives and --jobs of at least 1")
    root = given.runs / "runs"
    collect.prepare(root, given.seed)
    chosen = collect.cases(draw(given.seed, given.drives), given.traffic)
    others = again(chosen)
    Runner(given.program, root, parallel=given.jobs).run(collect.plan([*chosen, *others]))
    print("\n".join(page(collect.table(root, chosen), collect.table(root, others))))


def page(one: pl.DataFrame, other: pl.DataFrame) -> Iterator[str]:
    """A row for each kind of traffic and buffer, and for all; goodputs relative to no order, medians of drives."""
    groups = one.select("traffic", "buffer_kb").unique(maintain_order=True).rows()
    rows: list[list[str]] = []
    for traffic, buffer_kb in groups:
        of = (pl.col("traffic") == traffic) & (pl.col("buffer_kb") == buffer_kb)
        rows.append(
            [traffic, f"{buffer_kb} kB" if buffer_kb else "autotuned", *_cells(one.filter(of), other.filter(of))]
        )
    rows.append(["all", "", *_cells(one, other)])
    yield from table(HEAD, rows, "ll", compact=True)


def _cells(one: pl.DataFrame, other: pl.DataFrame) -> list[str]:
    same = agreement(one, other)
    ratios = goodputs(one, other)
    least, below = ratios["repeated"].min(), ratios.filter(pl.col("repeated") < 0.97).height
    return [
        f"{same:.2f}",
        f"{greatest_accuracy(same):.2f}",
        *(f"{ratios[name].median():.2f}" for name in ("best", "chosen")),
        f"{least:.2f}",
        f"{below} of {ratios.height}",
    ]


def agreement(one: pl.DataFrame, other: pl.DataFrame) -> float:
    """Of the windows with a label in both runs, the share in which it is the same."""
    columns = (*label.KEYS, "wifi_first")
    both = label.pairs(one).select(columns).join(label.pairs(other).select(columns), on=label.KEYS)
    return float((both["wifi_first"] == both["wifi_first_right"]).mean() or 0)  # pyright: ignore[reportArgumentType]


def greatest_accuracy(same: float) -> float:
    """The most that a model of the drive can be right if two labels of a window are the same with this probability.

    If a window has one label with probability p, two of it are the same with p² + (1 − p)², and the best answer is
    right with max(p, 1 − p), which is concave in that: windows that differ in p allow no more than this.
    """
    return (1 + sqrt(max(2 * same - 1, 0))) / 2


def goodputs(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """A row per case, relative to no order: the better order of each second, chosen in either run; and none."""
    both = _seconds(one).join(_seconds(other), on=(*OWN, "second"), suffix="_other").sort(*OWN, "second")
    of_other = pl.when(pl.col("WF_other") >= pl.col("LF_other")).then("WF").otherwise("LF")
    both = both.with_columns(best=pl.max_horizontal("WF", "LF"), chosen=of_other)
    means = both.group_by(OWN, maintain_order=True).agg(pl.mean("NO", "best", "chosen", "NO_other"))
    shares = {"best": "best", "chosen": "chosen", "repeated": "NO_other"}
    return means.select(*OWN, *((pl.col(column) / pl.col("NO")).alias(name) for name, column in shares.items()))


def _seconds(frame: pl.DataFrame) -> pl.DataFrame:
    second = (pl.col("t_ns") // (label.HORIZON * collect.WINDOW_NS)).alias("second")
    means = frame.group_by(*OWN, "prio", second).agg(pl.mean("goodput_mbit_s"))
    return means.pivot("prio", index=[*OWN, "second"], values="goodput_mbit_s").drop_nulls()
