import json
import os
import struct
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from crosslane_lab import cli
from crosslane_lab.errors import LabError
from crosslane_lab.learn import analyse, bound, collect, label, recorded, refit, train, tree
from crosslane_lab.learn.places import draw

GOLDEN = Path(__file__).parent / "golden"
needs_extra = pytest.mark.skipif(
    find_spec("sklearn") is None,
    reason="scikit-learn is not installed: pip install -e 'lab[learn]'",
)
OTHERS = {"wifi_sinr_db": 20.0, "cellular_sinr_db": 10.0, "wifi_rsrq_db": None, "cellular_rsrq_db": -10.0}


def made(drives: int, seed: int = 1) -> pl.DataFrame:
    """Windows in which Wi-Fi first carries 20 Mbit/s above −70 dBm and 2 below; other choices always 8 or less."""
    random, rows = np.random.default_rng(seed), []
    for drive in range(drives):
        signal = random.uniform(-90, -50)
        for window in range(1, 40):
            signal = float(np.clip(signal + random.normal(0, 1.5), -95, -45))
            wifi = 20.0 if signal > -70 else 2.0
            for prio, carried in (("WF", wifi), ("LF", 8.0), ("NO", 8.0), ("WO", 1.0), ("LO", 7.0)):
                rows.append(
                    {
                        "t_ns": window * collect.WINDOW_NS,
                        "drive": drive,
                        "kind": "walking",
                        "wifi": "5 GHz",
                        "cellular": "lte",
                        "traffic": "bulk-up",
                        "buffer_kb": 64,
                        "prio": prio,
                        "goodput_mbit_s": carried,
                        "delay_ms": 50.0 if prio == "WF" else 60.0,
                        "wifi_signal_dbm": signal,
                        "cellular_signal_dbm": -95.0 + float(random.normal()),
                        **OTHERS,
                        **{f"{path}_{name}": None for path in collect.PATHS for name in ("tx_mbit_s", "rx_mbit_s")},
                        **{f"{path}_rtt_ms": 30.0 + float(random.normal()) for path in collect.PATHS},
                        **{f"{path}_cwnd": 20.0 for path in collect.PATHS},
                        **{f"{path}_loss": 0.01 for path in collect.PATHS},
                        "wifi_delivery_mbit_s": wifi,
                        "cellular_delivery_mbit_s": 8.0,
                    }
                )
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(
        pl.col(f"{path}_{name}").cast(pl.Float32) for path in collect.PATHS for name in tree.QUANTITIES
    )


def test_a_seed_draws_the_same_drives_and_most_are_at_rest_or_walk() -> None:
    drives = draw(1, 400)
    assert draw(1, 5) == drives[:5] != draw(2, 5)
    slow = sum(drive.kind in ("static", "walking") for drive in drives)
    assert 0.7 < slow / len(drives) < 0.8
    found = tomllib.loads(drives[0].scenario(64, "priority", {"x": ("smartps", "x.json")}))
    assert (found["traffic"]["send_buffer_bytes"], found["strategy"][0]["tree"]) == (64_000, "x.json")


def test_the_better_order_has_the_higher_goodput_or_else_the_lower_delay_over_the_next_second() -> None:
    base = made(1).with_columns(
        goodput_mbit_s=pl.when(pl.col("prio") == "WF").then(10.2).otherwise(10.0),
        delay_ms=pl.when(pl.col("prio") == "WF").then(40.0).otherwise(50.0),
    )
    outcomes = {
        "delay decides within the margin": (base, True),
        "goodput decides first": (_with(base, "LF", "goodput_mbit_s", 11.0), False),
        "nothing decides": (_with(base, "LF", "delay_ms", 41.0), None),
    }
    for rule, (frame, expected) in outcomes.items():
        found = label.pairs(frame)
        assert found["wifi_first"].unique().to_list() == [expected], rule
        assert found.height == 39 - (label.HORIZON - 1), rule
    late = pl.col("t_ns") >= 21 * collect.WINDOW_NS
    changed = pl.when(late & (pl.col("prio") == "LF")).then(30.0).otherwise(pl.col("goodput_mbit_s"))
    found = label.pairs(base.with_columns(goodput_mbit_s=changed))
    first = found.filter(~pl.col("wifi_first"))["t_ns"].min()
    assert first == (21 - label.HORIZON + 1) * collect.WINDOW_NS, "the label looks a second ahead"


def _with(frame: pl.DataFrame, prio: str, column: str, value: float) -> pl.DataFrame:
    return frame.with_columns(pl.when(pl.col("prio") == prio).then(value).otherwise(pl.col(column)).alias(column))


@needs_extra
def test_kendall_and_the_gain_are_those_of_made_data() -> None:
    values = pl.Series([bin_ * 5.0 + 1 for bin_ in range(6) for _ in range(20)])
    rising = pl.Series([bin_ * 10.0 for bin_ in range(6) for _ in range(20)])
    assert analyse.kendall(values, rising, 5.0) == pytest.approx(1)
    assert analyse.kendall(values, -rising, 5.0) == pytest.approx(-1)
    assert analyse.gain(values, rising, 5.0, 5.0) == pytest.approx(1)
    coin = pl.Series([0.0, 10.0] * 60)
    assert analyse.gain(values, coin, 5.0, 5.0) == pytest.approx(0)
    few = pl.concat([values, pl.Series([500.0] * 9)]), pl.concat([rising, pl.Series([-99.0] * 9)])
    assert analyse.kendall(*few, 5.0) == pytest.approx(1), "a bin of fewer than 10 is dropped"


@needs_extra
def test_training_finds_the_rule_of_made_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, file = tmp_path / "windows.parquet", tmp_path / "tree.json"
    made(10).write_parquet(data)
    assert cli.main(["learn", "train", str(data), "--strategy", "smartps", "--out", str(file)]) == 0
    assert "| pruned tree |" in capsys.readouterr().out
    found = json.loads(file.read_text())
    assert (found["strategy"], found["trained"]["drives"]) == ("smartps", 10)
    assert found["trained"]["accuracy"]["by drive"] > 0.9
    assert file.stat().st_size < 20_000
    assert found["nodes"][0]["feature"] in ("a.signal_dbm", "a.delivery_mbit_s")


@needs_extra
@pytest.mark.parametrize("strategy", ["smartps", "learned"])
def test_the_same_data_gives_the_same_tree(strategy: str) -> None:
    def text() -> str:
        frame = made(10)
        nodes, fallback = train.decided(frame, train.ROWS[strategy](frame), strategy, 8, ())
        return tree.text(strategy, nodes, {}, fallback)

    assert text() == text()


@needs_extra
def test_split_by_drive_no_drive_is_on_both_sides() -> None:
    rows = label.learned(made(12))
    for train_places, test_places in train.folds(rows, "by drive"):
        assert not set(rows.drive[train_places]) & set(rows.drive[test_places])
    assert sum(len(test_places) for _, test_places in train.folds(rows, "by drive")) == len(rows.y)


def test_data_that_cannot_be_used_is_named_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = made(12)
    only_wifi = frame.with_columns(goodput_mbit_s=pl.when(pl.col("prio") == "WF").then(9.0).otherwise(1.0))
    cases = {
        "the column wifi_loss is missing": frame.drop("wifi_loss"),
        "5 in `wifi_signal_dbm` is outside -120 to 0": frame.with_columns(wifi_signal_dbm=pl.lit(5.0)),
        "-1 in `cellular_rtt_ms` is outside 0 to 60000": frame.with_columns(cellular_rtt_ms=pl.lit(-1.0)),
        "the same order was always better": only_wifi,
        "3 drives have windows with a label, and 10 are needed": made(3),
    }
    file = tmp_path / "windows.parquet"
    for cause, bad in cases.items():
        bad.write_parquet(file)
        arguments = ["learn", "train", str(file), "--strategy", "smartps", "--out", str(tmp_path / "t.json")]
        assert cli.main(arguments) == 2
        message = capsys.readouterr().err
        assert cause in message, message
        assert message.count("\n") == 1
    assert not (tmp_path / "t.json").exists()


def test_the_bound_is_the_better_order_of_each_second() -> None:
    frame = made(1).filter(pl.col("t_ns") < 8 * collect.WINDOW_NS)
    second = pl.col("t_ns") // (4 * collect.WINDOW_NS)
    goodput = pl.when((second == 0) == (pl.col("prio") == "WF")).then(10.0).otherwise(4.0)
    assert bound.best(frame.with_columns(goodput_mbit_s=goodput))["goodput_mbit_s"].to_list() == [10.0]


def numbers(state: int = 1) -> Iterator[float]:
    while True:
        state = (state * 1664525 + 1013904223) % 2**32
        yield (state >> 8) / 2**24


RANGES = ((-110, -40), (-10, 40), (-20, -5), (1, 100), (1, 100), (5, 200), (2, 200), (0, 0.1), (0, 60))


def golden_rows(count: int) -> tree.Values:
    """Values of both paths, the same in crates/sim/tests/learned_tree.rs."""
    source = numbers()
    spread = np.array([[next(source) for _ in range(18)] for _ in range(count)])
    low, high = (np.array([each[side] for each in RANGES] * 2, dtype=np.float64) for side in (0, 1))
    return (low + spread * (high - low)).astype(np.float32)


def digest(values: Iterable[float]) -> str:
    """FNV-1a of 64 bits over the values as doubles."""
    found = 0xCBF29CE484222325
    for value in values:
        for byte in struct.pack("<d", value):
            found = ((found ^ byte) * 0x100000001B3) % 2**64
    return f"{found:016x}"


@needs_extra
def test_scikit_learn_gives_the_golden_answers() -> None:
    """The Rust tree is compared with the same file; UPDATE=1 writes it again."""
    from sklearn.tree import DecisionTreeClassifier

    features = [f"{of}.{name}" for of in ("a", "b", "a-b") for name in tree.QUANTITIES]
    rows = golden_rows(20_000)
    x = tree.columns(features, rows[:, :9], rows[:, 9:])
    random = np.random.default_rng(7)
    a_dbm, b_dbm, b_rtt = rows[..., 0], rows[..., 9], rows[..., 14]
    y = (a_dbm - b_dbm + b_rtt / 4 + random.normal(0, 20, len(rows)) > 10).astype(np.int8)
    model = DecisionTreeClassifier(criterion="entropy", max_depth=10, min_samples_leaf=20, random_state=1).fit(x, y)
    nodes = tree.nodes(model, features)
    asked = [node for node in nodes if "feature" in node and not node["feature"].startswith("a-b")]
    near = [row for node in asked for row in islice(_near(rows, node), 40)]
    near_x = tree.columns(features, np.array(near)[:, :9], np.array(near)[:, 9:])
    answers = np.array(model.predict_proba(np.concatenate([x, near_x])))[:, 1].tolist()
    content = tree.text("learned", nodes, {"answers": len(answers), "digest": digest(answers)})
    file = GOLDEN / "tree.json"
    if os.environ.get("UPDATE") == "1":
        file.write_text(content)
    assert file.read_text() == content


def _near(rows: tree.Values, node: tree.Node) -> Iterator[tree.Values]:
    """The first rows with the feature at its threshold, and as little above it as 32 bits allow."""
    of, name = node["feature"].split(".")
    place = list(tree.QUANTITIES).index(name) + (9 if of == "b" else 0)
    below = np.float32(node["at_most"])
    if float(below) > node["at_most"]:
        below = np.nextafter(below, np.float32(-np.inf))
    for row in rows:
        for value in (below, np.nextafter(below, np.float32(np.inf))):
            changed = row.copy()
            changed[place] = value
            yield changed


def test_the_traffic_of_a_drive_is_bulk_or_files_up_or_down() -> None:
    chosen = collect.cases(draw(1, 1))
    found = [tomllib.loads(case.scenario("priority", {}))["traffic"] for case in chosen]
    kinds = [(each["kind"], each["direction"], each["send_buffer_bytes"]) for each in found]
    every = [(kind, way, size) for kind in ("bulk", "uploads") for way in ("up", "down") for size in (64_000, 0)]
    assert kinds == every
    assert len({case.name for case in chosen}) == 8
    assert [each.get("size_mb") for each in found] == [None] * 4 + [[0.01, 10]] * 4


def test_the_choices_in_the_tunnel_are_strategies_of_it_without_trials() -> None:
    [case, *_] = collect.cases(draw(1, 1), in_tunnel=True)
    assert case.name.endswith("-tunnel")
    [planned] = collect.plan([case])
    strategies = tomllib.loads(planned.scenario)["strategy"]
    assert [each["name"] for each in strategies] == list(planned.strategies)
    same = {"base": "tunnel", "mode": "cheapest-first", "trials": 0}
    assert all(same.items() <= each.items() for each in strategies)
    steer = {each["name"]: (each["steer"], each["tree"]) for each in strategies}
    assert steer["wifi-alone"] == ("smartps", "wifi-alone.json")
    assert steer["no-order"] == ("learned", "no-order.json")


def test_the_trials_of_a_run_become_rows_of_a_store_and_longer_drives_are_the_same_places(tmp_path: Path) -> None:
    [drive], [longer] = draw(1, 1), draw(1, 1, refit.DURATION_S)
    assert (longer.duration_s, longer.band, longer.cell) == (600, drive.band, drive.cell)
    text = refit.with_trees(longer, 64, [("on-board", "unsure", 'store = "x"')])
    assert tomllib.loads(text)["strategy"] == [
        {"name": "on-board", "base": "learned", "tree": "unsure.json", "store": "x"}
    ]
    runs = [{"strategy": "on-board", "seed": 1, "valid": True, "metrics": {}}]
    summary = {"schema": 1, "scenario": "x", "title": "", "engine": "simulator", "duration_s": 600.0, "seeds": [1]}
    (tmp_path / "summary.json").write_text(json.dumps(summary | {"strategies": ["on-board"], "runs": runs}))
    (tmp_path / "scenario.json").write_text("{}")
    folder = tmp_path / "runs" / "on-board-1"
    folder.mkdir(parents=True)
    shown = {"a": {"rtt_ms": 20.0}, "b": {}, "was_a_first": True, "is_a_preferred": True}
    shown |= {"goodput_mbit_s": [5.0, 4.0], "delay_ms": [20.0, None]}
    trial = {"event": "trial", "t_s": 1.0, "source": "agent", "paths": ["wifi", "cellular"]} | shown
    lines = [trial, {"event": "order", "t_s": 2.0, "source": "agent", "order": []}]
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert list(refit.rows(tmp_path)) == [shown]
    for line, cause in (('{"event": "tri', "line 1: not an event"), (json.dumps(trial | {"b": 1}), None)):
        (folder / "events.jsonl").write_text(line.replace('"b": 1, ', ""))
        with pytest.raises(LabError, match=cause or "a trial has no `b`; remove"):
            list(refit.rows(tmp_path))


def test_windows_of_different_traffic_are_not_compared_with_each_other() -> None:
    one = made(2)
    other = one.with_columns(traffic=pl.lit("files-down"), goodput_mbit_s=21.0 - pl.col("goodput_mbit_s"))
    both = label.pairs(pl.concat([one, other]))
    expected = pl.concat([label.pairs(one), label.pairs(other)])
    assert both.sort(label.KEYS).equals(expected.sort(label.KEYS))
    assert bound.best(pl.concat([one, other])).height == 4


def test_windows_have_the_delay_of_blocks_and_files_have_their_own_rows(tmp_path: Path) -> None:
    [case] = collect.cases(draw(1, 1), ["files-up"])[:1]
    folder = tmp_path / case.name
    runs = [{"strategy": name, "seed": 1, "valid": True, "metrics": {}} for name in collect.FIRST.values()]
    for run in runs:
        path = folder / "runs" / f"{run['strategy']}-1"
        path.mkdir(parents=True)
        ends = [window * collect.WINDOW_NS for window in (1, 1, 2, 2)]
        rows = {"t_ns": ends, "path": ["wifi", "cellular"] * 2, "delivered_bytes": [0, 0, 125_000, 125_000]}
        empty = {name: pl.Series([None] * 4, dtype=pl.Float32) for name in collect.QUANTITIES}
        pl.DataFrame({**rows, **empty}).write_ipc(path / "windows.arrow")
        times = {"sent_ns": [100_000_000, 300_000_000], "received_ns": [300_000_000, None]}
        messages = pl.DataFrame({"number": [0, 1], **times, "size_bytes": [100_000, 5]})
        messages.write_ipc(path / "messages.arrow")
    summary = {"schema": 1, "scenario": "x", "engine": "simulator", "duration_s": 1, "seeds": [1], "runs": runs}
    (folder / "summary.json").write_text(json.dumps(summary | {"strategies": list(collect.FIRST.values())}))
    files = collect.files(tmp_path, [case])
    assert files.select("prio", "number", "delay_ms", "goodput_mbit_s").rows() == [
        ("WF", 0, 200.0, 4.0),
        ("LF", 0, 200.0, 4.0),
    ]
    assert collect.table(tmp_path, [case])["delay_ms"].to_list() == [None, None]
    as_bulk = collect.windows(folder / "runs" / "wifi-first-1")
    assert as_bulk.select("goodput_mbit_s", "delay_ms").rows() == [(4.0, 200.0)]


def feup(folder: Path) -> None:
    """Three seconds at an access point without a gap, one after a gap, one without a signal, one without a flow."""
    head = "senderId,systime,receiverSpeed,channelFreq,isIperfOn,rssiMean,dataRateMean,nBytesReceived\n"
    rows = [
        "ap1,10,0.0,2437,1.0,-50.5,65.0,1250000",
        "ap1,11,0.0,2437,1.0,-60.5,26.0,500000",
        "ap1,12,2.0,2437,1.0,-100,0.0,0",
        "ap1,14,0.0,2437,1.0,-55.0,65.0,1250000",
        "ap2,15,0.0,5180,0.0,-55.0,65.0,1250000",
    ]
    file = folder / "feup-wifi" / "summary" / "final-exp-log.csv"
    file.parent.mkdir(parents=True)
    file.write_text(head + "\n".join(rows) + "\n")


def test_feup_wifi_becomes_windows_of_one_path(tmp_path: Path) -> None:
    feup(tmp_path)
    out = tmp_path / "feup.parquet"
    assert cli.main(["learn", "import", "feup-wifi", "--data", str(tmp_path), "--out", str(out)]) == 0
    found = collect.read(out)
    shown = found.select("t_ns", "wifi", "prio", "wifi_signal_dbm", "wifi_rx_mbit_s", "goodput_mbit_s").rows()
    assert shown == [
        (1_000_000_000, "2.4 GHz", "WF", -50.5, 65.0, 4.0),
        (2_000_000_000, "2.4 GHz", "WF", -60.5, 26.0, 0.0),
    ], "the goodput is that of the next second; a gap ends a drive"
    assert found["cellular_signal_dbm"].is_null().all()
    assert found.schema["wifi_rtt_ms"] == pl.Float32


def test_uccmisl_5g_becomes_windows_of_one_path_and_impossible_values_are_left_out(tmp_path: Path) -> None:
    head = "Timestamp,Speed,NetworkMode,RSRP,RSRQ,SNR,DL_bitrate,State\n"
    rows = [
        "2020.02.13_13.03.24,30,LTE,-95,-12,5.0,1000,D",
        "2020.02.13_13.03.25,30,LTE,-195,-,7.0,2000,D",
        "2020.02.13_13.03.26,30,LTE,-97,-12,6.0,3000,D",
        "2020.02.13_13.03.27,30,5G,-90,-11,9.0,4000,D",
        "2020.02.13_13.03.28,30,5G,-90,-11,9.0,5000,D",
        "2020.02.13_13.03.29,30,5G,-90,-11,9.0,0,I",
    ]
    file = tmp_path / "uccmisl-5g" / "5G-production-dataset.zip"
    file.parent.mkdir()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("5G-production-dataset/Download/Driving/a.csv", head + "\n".join(rows) + "\n")
        archive.writestr("5G-production-dataset/Netflix/b.csv", "no log")
    found = recorded.uccmisl_5g(tmp_path)
    shown = found.select("cellular", "kind", "cellular_signal_dbm", "cellular_rsrq_db", "goodput_mbit_s").rows()
    assert sorted(shown, key=str) == [
        ("lte", "city", -95.0, -12.0, 2.0),
        ("lte", "city", None, None, 3.0),
        ("nr", "city", -90.0, -11.0, 5.0),
    ]
    assert found["prio"].unique().to_list() == ["LF"]


def test_recordings_can_be_analysed_with_collected_windows_and_not_trained_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feup(tmp_path)
    found = recorded.feup_wifi(tmp_path)
    both = pl.concat([made(1), found], how="diagonal_relaxed")
    assert both.height == made(1).height + found.height
    assert set(found.columns) == set(made(1).columns)
    file = tmp_path / "feup.parquet"
    found.write_parquet(file)
    assert cli.main(["learn", "train", str(file), "--out", str(tmp_path / "t.json")]) == 2
    assert "no order was better" in capsys.readouterr().err
    for missing in (tmp_path / "nothing", tmp_path):
        assert cli.main(["learn", "import", "uccmisl-5g", "--data", str(missing)]) == 2
        assert "--data" in capsys.readouterr().err
