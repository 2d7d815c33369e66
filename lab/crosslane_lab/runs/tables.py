"""The record files of a run: their columns and types (docs/formats.md, "Run folder")."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from crosslane_lab.columns import is_text
from crosslane_lab.errors import LabError, first_line, unreadable

_MAGIC = b"ARROW1"
RERUN = "run the drive again with this version of crosslane"

TABLES: dict[str, dict[Any, Any]] = {
    "packets": {
        "t_ns": pl.UInt64,
        "delivered_ns": pl.UInt64,
        "path": pl.String,
        "direction": pl.String,
        "ip_bytes": pl.UInt16,
        "payload_bytes": pl.UInt16,
        "subflow": pl.UInt16,
        "tcp_seq": pl.UInt32,
        "tcp_ack": pl.UInt32,
        "tcp_flags": pl.UInt8,
        "dsn": pl.UInt64,
        "data_ack": pl.UInt64,
        "mptcp": pl.String,
        "drop": pl.String,
        "tries": pl.UInt8,
    },
    "throughput": {
        "t_ns": pl.UInt64,
        "path": pl.String,
        "direction": pl.String,
        "ip_bytes": pl.UInt64,
        "payload_bytes": pl.UInt64,
        "reinjected_bytes": pl.UInt64,
    },
    "samples": {
        "t_ns": pl.UInt64,
        "path": pl.String,
        "kind": pl.String,
        "rssi_dbm": pl.Float32,
        "station": pl.UInt32,
        "rsrq_db": pl.Float32,
        "sinr_db": pl.Float32,
        "phy_mbit_s": pl.Float64,
        "latitude_deg": pl.Float64,
        "longitude_deg": pl.Float64,
        "heading_deg": pl.Float64,
        "speed_m_s": pl.Float64,
        "announced": pl.Boolean,
    },
    "tcp_info": {
        "t_ns": pl.UInt64,
        "path": pl.String,
        "subflow": pl.UInt16,
        "local": pl.String,
        "remote": pl.String,
        "token": pl.UInt32,
        "backup": pl.Boolean,
        "rtt_us": pl.UInt32,
        "rttvar_us": pl.UInt32,
        "cwnd": pl.UInt32,
        "unacked": pl.UInt32,
        "lost": pl.UInt32,
        "total_retrans": pl.UInt32,
        "bytes_acked": pl.UInt64,
        "bytes_received": pl.UInt64,
        "notsent_bytes": pl.UInt32,
        "delivery_rate_bit_s": pl.UInt64,
    },
    "messages": {
        "number": pl.UInt64,
        "sent_ns": pl.UInt64,
        "written_ns": pl.UInt64,
        "received_ns": pl.UInt64,
        "size_bytes": pl.UInt32,
    },
    "links": {
        "t_ns": pl.UInt64,
        "path": pl.String,
        "x_m": pl.Float64,
        "y_m": pl.Float64,
        "speed_m_s": pl.Float64,
        "distance_m": pl.Float64,
        "rssi_dbm": pl.Float32,
        "up_mbit_s": pl.Float64,
        "down_mbit_s": pl.Float64,
        "delay_ms": pl.Float64,
        "loss": pl.Float64,
        "sinr_db": pl.Float64,
        "rsrq_db": pl.Float64,
        "carrier_rssi_dbm": pl.Float64,
        "cell": pl.UInt8,
    },
}
"""The columns of each record file, and the types in which the lab returns them."""

_FIRST_OF_SAMPLES = frozenset({"t_ns", "path", "kind", "rssi_dbm", "station"})
_ADDED_LATER: dict[str, frozenset[Any]] = {
    "messages": frozenset({"written_ns"}),
    "links": frozenset({"sinr_db", "rsrq_db", "carrier_rssi_dbm", "cell"}),
    "samples": frozenset(TABLES["samples"]) - _FIRST_OF_SAMPLES,
}
"""Columns that early drives of schema 1 lack: null where they are missing."""


def read(file: Path) -> pl.LazyFrame:
    """A record file, with exactly the columns and types of `TABLES`; raises `LabError`."""
    if not file.is_file():
        raise unreadable(file, "the file is missing", RERUN)
    try:
        frame = pl.scan_ipc(file)
        found = frame.collect_schema()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise unreadable(file, f"not an Arrow IPC file ({first_line(error)})", RERUN) from error
    return frame.select(_typed(file, column, kind, found) for column, kind in TABLES[file.stem].items())


def is_whole(file: Path) -> bool:
    """Whether an Arrow IPC file has its end, which one that was cut lacks."""
    with file.open("rb") as opened:
        opened.seek(0, os.SEEK_END)
        opened.seek(max(opened.tell() - len(_MAGIC), 0))
        return opened.read() == _MAGIC


def damaged(folder: Path) -> LabError | None:
    """What is wrong with the first Arrow file below a folder that cannot be read; for when a reader failed."""
    for file in sorted(folder.rglob("*.arrow")):
        try:
            pl.scan_ipc(file).collect()
        except (pl.exceptions.PolarsError, OSError) as error:
            return unreadable(file, f"the file is damaged ({first_line(error)})", RERUN)
    return None


def _typed(file: Path, column: str, kind: Any, found: pl.Schema) -> pl.Expr:  # noqa: ANN401
    if column not in found and column in _ADDED_LATER.get(file.stem, ()):
        return pl.lit(None, dtype=kind).alias(column)
    if column not in found:
        raise unreadable(file, f"column `{column}` is missing", RERUN)
    have = found[column]
    fits: Callable[[Any], bool] = _FAMILIES[kind]
    if have != pl.Null and not fits(have):
        raise unreadable(file, f"column `{column}` is {have}, not {kind.__name__}", RERUN)
    return pl.col(column).cast(kind)


def _is_number(kind: Any) -> bool:  # noqa: ANN401
    return kind.is_numeric()


_FAMILIES: dict[Any, Callable[[Any], bool]] = {
    pl.String: is_text,
    pl.Boolean: lambda kind: kind == pl.Boolean,
} | dict.fromkeys((pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64), _is_number)
