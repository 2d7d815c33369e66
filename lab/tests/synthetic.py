"""Synthetic run folders: messages over two paths, of which `its-g5` fades; a `Plan` is a strategy."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import resolved_scenario

from crosslane_lab.coverage import HYSTERESIS_DB
from crosslane_lab.runs.tables import TABLES

PERIOD_S = 0.02
SIZE = 1000
NEAR, FAR = "its-g5", "lte"


@dataclass(frozen=True)
class Plan:
    """One strategy: it waits `stall_s` from `leave_s`, and uses the path `return_s` after its signal recovered."""

    leave_s: float
    stall_s: float
    decides: bool = False
    return_s: float | None = None


@dataclass(frozen=True)
class Drive:
    """A synthetic drive."""

    name: str = "leave-coverage"
    title: str = "A vehicle leaves the coverage of a roadside unit"
    duration_s: float = 24.0
    mode: str = "aggregate"
    traffic: str = "messages"
    back_s: float | None = None
    seeds: tuple[int, ...] = (1, 2)
    plans: dict[str, Plan] = field(
        default_factory=lambda: {
            "kernel": Plan(leave_s=14.6, stall_s=0.902),
            "kernel-tuned": Plan(leave_s=14.6, stall_s=0.412),
            "threshold": Plan(leave_s=13.2, stall_s=0.027, decides=True),
        }
    )


PASS_BY = Drive(
    name="pass-by",
    title="Out of coverage and back into it",
    duration_s=40.0,
    back_s=26.0,
    plans={
        "kernel": Plan(leave_s=14.6, stall_s=0.9, return_s=5.4),
        "kernel-tuned": Plan(leave_s=14.6, stall_s=0.4, return_s=3.1),
        "threshold": Plan(leave_s=13.2, stall_s=0.03, decides=True, return_s=0.097),
    },
)

CROSSES_S = 13.2
THRESHOLD_DBM = -82.0


def write(root: Path, drive: Drive | None = None) -> Path:
    """Write the run folder of a drive and return it."""
    drive = drive or Drive()
    root.mkdir(parents=True, exist_ok=True)
    runs = [_write_run(root, drive, strategy, seed) for strategy in drive.plans for seed in drive.seeds]
    summary = {
        "schema": 1,
        "scenario": drive.name,
        "title": drive.title,
        "engine": "kernel",
        "duration_s": drive.duration_s,
        "seeds": list(drive.seeds),
        "strategies": list(drive.plans),
        "runs": runs,
        "expect": [
            {"text": "threshold: delivery_delay_ms.max at most 60", "ok": True, "value": 27.0},
            {"text": "threshold: gap_ms.max at most 1", "ok": False, "value": 7.5},
        ],
    }
    (root / "summary.json").write_text(json.dumps(summary))
    (root / "scenario.toml").write_text(f'name = "{drive.name}"\n')
    (root / "scenario.json").write_text(json.dumps(scenario(drive)))
    versions: dict[str, Any] = {
        "crosslane": "0.1.0",
        "kernel": "6.18.0",
        "machine": {"cpu": "synthetic", "cores": 2},
    }
    versions |= {"tcp_rmem": "4096\t131072\t6291456", "processor": None}
    (root / "versions.json").write_text(json.dumps(versions))
    return root


def write_runs(folder: Path, values: dict[str, float | None], metric: str = "goodput_mbit_s") -> None:
    """A run folder with a metric of each strategy; None: the run has no such metric."""
    runs = [
        {"strategy": name, "seed": 1, "valid": True, "metrics": {metric: value}} for name, value in values.items()
    ]
    summary = {"schema": 1, "scenario": "x", "engine": "simulator", "duration_s": 60.0, "seeds": [1]}
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(summary | {"strategies": [*values], "runs": runs}))
    for name in values:
        (folder / "runs" / f"{name}-1").mkdir(parents=True)
        (folder / "runs" / f"{name}-1" / "events.jsonl").write_text("")


def change_summary(root: Path, **changes: object) -> None:
    """Overwrite keys of a summary."""
    file = root / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def rewrite(file: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Change a record file (via another name: polars may still map the old file)."""
    new = file.with_suffix(".new")
    change(pl.read_ipc(file)).write_ipc(new)
    new.replace(file)


def scenario(drive: Drive) -> dict[str, Any]:
    """The resolved scenario of a drive."""
    unit = {"name": "rsu1", "radio": NEAR, "outages_s": []}
    crossings = [_crossing("below", CROSSES_S)]
    crossings += [] if drive.back_s is None else [_crossing("above", drive.back_s)]
    return resolved_scenario.of(
        paths=[{"name": NEAR, "link": "radio"}, {"name": FAR, "link": "cellular"}],
        roadside_units=[unit],
        service={"mode": drive.mode, "prefer": [NEAR, FAR]},
        traffic={"kind": drive.traffic, "size_bytes": SIZE, "every_ms": 20},
        strategies=list(drive.plans),
        expect=[*crossings, resolved_scenario.at_most("threshold", "delivery_delay_ms.max", 60)],
    )


def _crossing(direction: str, at_s: float) -> dict[str, Any]:
    between_s = [at_s - 5, at_s + 5]
    return {"crossing": NEAR, "threshold_dbm": THRESHOLD_DBM, "direction": direction, "between_s": between_s}


def frame(name: str, columns: dict[str, Any], rows: int) -> pl.DataFrame:
    """A record with every documented column; columns that are not given are null."""
    data: dict[str, Any] = {
        column: columns.get(column, pl.repeat(None, rows, eager=True)) for column in TABLES[name]
    }
    return pl.DataFrame(data, schema_overrides=TABLES[name]).cast(TABLES[name])


def _write_run(root: Path, drive: Drive, strategy: str, seed: int) -> dict[str, Any]:
    plan, rng = drive.plans[strategy], np.random.default_rng([seed, len(strategy)])
    folder = root / "runs" / f"{strategy}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    messages = _messages(drive, plan, seed, rng)
    packets = _packets(drive, plan, messages, rng)
    tables = {
        "messages": messages,
        "packets": packets,
        "throughput": _throughput(packets),
        "samples": _samples(drive, rng),
        "links": _links(drive, rng),
        "tcp_info": _tcp_info(drive, plan, rng),
    }
    for name, table in tables.items():
        table.write_ipc(folder / f"{name}.arrow")
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in _events(drive, plan)))
    return {
        "strategy": strategy,
        "seed": seed,
        "folder": f"runs/{strategy}-{seed}",
        "valid": True,
        "attempts": 1,
        "metrics": _metrics(drive, plan, messages),
    }


def _mean_dbm(drive: Drive, t_s: np.ndarray) -> np.ndarray:
    """Falls through the threshold at `CROSSES_S`; rises through it and its hysteresis at `back_s`."""
    since = t_s - CROSSES_S
    mean = THRESHOLD_DBM - np.where(since > 0, 2.6 * since, 1.5 * since)
    if drive.back_s is not None:
        until = drive.back_s - t_s
        mean = np.maximum(mean, THRESHOLD_DBM + HYSTERESIS_DB - np.where(until > 0, 2.6 * until, 1.5 * until))
    return np.maximum(-104.0, mean)


def _links(drive: Drive, rng: np.random.Generator) -> pl.DataFrame:
    t_s = np.arange(0.0, drive.duration_s, 0.01)
    mean = _mean_dbm(drive, t_s)
    near = frame(
        "links",
        {
            "t_ns": (t_s * 1e9).astype(np.uint64),
            "path": [NEAR] * len(t_s),
            "x_m": 14 * t_s,
            "speed_m_s": np.full(len(t_s), 13.9),
            "distance_m": 14 * t_s,
            "rssi_dbm": mean,
            "up_mbit_s": np.full(len(t_s), 6.0),
            "down_mbit_s": np.full(len(t_s), 6.0),
            "delay_ms": np.full(len(t_s), 2.0),
            "loss": np.clip((-mean - 86) / 8, 0, 0.999),
        },
        len(t_s),
    )
    far = near.with_columns(
        path=pl.lit(FAR),
        rssi_dbm=pl.Series(-85 + np.cumsum(rng.normal(0, 0.03, len(t_s))), dtype=pl.Float32),
        loss=0.0,
        delay_ms=25.0,
        distance_m=None,
    ).cast(TABLES["links"])
    return pl.concat([near, far]).sort("t_ns")


def _samples(drive: Drive, rng: np.random.Generator) -> pl.DataFrame:
    t_s = np.arange(0.05, drive.duration_s, 0.1)
    rssi = _mean_dbm(drive, t_s) + rng.normal(0, 1.8, len(t_s))
    t_s, rssi = t_s[rssi > -95], rssi[rssi > -95]
    columns = {
        "t_ns": (t_s * 1e9).astype(np.uint64),
        "path": [NEAR] * len(t_s),
        "kind": ["cam"] * len(t_s),
        "rssi_dbm": rssi,
        "station": [1000] * len(t_s),
    }
    return frame("samples", columns, len(t_s))


def _messages(drive: Drive, plan: Plan, seed: int, rng: np.random.Generator) -> pl.DataFrame:
    sent = np.arange(1.0, drive.duration_s - 1.0, PERIOD_S)
    on_near = _on_near(drive, plan, sent)
    received = sent + np.where(on_near, 0.006, 0.0275) + rng.gamma(2.0, 0.0006, len(sent)).clip(0, 0.006)
    stalled = (sent >= plan.leave_s) & (sent < plan.leave_s + plan.stall_s)
    released = plan.leave_s + plan.stall_s + 0.002 * (seed - 1)
    if plan.stall_s > 0.1:
        received = np.where(stalled, np.maximum(received, released), received)
    received = np.maximum.accumulate(received)
    columns = {
        "number": np.arange(len(sent)),
        "sent_ns": np.round(sent * 1e9).astype(np.uint64),
        "received_ns": np.round(received * 1e9).astype(np.uint64),
        "size_bytes": np.full(len(sent), SIZE),
    }
    return frame("messages", columns, len(sent))


def _on_near(drive: Drive, plan: Plan, t_s: np.ndarray) -> np.ndarray:
    near = t_s < plan.leave_s
    if drive.back_s is not None and plan.return_s is not None:
        near |= t_s > drive.back_s + plan.return_s
    return near


def _packets(drive: Drive, plan: Plan, messages: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """A packet per message; in a stall the near path loses them, and the far path retransmits them."""
    sent = messages["sent_ns"].to_numpy() / 1e9
    dsn = np.arange(len(sent)) * SIZE
    stalled = (sent >= plan.leave_s) & (sent < plan.leave_s + min(plan.stall_s, 0.3)) & (plan.stall_s > 0.1)
    near = _on_near(drive, plan, sent) | stalled
    first = _data(sent, dsn, near, stalled)
    retransmitted_s = np.linspace(0, 0.02, int(stalled.sum())) + plan.leave_s + plan.stall_s - 0.03
    none = np.zeros(len(retransmitted_s), bool)
    retransmitted = _data(retransmitted_s, dsn[stalled], none, none)
    acks = frame(
        "packets",
        {
            "t_ns": messages["received_ns"].to_numpy(),
            "delivered_ns": messages["received_ns"].to_numpy() + 10_000_000,
            "path": np.where(near & ~stalled, NEAR, FAR),
            "direction": ["down"] * len(sent),
            "ip_bytes": [60] * len(sent),
            "payload_bytes": [0] * len(sent),
            "data_ack": dsn + SIZE,
            "subflow": np.where(near & ~stalled, 0, 1),
        },
        len(sent),
    )
    return pl.concat([first, retransmitted, acks]).sort("t_ns")


def _data(t_s: np.ndarray, dsn: np.ndarray, near: np.ndarray, lost: np.ndarray) -> pl.DataFrame:
    t_ns = np.round(t_s * 1e9).astype(np.uint64)
    delay = np.where(near, 5_000_000, 26_000_000).astype(np.uint64)
    columns = {
        "t_ns": t_ns,
        "delivered_ns": pl.Series(t_ns + delay).set(pl.Series(lost), None),
        "path": np.where(near, NEAR, FAR),
        "direction": ["up"] * len(t_s),
        "ip_bytes": [SIZE + 76] * len(t_s),
        "payload_bytes": [SIZE] * len(t_s),
        "subflow": np.where(near, 0, 1),
        "tcp_seq": dsn % 2**32,
        "tcp_ack": np.zeros(len(t_s)),
        "tcp_flags": [0x18] * len(t_s),
        "dsn": dsn,
        "mptcp": ["dss"] * len(t_s),
        "drop": pl.Series([None] * len(t_s), dtype=pl.String).set(pl.Series(lost), "retries"),
    }
    return frame("packets", columns, len(t_s))


def _throughput(packets: pl.DataFrame) -> pl.DataFrame:
    bins = (pl.col("delivered_ns") // 100_000_000 * 100_000_000).alias("t_ns")
    sums = (
        packets.drop_nulls("delivered_ns")
        .group_by(bins, "path", "direction")
        .agg(pl.col("ip_bytes", "payload_bytes").cast(pl.UInt64).sum(), reinjected_bytes=pl.lit(0, pl.UInt64))
    )
    return sums.select(*TABLES["throughput"]).sort("t_ns", "path", "direction")


def _tcp_info(drive: Drive, plan: Plan, rng: np.random.Generator) -> pl.DataFrame:
    t_s = np.arange(1.0, drive.duration_s, 0.1)
    both: list[pl.DataFrame] = []
    for number, (path, rtt) in enumerate(((NEAR, 10_000), (FAR, 52_000))):
        alive = t_s if path == FAR or not plan.decides else t_s[t_s < plan.leave_s]
        columns = {
            "t_ns": (alive * 1e9).astype(np.uint64),
            "path": [path] * len(alive),
            "local": [f"10.0.{number}.1:40000"] * len(alive),
            "token": [7] * len(alive),
            "backup": [False] * len(alive),
            "rtt_us": (rtt * (1 + rng.gamma(1.5, 0.05, len(alive)))).astype(int),
            "cwnd": (10 + 30 * (1 - np.exp(-(alive - 1) / 4))).astype(int),
        }
        both.append(frame("tcp_info", columns, len(alive)))
    return pl.concat(both).sort("t_ns")


def _events(drive: Drive, plan: Plan) -> list[dict[str, Any]]:
    def kernel(t_s: float, event: str, path: str, backup: bool = False) -> dict[str, Any]:
        return {
            "t_s": t_s,
            "source": "kernel",
            "event": event,
            "side": "vehicle",
            "token": 7,
            "path": path,
            "backup": backup,
        }

    def decision(t_s: float, path: str, state: str, was: str, rule: str, reason: str) -> dict[str, Any]:
        return {
            "t_s": t_s,
            "source": "agent",
            "event": "decision",
            "path": path,
            "state": state,
            "was": was,
            "rule": rule,
            "reason": reason,
            "inputs": {"rssi_dbm": -82.4, "threshold_dbm": THRESHOLD_DBM},
        }

    backup = drive.mode == "backup"
    events = [kernel(1.0, "established", NEAR), kernel(1.06, "subflow_established", FAR, backup)]
    if plan.decides:
        reason = "the smoothed signal was below −82 dBm for 100 ms (−82.4 dBm)"
        if backup:
            events.append(decision(plan.leave_s - 0.15, FAR, "active", "backup", "threshold.leave", reason))
            events.append(kernel(plan.leave_s - 0.15, "subflow_priority", FAR) | {"side": "server"})
        events.append(decision(plan.leave_s, NEAR, "closed", "active", "threshold.leave", reason))
        events.append(kernel(plan.leave_s + 0.001, "subflow_closed", NEAR))
        if drive.back_s is not None and plan.return_s is not None:
            back = drive.back_s + plan.return_s
            events.append(decision(back - 0.02, NEAR, "active", "closed", "threshold.enter", "above −79 dBm"))
            events.append(kernel(back, "subflow_established", NEAR))
    return events


def _metrics(drive: Drive, plan: Plan, messages: pl.DataFrame) -> dict[str, float]:
    delay_ms = (messages["received_ns"] - messages["sent_ns"]) / 1e6
    gap_ms = messages["received_ns"].diff().max() / 1e6 - PERIOD_S * 1e3  # pyright: ignore
    metrics = {
        "delivery_delay_ms.p50": float(delay_ms.median()),  # pyright: ignore
        "delivery_delay_ms.max": float(delay_ms.max()),  # pyright: ignore
        "gap_ms.max": float(gap_ms),
        "messages.sent": messages.height,
        "messages.lost": 0,
        f"path.{NEAR}.share": 0.56,
        "overhead_share": 0.153,
        "lateness_us.p99": 212.0,
    }
    if drive.traffic == "uploads":
        metrics |= {f"path.{NEAR}.bytes": 40e6 + 20e6 * plan.decides, f"path.{FAR}.bytes": 100e6}
        metrics |= {"packets.lost": 321.0, "reinjected_bytes": 1.5e6}
    if plan.decides:
        metrics["handover.first_s"] = plan.leave_s
    if drive.back_s is not None and plan.return_s is not None:
        metrics["recovery_ms"] = plan.return_s * 1e3
    return metrics
