"""Wi-Fi from `feup-wifi`: RSSI by distance, goodput by RSSI, and PHY rate by both (docs/design/radio.md, "Wi-Fi").

The access points of one band are fitted together. The stated error is that of a fit on one of them, tested on
the other, which had another location, client and channel.
"""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from crosslane_lab import columns
from crosslane_lab.calibrate.process import Floats, correlation_length, side_deviations, standardize
from crosslane_lab.errors import first_line, unreadable

BANDS = {"2.4": ("ap1", "ap3"), "5": ("ap2", "ap4")}

EIRP_DBM = 20.0
"""Assumed: the recording does not have it. Only EIRP minus loss can be fitted."""

NO_SIGNAL_DBM = -100.0

COLUMNS = (
    *("systime", "receiverDist", "receiverSpeed", "isInLap", "isIperfOn"),
    *("rssiMean", "nBytesReceived", "dataRateMean"),
)
"""Columns of numbers that are read."""
REMEDY = "name the folder of the data sets with --data"


def calibrate(data: Path) -> dict[str, Any]:
    """Parameters and errors, by band."""
    file = data / "feup-wifi" / "summary" / "final-exp-log.csv"
    try:
        log = pl.read_csv(file, infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise unreadable(file, first_line(error), REMEDY) from error
    columns.check(file, log.schema, COLUMNS, ("senderId",), REMEDY)
    received = log.filter((pl.col("isInLap") == 1) & (pl.col("rssiMean") > NO_SIGNAL_DBM)).sort(
        "senderId", "systime"
    )
    return {band: _band(received, points) for band, points in BANDS.items()}


def _band(received: pl.DataFrame, points: tuple[str, ...]) -> dict[str, Any]:
    rows = received.filter(pl.col("senderId").is_in(points))
    near_m, loss_1m_db, exponent = _fit_loss(rows)
    shadow_db = _rssi(rows) - _mean_dbm(rows, (near_m, loss_1m_db, exponent))
    flow = _flow(rows)
    peak, knee_dbm, floor_dbm = _fit_rate(flow)
    rate_db = 10.0 * np.log10(_mbit_s(flow) / _rate(_rssi(flow), (peak, knee_dbm, floor_dbm)))
    off_db = side_deviations(rate_db)
    return {
        "parameters": {
            "loss_1m_db": loss_1m_db,
            "exponent": exponent,
            "near_m": near_m,
            "shadowing_db": round(float(shadow_db.std()), 1),
            "shadowing_distance_m": round(_shadowing_distance(rows, shadow_db), 0),
            "peak_mbit_s": peak,
            "most_mbit_s": round(float(np.quantile(_mbit_s(flow), 0.99)), 1),
            "knee_dbm": knee_dbm,
            "floor_dbm": floor_dbm,
            "sensitivity_dbm": round(float(np.quantile(_rssi(rows), 0.01)), 0),
            "share_low_db": round(off_db[0], 1),
            "share_high_db": round(off_db[1], 1),
            "share_memory_s": round(
                correlation_length(standardize(rate_db, off_db), _times(flow), _groups(flow), (0.5, 1.5)), 1
            ),
            **_phy(flow),
        },
        "errors": [_across(rows, train, test) for train, test in (points, points[::-1])],
    }


def _across(rows: pl.DataFrame, train: str, test: str) -> dict[str, Any]:
    """Errors on one access point of the fit on the other."""
    known, unknown = (rows.filter(pl.col("senderId") == point) for point in (train, test))
    off_db = _rssi(unknown) - _mean_dbm(unknown, _fit_loss(known))
    known, unknown = _flow(known), _flow(unknown)
    rate = _rate(_rssi(unknown), _fit_rate(known))
    off = np.abs(_mbit_s(unknown) - rate)
    factor_db = np.abs(10.0 * np.log10(_mbit_s(unknown) / rate))
    phy_db = np.abs(_phy_db(unknown) - _phy_terms(unknown) @ _fit_phy(known))
    return {
        "fitted_on": train,
        "tried_on": test,
        "seconds": unknown.height,
        "rssi_rmse_db": round(float(np.sqrt(np.mean(off_db**2))), 1),
        "rssi_bias_db": round(float(off_db.mean()), 1),
        "goodput_median_error_mbit_s": round(float(np.median(off)), 1),
        "goodput_90_error_mbit_s": round(float(np.quantile(off, 0.9)), 1),
        "goodput_median_factor": round(10.0 ** (float(np.median(factor_db)) / 10.0), 2),
        "goodput_90_factor": round(10.0 ** (float(np.quantile(factor_db, 0.9)) / 10.0), 1),
        "phy_median_factor": round(10.0 ** (float(np.median(phy_db)) / 10.0), 2),
        "phy_90_factor": round(10.0 ** (float(np.quantile(phy_db, 0.9)) / 10.0), 1),
    }


def _phy(flow: pl.DataFrame) -> dict[str, float]:
    """The PHY rate by RSSI and goodput: rate control chooses it by what arrives, not by the signal alone."""
    fit = _fit_phy(flow)
    off_db = _phy_db(flow) - _phy_terms(flow) @ fit
    least, most = np.quantile(_phy_mbit_s(flow), (0.01, 0.99))
    return {
        "phy_base_db": round(float(fit[0]), 1),
        "phy_per_db": round(float(fit[1]), 3),
        "phy_per_goodput": round(float(fit[2]), 2),
        "phy_sigma_db": round(float(off_db.std()), 1),
        "phy_memory_s": round(correlation_length(off_db, _times(flow), _groups(flow), (0.5, 1.5)), 1),
        "min_phy_mbit_s": round(float(least), 1),
        "max_phy_mbit_s": round(float(most), 1),
    }


def _fit_phy(flow: pl.DataFrame) -> Floats:
    """Constant, dB per dB of RSSI, and per dB of goodput: least squares."""
    return np.asarray(np.linalg.lstsq(_phy_terms(flow), _phy_db(flow), rcond=None)[0], dtype=np.float64)


def _phy_terms(flow: pl.DataFrame) -> Floats:
    return np.column_stack([np.ones(flow.height), _rssi(flow), 10.0 * np.log10(_mbit_s(flow))])


def _phy_db(flow: pl.DataFrame) -> Floats:
    return 10.0 * np.log10(_phy_mbit_s(flow))


def _phy_mbit_s(flow: pl.DataFrame) -> Floats:
    return flow["dataRateMean"].to_numpy()


def _fit_loss(rows: pl.DataFrame) -> tuple[float, float, float]:
    """Distance with constant loss, loss at 1 m in dB (extrapolated), exponent: least squares."""
    best: tuple[float, tuple[float, float, float]] | None = None
    for near_m in range(1, 41):
        decades = np.log10(np.maximum(_distance(rows), float(near_m)))
        slope, at_1m = np.polyfit(decades, _rssi(rows), 1)
        error = float(np.std(_rssi(rows) - slope * decades - at_1m))
        if best is None or error < best[0]:
            best = error, (float(near_m), round(EIRP_DBM - float(at_1m), 1), round(-float(slope) / 10.0, 2))
    assert best is not None
    return best[1]


def _mean_dbm(rows: pl.DataFrame, loss: tuple[float, float, float]) -> Floats:
    near_m, loss_1m_db, exponent = loss
    return EIRP_DBM - loss_1m_db - 10.0 * exponent * np.log10(np.maximum(_distance(rows), near_m))


def _fit_rate(flow: pl.DataFrame) -> tuple[float, float, float]:
    """Peak, knee and floor of the median goodput by RSSI: least absolute difference of the logarithms."""
    rssi, log_rate = _rssi(flow), np.log10(_mbit_s(flow))
    best: tuple[float, tuple[float, float, float]] | None = None
    for knee in np.arange(-75.0, -39.0, 1.0):
        for floor in np.arange(-95.0, knee - 5.0, 1.0):
            shape = np.log10(_rate(rssi, (1.0, knee, floor)))
            peak = float(np.median(log_rate - shape))
            error = float(np.mean(np.abs(log_rate - shape - peak)))
            if best is None or error < best[0]:
                best = error, (round(10.0**peak, 1), float(knee), float(floor))
    assert best is not None
    return best[1]


def _rate(rssi_dbm: Floats, curve: tuple[float, float, float]) -> Floats:
    """Attenuated Shannon: log2(1 + 10^((RSSI − floor)/10)), relative to its value at the knee."""
    peak, knee_dbm, floor_dbm = curve
    bits = np.log2(1.0 + 10.0 ** ((np.minimum(rssi_dbm, knee_dbm) - floor_dbm) / 10.0))
    return peak * bits / np.log2(1.0 + 10.0 ** ((knee_dbm - floor_dbm) / 10.0))


def _shadowing_distance(rows: pl.DataFrame, shadow_db: Floats) -> float:
    moving = rows["receiverSpeed"].to_numpy() > 1.0
    travelled_m = np.cumsum(rows["receiverSpeed"].to_numpy())
    groups = np.where(moving, _groups(rows), -np.arange(1, rows.height + 1))
    return correlation_length(shadow_db, travelled_m, groups, (1.0, 6.5))


def _flow(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter((pl.col("isIperfOn") == 1) & (pl.col("nBytesReceived") > 0))


def _mbit_s(rows: pl.DataFrame) -> Floats:
    return rows["nBytesReceived"].to_numpy() * 8.0 / 1e6


def _rssi(rows: pl.DataFrame) -> Floats:
    return rows["rssiMean"].to_numpy()


def _distance(rows: pl.DataFrame) -> Floats:
    return rows["receiverDist"].to_numpy()


def _times(rows: pl.DataFrame) -> Floats:
    return rows["systime"].to_numpy().astype(np.float64)


def _groups(rows: pl.DataFrame) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The number of the access point of each row."""
    return rows["senderId"].str.slice(2).cast(pl.Int64).to_numpy()
