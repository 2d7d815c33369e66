"""`crosslane-lab learn analyse`: how goodput and delay depend on each quantity (Liao et al. 2020, tables II, IV).

The values of a quantity are put in bins, those of fewer than 10 windows dropped. Kendall's τ is that of the bins'
means; the conditional information gain is the share of the entropy of goodput (in steps of 5 Mbit/s) or delay
(5 ms) that goes when the bin is known. The signal of a Wi-Fi path is its RSSI, that of a cellular one its RSRP; its
RSSI is not measured.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from crosslane_lab.learn import collect, need, write
from crosslane_lab.learn.collect import PATHS
from crosslane_lab.render.markdown import table

BINS = {
    "signal_dbm": 5.0,
    "sinr_db": 5.0,
    "rsrq_db": 5.0,
    "tx_mbit_s": 5.0,
    "rx_mbit_s": 5.0,
    "rtt_ms": 5.0,
    "cwnd": 5.0,
    "loss": 0.0005,
    "delivery_mbit_s": 5.0,
}
"""Width of a bin; those of RTT and window are not published."""
LEAST = 10
STEPS = {"goodput_mbit_s": 5.0, "delay_ms": 5.0}
Values = tuple[float, float, float, float]


@dataclass(frozen=True)
class Attribute:
    """An attribute of the paper, with the published values of tables II and IV.

    The values are τ of goodput and delay, and information gain of goodput and delay.
    """

    name: str
    quantity: str
    both: Values
    own: Values
    paths: tuple[str, ...] = PATHS


ATTRIBUTES = (
    Attribute("RSSI", "signal_dbm", (0.61, 0.72, 0.12, 0.23), (0.63, 0.74, 0.15, 0.28), ("wifi",)),
    Attribute("SINR", "sinr_db", (0.42, 0.39, 0.09, 0.04), (0.44, 0.39, 0.11, 0.06)),
    Attribute("RSRP", "signal_dbm", (0.015, 0.017, 0.003, 0.002), (0.02, 0.03, 0.004, 0.002), ("cellular",)),
    Attribute("RSRQ", "rsrq_db", (0.013, 0.022, 0.004, 0.006), (0.013, 0.022, 0.007, 0.008)),
    Attribute("TD", "tx_mbit_s", (0.005, 0.001, 0.007, 0.003), (0.006, 0.003, 0.007, 0.003)),
    Attribute("RD", "rx_mbit_s", (-0.003, -0.001, 0.003, 0.005), (-0.005, -0.002, 0.004, 0.007)),
    Attribute("RTT", "rtt_ms", (0.68, 0.73, 0.24, 0.37), (0.73, 0.77, 0.26, 0.43)),
    Attribute("CWND", "cwnd", (0.34, 0.26, 0.12, 0.08), (0.37, 0.27, 0.13, 0.09)),
    Attribute("PLR", "loss", (-0.37, -0.52, 0.17, 0.14), (-0.43, -0.54, 0.18, 0.15)),
    Attribute("PDR", "delivery_mbit_s", (0.78, 0.38, 0.31, 0.11), (0.82, 0.39, 0.37, 0.13)),
)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("analyse", help="relate goodput and delay to each quantity", description=__doc__)
    parser.add_argument("data", type=Path, metavar="FILE", help="windows.parquet of `learn collect`")
    parser.add_argument("--out", type=Path, metavar="FILE", help="a page (default: standard output)")
    parser.set_defaults(act=_act)


def _act(given: argparse.Namespace) -> None:
    text = "\n".join(page(collect.read(given.data))) + "\n"
    if given.out is None:
        print(text, end="")
        return
    write(given.out, text)
    print(given.out)


def kendall(values: pl.Series, outcome: pl.Series, width: float) -> float | None:
    """τ-b of the means of the bins; none with fewer than two bins."""
    frame = _binned(values, outcome, width)
    means = frame.group_by("bin").agg(pl.len(), pl.col("outcome").mean()).filter(pl.col("len") >= LEAST).sort("bin")
    if means.height < 2:
        return None
    found = need("scipy.stats").kendalltau(means["bin"].to_numpy(), means["outcome"].to_numpy()).statistic
    return None if np.isnan(found) else float(found)


def gain(values: pl.Series, outcome: pl.Series, width: float, step: float) -> float | None:
    """The share of the outcome's entropy that goes when the bin is known (0 to 1); none without an outcome."""
    frame = _binned(values, outcome, width).filter(pl.len().over("bin") >= LEAST)
    frame = frame.with_columns(step=(pl.col("outcome") / step).floor())
    whole = _entropy(frame["step"])
    if not whole:
        return None
    parts = (_entropy(part["step"]) * part.height for part in frame.partition_by("bin"))
    return 1 - sum(parts) / frame.height / whole


def _binned(values: pl.Series, outcome: pl.Series, width: float) -> pl.DataFrame:
    frame = pl.DataFrame({"bin": values.cast(pl.Float64), "outcome": outcome.cast(pl.Float64)}).drop_nulls()
    return frame.with_columns(bin=(pl.col("bin") / width).floor())


def _entropy(values: pl.Series) -> float:
    shares = values.value_counts()["count"].to_numpy() / max(len(values), 1)
    return float(-np.sum(shares * np.log2(shares)))


def page(frame: pl.DataFrame) -> Iterator[str]:
    """For each quantity the median over the pairs of technologies, of the path that is first and of both orders."""
    frame = collect.orders(frame)
    head = ["attribute", "quantity", "τ of goodput", "τ of delay", "gain of goodput", "gain of delay"]
    for title, own in (
        ("Both orders together (table II; in brackets as published)", False),
        ("The path that is first (table IV; in brackets as published)", True),
    ):
        yield f"{title}:"
        yield ""
        rows = ([each.name, f"`{each.quantity}`", *_cells(frame, each, own)] for each in ATTRIBUTES)
        yield from table(head, rows, "ll", compact=True)
        yield ""


def measured(frame: pl.DataFrame, attribute: Attribute, own: bool) -> tuple[float | None, ...]:
    """Our values in the order of the published ones; none where a quantity was not measured."""
    found: list[float | None] = []
    steps = [*((outcome, None) for outcome in STEPS), *STEPS.items()]
    for outcome, step in steps:
        values = [each for each in _of_pairs(frame, attribute, outcome, own, step) if each is not None]
        found.append(float(np.median(values)) if values else None)
    return tuple(found)


def _cells(frame: pl.DataFrame, attribute: Attribute, own: bool) -> Iterator[str]:
    published = attribute.own if own else attribute.both
    for ours, theirs in zip(measured(frame, attribute, own), published, strict=True):
        yield f"{'not measured' if ours is None else f'{ours:.2f}'} ({theirs:g})"


def _of_pairs(
    frame: pl.DataFrame,
    attribute: Attribute,
    outcome: str,
    own: bool,
    step: float | None,
) -> Iterator[float | None]:
    width = BINS[attribute.quantity]
    for _, pair in frame.group_by("wifi", "cellular", maintain_order=True):
        for path, prio in zip(PATHS, ("WF", "LF"), strict=True):
            if path not in attribute.paths:
                continue
            rows = pair.filter(pl.col("prio") == prio) if own else pair
            column = rows[f"{path}_{attribute.quantity}"]
            of = rows[outcome]
            yield kendall(column, of, width) if step is None else gain(column, of, width, step)
