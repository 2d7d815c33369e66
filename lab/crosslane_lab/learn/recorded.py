"""`crosslane-lab learn import`: recordings of one network as windows, in the form that `learn collect` writes.

`feup-wifi` (access points, passed by a client that receives a UDP flow) and `uccmisl-5g` (phones that download)
have a row each second, not each 250 ms. As in collected windows, a row has the quantities of a second and the
goodput of the following one; a gap or a change of the network begins a new drive. What was not recorded is null:
the other path, all of the transport, delay, buffer. `prio` is the order in which the recorded path would be first:
it carried alone. So `learn analyse` can use them, and `learn train` cannot: there is one order only.
"""

import argparse
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars as pl

from crosslane_lab.errors import first_line, unreadable
from crosslane_lab.learn.collect import PATHS, QUANTITIES
from crosslane_lab.learn.places import CLASSES

SECOND_NS = 1_000_000_000
NO_SIGNAL_DBM = -100
"""What `feup-wifi` has where no frame was received."""
MODES = {"LTE": "lte", "5G": "nr"}
REMEDY = "name the folder of the data sets with --data (docs/guide/real-data.md)"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("import", help="recordings of one network as windows", description=__doc__)
    parser.add_argument("data_set", choices=sorted(DATA_SETS), metavar="SET", help=", ".join(sorted(DATA_SETS)))
    parser.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="the folder that holds the data sets"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="(default: SET.parquet)")
    parser.set_defaults(act=_act)


def _act(given: argparse.Namespace) -> None:
    try:
        frame = DATA_SETS[given.data_set](given.data)
    except pl.exceptions.PolarsError as error:
        raise unreadable(given.data / given.data_set, first_line(error), REMEDY) from error
    out = given.out or Path(f"{given.data_set}.parquet")
    out.parent.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(out)
    print(out)


def feup_wifi(data: Path) -> pl.DataFrame:
    """Seconds with a known UDP flow; the PHY rate of received frames is `rx_mbit_s`."""
    file = data / "feup-wifi" / "summary" / "final-exp-log.csv"
    try:
        log = pl.read_csv(file, infer_schema_length=None)
        rows = log.filter(pl.col("isIperfOn") == 1).select(
            "senderId",
            t_s=pl.col("systime").cast(pl.Int64),
            network=pl.col("senderId"),
            wifi=pl.when(pl.col("channelFreq") < 3000).then(pl.lit("2.4 GHz")).otherwise(pl.lit("5 GHz")),
            speed_kmh=pl.col("receiverSpeed") * 3.6,
            signal_dbm=pl.col("rssiMean").replace(NO_SIGNAL_DBM, None),
            rx_mbit_s=pl.when(pl.col("rssiMean") > NO_SIGNAL_DBM).then(pl.col("dataRateMean")),
            goodput_mbit_s=pl.col("nBytesReceived") * 8 / 1e6,
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        raise unreadable(file, first_line(error), REMEDY) from error
    return _windows(rows.with_columns(cellular=pl.lit(None, pl.Utf8)), "wifi", "udp-down")


def uccmisl_5g(data: Path) -> pl.DataFrame:
    """Seconds of the downloads, at rest and driving, on LTE and 5G; the goodput is the phone's downlink rate."""
    file = data / "uccmisl-5g" / "5G-production-dataset.zip"
    try:
        archive = zipfile.ZipFile(file)
        names = [name for name in archive.namelist() if "/Download/" in name and name.endswith(".csv")]
        names = sorted(name for name in names if not name.startswith("__MACOSX"))
        logs = [_phone(archive.read(name), str(place)) for place, name in enumerate(names)]
    except (OSError, zipfile.BadZipFile, pl.exceptions.PolarsError) as error:
        raise unreadable(file, first_line(error), REMEDY) from error
    if not logs:
        raise unreadable(file, "it has no downloads", REMEDY)
    return _windows(pl.concat(logs).with_columns(wifi=pl.lit(None, pl.Utf8)), "cellular", "bulk-down")


def _phone(content: bytes, log: str) -> pl.DataFrame:
    rows = pl.read_csv(io.BytesIO(content), infer_schema_length=0, null_values=["-"])
    number = {
        name: pl.col(name).cast(pl.Float64, strict=False) for name in ("RSRP", "SNR", "RSRQ", "Speed", "DL_bitrate")
    }
    known = rows.filter(pl.col("NetworkMode").is_in(list(MODES)), pl.col("State") == "D")
    return known.select(
        t_s=pl.col("Timestamp").str.to_datetime("%Y.%m.%d_%H.%M.%S").dt.epoch("s"),
        network=log + pl.col("NetworkMode"),
        cellular=pl.col("NetworkMode").replace_strict(MODES, return_dtype=pl.Utf8),
        speed_kmh=number["Speed"],
        signal_dbm=number["RSRP"],
        sinr_db=number["SNR"],
        rsrq_db=number["RSRQ"],
        goodput_mbit_s=number["DL_bitrate"] / 1e3,
    ).unique("t_s", keep="last", maintain_order=True)


def _windows(rows: pl.DataFrame, path: str, traffic: str) -> pl.DataFrame:
    """The rows in the form of collected windows; `network` and seconds without a gap make a drive."""
    rows = rows.sort("network", "t_s", maintain_order=True)
    begins = (pl.col("network") != pl.col("network").shift()) | (pl.col("t_s").diff() != 1)
    rows = rows.with_columns(drive=begins.fill_null(True).cum_sum().cast(pl.Int32))
    rows = rows.with_columns(
        goodput_mbit_s=pl.col("goodput_mbit_s").shift(-1).over("drive").cast(pl.Float32),
        t_ns=((pl.col("t_s") - pl.col("t_s").min().over("drive") + 1) * SECOND_NS).cast(pl.UInt64),
        kind=_class(pl.col("speed_kmh")),
    ).drop_nulls("goodput_mbit_s")
    unknown = pl.lit(None, pl.Float32)
    quantities = {f"{each}_{name}": unknown for each in PATHS for name in QUANTITIES}
    for name, (low, high) in QUANTITIES.items():
        if name in rows.columns:
            value = pl.col(name).cast(pl.Float32)
            quantities[f"{path}_{name}"] = pl.when(value.is_between(low, high)).then(value)
    return rows.select(
        "t_ns",
        "goodput_mbit_s",
        "drive",
        "kind",
        "wifi",
        "cellular",
        **quantities,
        delay_ms=unknown,
        traffic=pl.lit(traffic),
        buffer_kb=pl.lit(None, pl.Int32),
        prio=pl.lit("WF" if path == "wifi" else "LF"),
    )


def _class(speed_kmh: pl.Expr) -> pl.Expr:
    """The class of drives nearest below a speed; without a speed none."""
    found = pl.when(speed_kmh.is_null()).then(pl.lit(None, pl.Utf8))
    for kind, (least, _) in sorted(CLASSES.items(), key=lambda each: -each[1][0]):
        found = found.when(speed_kmh >= least).then(pl.lit(kind))
    return found.otherwise(pl.lit("static"))


DATA_SETS: dict[str, Callable[[Path], pl.DataFrame]] = {"feup-wifi": feup_wifi, "uccmisl-5g": uccmisl_5g}
