"""LTE and NR from `uccmisl-5g`: SINR, RSRQ, CQI by RSRP, and the rate by CQI (docs/design/radio.md, "Cellular").

The driving downloads. The stated error is that of a fit on every second drive, tested on the others.
The positions of base stations were not recorded, so path loss cannot be fitted.
"""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from crosslane_lab.calibrate.process import (
    Floats,
    correlation_length,
    ks_distance,
    quantiles,
    side_deviations,
    standardize,
)
from crosslane_lab.errors import first_line, unreadable

MODES = {"lte": "LTE", "nr": "5G"}

BANDWIDTH_MHZ = {"lte": 20.0, "nr": 100.0}
"""Assumed, like the two layers: only their product with the share of the cell can be fitted."""

LAYERS = 2.0

EFFICIENCY = np.ravel(
    [
        [0.0, 0.1523, 0.2344, 0.3770, 0.6016, 0.8770, 1.1758, 1.4766],
        [1.9141, 2.4063, 2.7305, 3.3223, 3.9023, 4.5234, 5.1152, 5.5547],
    ]
)
"""bit/s/Hz by CQI: 3GPP TS 36.213, table 7.2.3-1."""

PIVOT_DBM = -90.0
"""RSRP for which the median share is stated."""

MIN_KBIT_S = 10.0
"""Lower rates count as this, so that they have a logarithm."""

_NUMBERS = ("RSRP", "RSRQ", "SNR", "CQI", "DL_bitrate")


def calibrate(data: Path) -> dict[str, Any]:
    """Parameters and errors, by technology, and the correlation of signal and rate over both."""
    rows = _read(data / "uccmisl-5g" / "5G-production-dataset.zip")
    found: dict[str, Any] = {rat: _technology(rows, rat) for rat in MODES}
    found["correlation_of_rsrp_and_rate"] = _signal_and_rate(rows)
    return found


def _read(file: Path) -> pl.DataFrame:
    remedy = "name the folder of the data sets with --data"
    try:
        archive = zipfile.ZipFile(file)
        names = sorted(name for name in archive.namelist() if "production-dataset/Download/Driving/" in name)
        names = [name for name in names if name.endswith(".csv") and not name.startswith("__MACOSX")]
        drives = [_drive(archive.read(name), index) for index, name in enumerate(names)]
    except (OSError, zipfile.BadZipFile, pl.exceptions.PolarsError) as error:
        raise unreadable(file, first_line(error), remedy) from error
    if not drives:
        raise unreadable(file, "it has no driving downloads", remedy)
    rows = pl.concat(drives)
    known = pl.col("NetworkMode").is_in(list(MODES.values()))
    return rows.filter(known & (pl.col("State") == "D") & (pl.col("RSRP") > -150))


def _drive(content: bytes, index: int) -> pl.DataFrame:
    rows = pl.read_csv(io.BytesIO(content), infer_schema_length=0, null_values=["-"])
    time = pl.col("Timestamp").str.to_datetime("%Y.%m.%d_%H.%M.%S").dt.epoch("s")
    columns = [pl.col(name).cast(pl.Float64, strict=False) for name in _NUMBERS]
    picked = rows.select(pl.lit(index).alias("drive"), time.alias("t_s"), "NetworkMode", "State", *columns)
    return picked.unique("t_s", keep="last", maintain_order=True)


def _technology(both: pl.DataFrame, rat: str) -> dict[str, Any]:
    rows = both.filter(pl.col("NetworkMode") == MODES[rat]).drop_nulls(["RSRQ", "SNR", "CQI"])
    train, test = (rows.filter(pl.col("drive") % 2 == parity) for parity in (0, 1))
    return {"parameters": _fit(rows, rat), "errors": _errors(_fit(train, rat), test, rat)}


def _signal_and_rate(both: pl.DataFrame) -> dict[str, float]:
    """Correlation of RSRP and rate over both technologies: measured, and drawn from the fit on the same seconds."""
    rng = np.random.default_rng(1)
    rsrp, rate = np.array([]), np.array([])
    for rat, mode in MODES.items():
        rows = both.filter(pl.col("NetworkMode") == mode)
        fit = _fit(rows.drop_nulls(["RSRQ", "SNR", "CQI"]), rat)
        rsrp = np.concatenate([rsrp, _column(rows, "RSRP")])
        rate = np.concatenate([rate, _draw(fit, _column(rows, "RSRP"), rat, rng)["rate_mbit_s"]])
    measured = _correlation(_column(both, "RSRP"), _column(both, "DL_bitrate"))
    return {"measured": round(measured, 2), "model": round(_correlation(rsrp, rate), 2)}


def _fit(rows: pl.DataFrame, rat: str) -> dict[str, float]:
    rsrp, snr, cqi = (_column(rows, name) for name in ("RSRP", "SNR", "CQI"))
    slope, offset = (round(float(value), 3) for value in np.polyfit(rsrp, snr, 1))
    sinr_db = snr - slope * rsrp - offset
    cqi_slope, cqi_offset = (round(float(value), 3) for value in np.polyfit(snr, cqi, 1))
    loads = np.arange(0.0, 1.01, 0.05)
    load = float(loads[np.argmin([np.mean(np.abs(_rsrq(snr, load) - _column(rows, "RSRQ"))) for load in loads])])
    share_db = _rate_db(rows) - 10.0 * np.log10(_cell_mbit_s(snr, (cqi_slope, cqi_offset), rat))
    share_slope = round(float(np.polyfit(rsrp, share_db, 1)[0]), 3)
    share_db = share_db - share_slope * (rsrp - PIVOT_DBM)
    median_db = float(np.median(share_db))
    off_db = side_deviations(share_db - median_db)
    drive, t_s = rows["drive"].to_numpy().astype(np.int64), _column(rows, "t_s")
    return {
        "sinr_slope": slope,
        "sinr_offset_db": round(offset, 1),
        "sinr_db": round(float(sinr_db.std()), 1),
        "sinr_memory_s": round(correlation_length(sinr_db, t_s, drive, (0.5, 1.5)), 1),
        "cqi_slope": cqi_slope,
        "cqi_offset": cqi_offset,
        "load": round(load, 2),
        "share": round(10.0 ** (median_db / 10.0), 3),
        "share_slope": share_slope,
        "share_low_db": round(off_db[0], 1),
        "share_high_db": round(off_db[1], 1),
        "share_memory_s": round(
            correlation_length(standardize(share_db - median_db, off_db), t_s, drive, (0.5, 1.5)), 1
        ),
    }


def _errors(fit: dict[str, float], rows: pl.DataFrame, rat: str) -> dict[str, Any]:
    """Values drawn from the model for the measured RSRP, and the measured values."""
    rng = np.random.default_rng(1)
    rsrp, snr = _column(rows, "RSRP"), _column(rows, "SNR")
    curve = fit["cqi_slope"], fit["cqi_offset"]
    model = _draw(fit, rsrp, rat, rng)
    measured = {name: _column(rows, name) for name in ("SNR", "RSRQ", "CQI")}
    measured["rate_mbit_s"] = _column(rows, "DL_bitrate") / 1000.0
    given_snr = _cell_mbit_s(snr, curve, rat) * _share(fit, rsrp)
    factor_db = np.abs(_rate_db(rows) - 10.0 * np.log10(given_snr))
    off_rsrq, off_cqi = _rsrq(snr, fit["load"]) - measured["RSRQ"], _cqi(snr, curve) - measured["CQI"]
    return {
        "seconds": rows.height,
        "quantiles": {name: [quantiles(measured[name]), quantiles(model[name])] for name in model},
        "distance": {name: round(ks_distance(measured[name], model[name]), 2) for name in model},
        "rsrq_rmse_db_given_snr": round(float(np.sqrt(np.mean(off_rsrq**2))), 1),
        "cqi_rmse_given_snr": round(float(np.sqrt(np.mean(off_cqi**2))), 1),
        "rate_median_factor_given_snr": round(10.0 ** (float(np.median(factor_db)) / 10.0), 1),
        "rate_90_factor_given_snr": round(10.0 ** (float(np.quantile(factor_db, 0.9)) / 10.0), 1),
        "below_1_mbit_s": [round(float(np.mean(rates["rate_mbit_s"] < 1.0)), 2) for rates in (measured, model)],
        "correlation_of_rsrp_and_rate": [
            round(_correlation(rsrp, measured["rate_mbit_s"]), 2),
            round(_correlation(rsrp, model["rate_mbit_s"]), 2),
        ],
    }


def _draw(fit: dict[str, float], rsrp: Floats, rat: str, rng: np.random.Generator) -> dict[str, Floats]:
    sinr = fit["sinr_slope"] * rsrp + fit["sinr_offset_db"] + fit["sinr_db"] * rng.standard_normal(len(rsrp))
    deviation = rng.standard_normal(len(rsrp))
    off_db = deviation * np.where(deviation < 0.0, fit["share_low_db"], fit["share_high_db"])
    share = _share(fit, rsrp) * 10.0 ** (off_db / 10.0)
    curve = fit["cqi_slope"], fit["cqi_offset"]
    return {
        "SNR": sinr,
        "RSRQ": _rsrq(sinr, fit["load"]),
        "CQI": _cqi(sinr, curve),
        "rate_mbit_s": _cell_mbit_s(sinr, curve, rat) * np.minimum(share, 1.0),
    }


def _share(fit: dict[str, float], rsrp: Floats) -> Floats:
    return fit["share"] * 10.0 ** (fit["share_slope"] * (rsrp - PIVOT_DBM) / 10.0)


def _rsrq(sinr_db: Floats, load: float) -> Floats:
    return -10.0 * np.log10(12.0 * ((1.0 + 5.0 * load) / 6.0 + 10.0 ** (-sinr_db / 10.0)))


def _cqi(sinr_db: Floats, curve: tuple[float, float]) -> Floats:
    return np.clip(np.floor(curve[0] * sinr_db + curve[1] + 0.5), 1.0, 15.0)


def _cell_mbit_s(sinr_db: Floats, curve: tuple[float, float], rat: str) -> Floats:
    efficiency = EFFICIENCY[_cqi(sinr_db, curve).astype(int)]
    return efficiency * 0.168 * 5.0 * BANDWIDTH_MHZ[rat] * 0.75 * LAYERS


def _rate_db(rows: pl.DataFrame) -> Floats:
    return 10.0 * np.log10(np.maximum(_column(rows, "DL_bitrate"), MIN_KBIT_S) / 1000.0)


def _column(rows: pl.DataFrame, name: str) -> Floats:
    return rows[name].cast(pl.Float64).to_numpy()


def _correlation(one: Floats, other: Floats) -> float:
    return float(np.corrcoef(one, other)[0, 1])
