"""What the runs of the campaign show: tables of goodput, delay and packets in flight."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from crosslane_lab.learn import bound, collect
from crosslane_lab.papers.frame import Results
from crosslane_lab.papers.liao import campaign
from crosslane_lab.runs.catalog import GOODPUT
from crosslane_lab.runs.folder import Run

DELAY = "delivery_delay_ms.p50"
_S = 1_000_000_000
_STEP_NS = 100_000_000
OWN = ("drive", "traffic", "buffer_kb")
"""What is compared with itself: a case."""


@dataclass(frozen=True)
class Found:
    """The runs of the campaign, `quick` or not."""

    all: Results
    quick: bool

    @property
    def trees(self) -> Path:
        """The folder of the trees."""
        return campaign.tree_folder(self.all.root)

    @cached_property
    def windows(self) -> pl.DataFrame:
        """The training data of both orders."""
        return collect.orders(collect.table(self.all.root, campaign.training(self.quick)))

    @cached_property
    def held_out(self) -> pl.DataFrame:
        """Goodput and delay of each case and way to choose, relative to MinRTT too (figures 10 and 11)."""
        cases = campaign.held_out(self.quick)
        return bound.ratios(bound.outcomes(self.all.root, cases, collect.table(self.all.root, cases)))

    @cached_property
    def repeated(self) -> pl.DataFrame:
        """A row per case: the goodput of MinRTT repeated, relative to that of MinRTT (`ratio`)."""
        ratios: list[float] = []
        for case in campaign.held_out(self.quick):
            first, other = (
                collect.windows(self.all.folders[name].runs[0].folder)["goodput_mbit_s"].to_numpy().mean()
                for name in (f"{case.name}-{campaign.SCHEDULERS[0]}", campaign.repeated_name(case))
            )
            ratios.append(float(other / first))
        return pl.DataFrame({"ratio": ratios})

    @cached_property
    def packets(self) -> pl.DataFrame:
        """A row per moment of the recorded held-out drives: how many packets were in flight (figure 12)."""
        parts = [_moments(run, _way(name, run)) for name, run in self._runs("in-flight/")]
        return pl.concat(parts)

    @cached_property
    def driven(self) -> pl.DataFrame:
        """A row per run on the kernel, relative to the tunnel in mode `aggregate` and to `kernel`."""
        rows = [
            {
                "drive": int(name.split("/")[1].split("-")[0]),
                "buffer_kb": int(name.rsplit("-", 1)[1]),
                "by": run.strategy,
                "goodput_mbit_s": run.metrics.get(GOODPUT),
                "delay_ms": run.metrics.get(DELAY),
            }
            for name, run in self._runs("kernel/")
        ]
        frame = pl.DataFrame(rows, infer_schema_length=None)
        for reference in ("tunnel", "kernel") if rows else ():
            of = frame.filter(pl.col("by") == reference).select(
                "drive", "buffer_kb", goodput="goodput_mbit_s", delay="delay_ms"
            )
            frame = frame.join(of, on=("drive", "buffer_kb"), how="left").with_columns(
                (pl.col("goodput_mbit_s") / pl.col("goodput")).alias(f"ratio_{reference}"),
                (pl.col("delay_ms") / pl.col("delay")).alias(f"late_{reference}"),
            )
            frame = frame.drop("goodput", "delay")
        return frame

    @cached_property
    def driven_packets(self) -> pl.DataFrame:
        """A row per moment of the runs on the kernel with the short buffer (figure 9)."""
        runs = self._runs("kernel/")
        parts = [_moments(run, run.strategy) for name, run in runs if name.endswith(f"-{campaign.BUFFERS_KB[0]}")]
        return pl.concat(parts) if parts else pl.DataFrame()

    @cached_property
    def recorded(self) -> pl.DataFrame:
        """A row per recorded drive, buffer and way to choose, relative to MinRTT."""
        rows = [
            {
                "data_set": name.split("/")[1].split("-")[0],
                "drive": name.split("/")[1].rsplit("-", 2)[0],
                "buffer_kb": int(name.rsplit("-", 2)[1]),
                "by": "user's order" if _way(name, run) == "priority" else _way(name, run),
                "goodput_mbit_s": run.metrics.get(GOODPUT, 0.0),
                "delay_ms": run.metrics.get(DELAY),
            }
            for name, run in self._runs("recorded/")
        ]
        if not rows:
            return pl.DataFrame()
        frame = pl.DataFrame(rows, infer_schema_length=None)
        reference = frame.filter(pl.col("by") == "minrtt")
        of = reference.select("drive", "buffer_kb", goodput="goodput_mbit_s", delay="delay_ms")
        return frame.join(of, on=("drive", "buffer_kb")).with_columns(
            ratio=pl.col("goodput_mbit_s") / pl.col("goodput"), late=pl.col("delay_ms") / pl.col("delay")
        )

    def walk(self, by: str) -> "Walk":
        """The walk with MinRTT or a tree."""
        name, strategy = ("walk/minrtt", "threshold") if by == "minrtt" else ("walk/trees", f"with-{by}")
        return Walk(self.all.runs(name, strategy)[0])

    def _runs(self, prefix: str) -> list[tuple[str, Run]]:
        folders = ((name, self.all.folders[name]) for name in self.all.names if name.startswith(prefix))
        return [(name, run) for name, folder in folders for run in folder.runs if run.valid]


def _way(name: str, run: Run) -> str:
    """How the paths were chosen: by a tree, or else by the scheduler that the name ends with."""
    return run.strategy.removeprefix("with-") if run.strategy.startswith("with-") else name.rsplit("-", 1)[1]


def in_flight(run: Run) -> pl.DataFrame:
    """`t_ns`, `path`, `packets`: of the vehicle's data packets those in a link, every 100 ms."""
    up = run.packets.filter(pl.col("direction") == "up", pl.col("payload_bytes") > 0)
    rows = up.select("path", "t_ns", "delivered_ns").drop_nulls().collect()
    parts: list[pl.DataFrame] = []
    for (path,), of in rows.partition_by("path", as_dict=True).items():
        at = np.arange(_STEP_NS, int(of["t_ns"].max() or 0) + 1, _STEP_NS)  # pyright: ignore[reportArgumentType]
        entered, left = (np.sort(of[name].to_numpy().astype(np.int64)) for name in ("t_ns", "delivered_ns"))
        packets = np.searchsorted(entered, at, "right") - np.searchsorted(left, at, "right")
        parts.append(pl.DataFrame({"t_ns": at, "packets": packets}).with_columns(path=pl.lit(path)))
    return pl.concat(parts).sort("t_ns", "path")


def _moments(run: Run, by: str) -> pl.DataFrame:
    return in_flight(run).group_by("t_ns").agg(pl.col("packets").sum()).sort("t_ns").with_columns(by=pl.lit(by))


def change_point(is_so: pl.Series) -> int:
    """The place before which most values are true and from which most are false; the last of several as good."""
    values = is_so.to_numpy().astype(np.int64)
    true_before = np.concatenate([[0], np.cumsum(values)])
    false_from = np.concatenate([np.cumsum((1 - values)[::-1])[::-1], [0]])
    fits = true_before + false_from
    return int(len(fits) - 1 - np.argmax(fits[::-1]))


@dataclass(frozen=True)
class Walk:
    """The walk away from the access point."""

    run: Run

    @cached_property
    def seconds(self) -> pl.DataFrame:
        """By second: RSSI of Wi-Fi, true rates of both links, share of Wi-Fi in the payload, packets in flight."""
        second = (pl.col("t_ns") // _S).cast(pl.Int64).alias("second")
        links = self.run.links.group_by(second, "path").agg(pl.col("up_mbit_s").mean()).collect()
        rates = [
            links.filter(pl.col("path") == path).select("second", pl.col("up_mbit_s").alias(f"{path}_mbit_s"))
            for path in campaign.PATHS
        ]
        wifi = pl.col("path") == "wifi"
        signal = self.run.samples.filter(wifi).group_by(second).agg(rssi_dbm=pl.col("rssi_dbm").mean()).collect()
        payload = pl.col("payload_bytes").cast(pl.Float64)
        up = self.run.throughput.filter(pl.col("direction") == "up")
        share = up.group_by(second).agg(share=(payload * wifi).sum() / payload.sum()).collect()
        packets = in_flight(self.run).group_by(second, "path").agg(pl.col("packets").max())
        packets = packets.pivot("path", index="second", values="packets").rename(
            {path: f"{path}_packets" for path in packets["path"].unique()}
        )
        found = rates[0].join(rates[1], on="second")
        for other in (signal, share, packets):
            found = found.join(other, on="second", how="left")
        return found.sort("second")

    @property
    def switching_s(self) -> int:
        """The second from which Wi-Fi is the slower path."""
        return change_point(self.seconds["wifi_mbit_s"] >= self.seconds["cellular_mbit_s"])

    @property
    def left_s(self) -> int:
        """The second from which Wi-Fi never carries most of the bytes."""
        most = self.seconds.filter(pl.col("share") > 0.5)
        return int(most["second"].max() or 0) + 1  # pyright: ignore[reportArgumentType]

    def packets(self, path: str) -> float:
        """Mean over the seconds after the switching point of the greatest number of packets in flight."""
        after = self.seconds.filter(pl.col("second") >= self.switching_s)
        name = f"{path}_packets"
        return float(after[name].fill_null(0).mean() or 0) if name in after.columns else 0.0  # pyright: ignore[reportArgumentType]
