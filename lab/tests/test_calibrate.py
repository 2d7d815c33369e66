"""Fits of the radio models: they recover known parameters, and the program has the fitted ones."""

import io
import json
import os
import re
import zipfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from crosslane_lab import calibrate
from crosslane_lab.calibrate import feup_wifi, uccmisl_5g
from crosslane_lab.calibrate.process import correlation_length, ks_distance, side_deviations, standardize
from crosslane_lab.cli import main

SOURCES = Path(__file__).parents[2] / "crates" / "sim" / "src"


def ar1(rng: np.random.Generator, length: int, memory_s: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    keep = np.exp(-1.0 / memory_s)
    values = [rng.standard_normal()]
    for innovation in rng.standard_normal(length - 1):
        values.append(keep * values[-1] + np.sqrt(1.0 - keep**2) * innovation)
    return np.array(values)


def test_deviations_and_correlation_length_of_a_process_are_estimated() -> None:
    values = ar1(np.random.default_rng(1), 50_000, 4.0)
    values *= np.where(values < 0.0, 6.0, 3.0)
    assert side_deviations(values) == pytest.approx((6.0, 3.0), rel=0.05)
    found = correlation_length(
        standardize(values, side_deviations(values)),
        np.arange(50_000.0),
        np.zeros(50_000, dtype=np.int64),
        (0.5, 1.5),
    )
    assert found == pytest.approx(4.0, rel=0.1)


def test_the_distance_is_0_for_equal_samples_and_1_for_disjoint_ones() -> None:
    sample = np.arange(100.0)
    assert ks_distance(sample, sample) == 0.0
    assert ks_distance(sample, sample + 1000.0) == 1.0


def test_the_wi_fi_fit_recovers_the_given_curve(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    file = tmp_path / "feup-wifi" / "summary" / "final-exp-log.csv"
    file.parent.mkdir(parents=True)
    points = []
    for point in ("ap1", "ap2", "ap3", "ap4"):
        metres = rng.uniform(5.0, 150.0, 2000)
        rssi = -40.0 - 25.0 * np.log10(np.maximum(metres, 20.0) / 10.0) + rng.normal(0.0, 2.0, 2000)
        mbit_s = feup_wifi._rate(rssi, (30.0, -55.0, -72.0)) * 10.0 ** rng.normal(0.0, 0.3, 2000)
        points.append(
            pl.DataFrame(
                {
                    "senderId": [point] * 2000,
                    "systime": np.arange(2000),
                    "receiverDist": metres,
                    "receiverSpeed": np.full(2000, 4.0),
                    "isInLap": np.ones(2000),
                    "isIperfOn": np.ones(2000),
                    "rssiMean": rssi,
                    "nBytesReceived": mbit_s * 1e6 / 8.0,
                    "dataRateMean": 10.0 ** (4.0 + 0.03 * rssi) * mbit_s**0.2 * 10.0 ** rng.normal(0.0, 0.1, 2000),
                }
            )
        )
    pl.concat(points).write_csv(file)
    found = calibrate.DATA_SETS["feup-wifi"](tmp_path)["5"]
    fitted = found["parameters"]
    assert fitted["exponent"] == pytest.approx(2.5, abs=0.05)
    assert fitted["near_m"] == pytest.approx(20.0, abs=2.0)
    assert fitted["shadowing_db"] == pytest.approx(2.0, abs=0.15)
    assert fitted["share_low_db"] == pytest.approx(3.0, abs=0.3)
    assert fitted["share_high_db"] == pytest.approx(3.0, abs=0.3)
    fit = fitted["peak_mbit_s"], fitted["knee_dbm"], fitted["floor_dbm"]
    samples_dbm = np.array([-80.0, -70.0, -60.0, -50.0])
    assert feup_wifi._rate(samples_dbm, fit) == pytest.approx(
        feup_wifi._rate(samples_dbm, (30.0, -55.0, -72.0)), rel=0.1
    )
    assert fitted["phy_base_db"] == pytest.approx(40.0, abs=1.0)
    assert fitted["phy_per_db"] == pytest.approx(0.3, abs=0.02)
    assert fitted["phy_per_goodput"] == pytest.approx(0.2, abs=0.05)
    assert fitted["phy_sigma_db"] == pytest.approx(1.0, abs=0.1)
    assert found["errors"][0]["rssi_rmse_db"] == pytest.approx(2.0, abs=0.2)


def test_the_cellular_fit_recovers_the_given_relations(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    (tmp_path / "uccmisl-5g").mkdir()
    given = {"sinr_slope": 0.5, "sinr_offset_db": 50.0, "sinr_db": 4.0, "cqi_slope": 0.3, "cqi_offset": 7.0}
    given |= {"load": 0.5, "share": 0.1, "share_slope": 0.0, "share_low_db": 3.0, "share_high_db": 1.5}
    with zipfile.ZipFile(tmp_path / "uccmisl-5g" / "5G-production-dataset.zip", "w") as archive:
        for drive in range(4):
            rsrp = rng.uniform(-110.0, -70.0, 1000)
            rat = "lte" if drive < 2 else "nr"
            drawn = uccmisl_5g._draw(given, rsrp, rat, rng)
            times = [datetime(2020, 1, 1 + drive) + timedelta(seconds=second) for second in range(1000)]
            content = io.BytesIO()
            pl.DataFrame(
                {
                    "Timestamp": [time.strftime("%Y.%m.%d_%H.%M.%S") for time in times],
                    "NetworkMode": [uccmisl_5g.MODES[rat]] * 1000,
                    "State": ["D"] * 1000,
                    "RSRP": rsrp,
                    "RSRQ": drawn["RSRQ"],
                    "SNR": drawn["SNR"],
                    "CQI": drawn["CQI"],
                    "DL_bitrate": drawn["rate_mbit_s"] * 1000.0,
                }
            ).write_csv(content)
            archive.writestr(f"5G-production-dataset/Download/Driving/{drive}.csv", content.getvalue())
    fitted = calibrate.DATA_SETS["uccmisl-5g"](tmp_path)["lte"]["parameters"]
    for name, value in given.items():
        assert fitted[name] == pytest.approx(value, rel=0.1, abs=0.02), name


def test_missing_or_broken_data_is_reported_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "uccmisl-5g").mkdir()
    (tmp_path / "uccmisl-5g" / "5G-production-dataset.zip").write_text("no archive")
    for data_set in calibrate.DATA_SETS:
        assert main(["calibrate", data_set, "--data", str(tmp_path)]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert "name the folder of the data sets with --data" in error


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("a,b\n1,2\n", "the columns dataRateMean, isInLap, isIperfOn, nBytesReceived, receiverDist, "),
        ("HEAD\nap1,1,1,0,1,1,far,1,1\n", "final-exp-log.csv: `rssiMean` is String, not numbers; name the folder"),
        ("HEAD\nap1,1,1,0,1,1,-50,1,1\n", "feup-wifi: nothing can be fitted to its rows ("),
    ],
)
def test_another_recording_is_named(
    text: str, cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = ",".join(("senderId", *feup_wifi.COLUMNS))
    file = tmp_path / "feup-wifi" / "summary" / "final-exp-log.csv"
    file.parent.mkdir(parents=True)
    file.write_text(text.replace("HEAD", head))
    assert main(["calibrate", "feup-wifi", "--data", str(tmp_path)]) == 2
    assert cause in capsys.readouterr().err


def constants(file: str, name: str) -> dict[str, float]:
    """The numbers of a Rust constant `NAME: Curve`."""
    found = re.search(rf"const {name}: Curve = Curve \{{(.*?)\}};", (SOURCES / file).read_text(), re.DOTALL)
    assert found is not None
    return {key: float(value) for key, value in re.findall(r"(\w+): ([-\d.]+),", found[1])}


PLACES = {
    "feup-wifi": {"2.4": ("wifi.rs", "BAND_2_4"), "5": ("wifi.rs", "BAND_5")},
    "uccmisl-5g": {"lte": ("cellular.rs", "LTE"), "nr": ("cellular.rs", "NR")},
}


@pytest.mark.parametrize("data_set", sorted(PLACES))
def test_the_program_has_the_fitted_parameters(data_set: str) -> None:
    data = Path(os.environ.get("CROSSLANE_DATA", "/nowhere"))
    if not (data / data_set).is_dir():
        pytest.skip(f"CROSSLANE_DATA names no folder with {data_set} (docs/guide/real-data.md)")
    fitted = json.loads(calibrate.text(data_set, data))
    for part, (file, name) in PLACES[data_set].items():
        assert constants(file, name) == fitted[part]["parameters"]
