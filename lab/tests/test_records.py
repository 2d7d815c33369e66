"""The data that the figures read from the records."""

import json
from pathlib import Path

import polars as pl
import pytest
import resolved_scenario
import synthetic
from synthetic import FAR, NEAR, Drive

from crosslane_lab.coverage import changes, recovery, threshold_dbm, usable
from crosslane_lab.errors import LabError
from crosslane_lab.figures import fig03_underused, fig10_recovered, sequence
from crosslane_lab.figures.context_panels import subflow_intervals
from crosslane_lab.figures.path_throughput import path_throughput
from crosslane_lab.runs.folder import Run, RunFolder
from crosslane_lab.runs.tables import TABLES


def run_of(folder: RunFolder, strategy: str) -> Run:
    return folder.valid_runs(strategy)[0]


def test_every_table_has_the_documented_columns_and_types(left: RunFolder) -> None:
    for name, columns in TABLES.items():
        assert dict(run_of(left, "kernel").table(name).collect_schema()) == columns


def test_a_drive_without_the_later_columns_is_readable(drive: Path) -> None:
    file = drive / "runs" / "threshold-1" / "links.arrow"
    later = ["sinr_db", "rsrq_db", "carrier_rssi_dbm", "cell"]
    older = pl.read_ipc(file.read_bytes()).drop(later)
    older.write_ipc(file)
    links = run_of(RunFolder.open(drive), "threshold").links.collect()
    assert dict(links.schema) == TABLES["links"]
    assert all(links[column].is_null().all() for column in later)


def test_samples_of_a_former_version_have_their_signals_only(drive: Path) -> None:
    file = drive / "runs" / "threshold-1" / "samples.arrow"
    first = ["t_ns", "path", "kind", "rssi_dbm", "station"]
    pl.read_ipc(file.read_bytes()).select(first).write_ipc(file)
    samples = run_of(RunFolder.open(drive), "threshold").samples.collect()
    assert dict(samples.schema) == TABLES["samples"]
    assert samples["rssi_dbm"].is_not_null().all()
    assert samples["announced"].is_null().all()


def test_a_column_that_every_version_has_is_needed(drive: Path) -> None:
    file = drive / "runs" / "threshold-1" / "links.arrow"
    pl.read_ipc(file.read_bytes()).drop("speed_m_s").write_ipc(file)
    with pytest.raises(LabError, match="column `speed_m_s` is missing"):
        run_of(RunFolder.open(drive), "threshold").links.collect()


def test_events_are_sorted_by_time(drive: Path) -> None:
    file = drive / "runs" / "threshold-1" / "events.jsonl"
    file.write_text("\n".join(reversed(file.read_text().splitlines())) + "\n\n")
    times = [event.t_s for event in run_of(RunFolder.open(drive), "threshold").events]
    assert times == sorted(times)
    assert len(times) == 4


def test_names_of_the_previous_version_are_replaced(drive: Path) -> None:
    events = [
        {"event": "decision", "path": "lte", "because": "weak"},
        {"event": "belief", "path": "lte", "belief": "stuck", "because": "no ACK"},
        {"event": "belief", "path": "lte", "belief": "good", "because": "ACK"},
        {"event": "tunnel", "path": "lte", "health": "good", "because": "feedback"},
        {"event": "tunnel", "path": "lte", "liveness": "down", "reason": "no feedback"},
    ]
    lines = [json.dumps({"t_s": 1.0, "source": "agent"} | event) for event in events]
    (drive / "runs" / "kernel-1" / "events.jsonl").write_text("\n".join(lines))
    summary = json.loads((drive / "summary.json").read_text())
    summary["runs"][0] |= {"valid": False, "because": "stalled for 3 ms"}
    synthetic.change_summary(drive, **summary)
    run = next(run for run in RunFolder.open(drive).runs if run.folder.name == "kernel-1")
    assert run.reason == "stalled for 3 ms"
    assert [event.fields for event in run.events] == [
        {"path": "lte", "reason": "weak"},
        {"path": "lte", "belief": "stalled", "reason": "no ACK"},
        {"path": "lte", "belief": "good", "reason": "ACK"},
        {"path": "lte", "liveness": "up", "reason": "feedback"},
        {"path": "lte", "liveness": "down", "reason": "no feedback"},
    ]


def test_lost_data_sent_over_another_subflow_is_reinjected(left: RunFolder) -> None:
    packets = sequence.data_packets(left, run_of(left, "kernel"), (13.0, 17.0))
    reinjected = packets.filter("reinjected")
    assert reinjected.height == packets.filter("lost").height == 15
    assert set(reinjected["path"]) == {FAR}


def packets(*rows: tuple[int, int, int]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["dsn", "payload_bytes", "subflow"], orient="row")


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (packets((0, 100, 0), (0, 100, 0)), [False, False]),
        (packets((0, 100, 0), (0, 100, 1)), [False, True]),
        (packets((0, 100, 0), (50, 50, 1)), [False, True]),
        (packets((0, 100, 0), (100, 50, 1)), [False, False]),
        (packets((100, 100, 0), (0, 100, 1), (100, 10, 1)), [False, False, True]),
    ],
    ids=["same subflow", "other subflow", "overlap", "adjacent", "out of order"],
)
def test_a_retransmission_is_no_reinjection(sent: pl.DataFrame, expected: list[bool]) -> None:
    assert sequence._reinjected(sent) == expected


def test_windows_are_shared_where_the_events_are_close(left: RunFolder, tmp_path: Path) -> None:
    assert len(set(sequence.windows(left).values())) == 1
    plans = Drive().plans | {"kernel": synthetic.Plan(18.0, 0.9)}
    apart = sequence.windows(RunFolder.open(synthetic.write(tmp_path, Drive(plans=plans))))
    widths = [end - begin for begin, end in apart.values()]
    assert len(set(apart.values())) == 3
    assert max(widths) - min(widths) < 1e-9


def test_bins_without_data_are_zero(passed_by: RunFolder) -> None:
    throughput = path_throughput(passed_by, run_of(passed_by, "kernel"))
    between = (throughput.t_s >= 16) & (throughput.t_s < 31)
    assert not throughput.mbit_s[NEAR][between].any()
    assert throughput.mbit_s[NEAR][(throughput.t_s >= 32) & (throughput.t_s < 38)] == pytest.approx(0.4)


def test_idle_time_is_counted_from_the_recovery_of_the_signal(passed_by: RunFolder) -> None:
    for strategy, expected in (("kernel", 5.42), ("threshold", 0.1)):
        run = run_of(passed_by, strategy)
        change = recovery(passed_by, run)
        assert change is not None
        assert fig10_recovered.idle_s(passed_by, run, change) == pytest.approx(expected, abs=0.02)
    covered, idle = fig03_underused.idle_bins(passed_by, run_of(passed_by, "kernel"), NEAR)
    assert int(idle.sum()) == 10
    assert int(covered.sum()) > 40


def test_a_signal_within_the_hysteresis_is_no_recovery(passed_by: RunFolder) -> None:
    reach = usable(passed_by, run_of(passed_by, "kernel"), NEAR)
    assert not reach.filter(pl.col("t_s").is_between(25.0, 25.9))["usable"].any()
    assert [round(change.t_s, 1) for change in changes(passed_by, run_of(passed_by, "kernel"))] == [13.2, 26.0]


def test_the_threshold_is_taken_from_a_decision_if_the_scenario_has_none(drive: Path) -> None:
    resolved_scenario.change(drive, lambda data: data.update(expect=[]))
    without = RunFolder.open(drive)
    assert threshold_dbm(without, NEAR) == -82.0
    assert threshold_dbm(without, FAR) is None


def test_a_subflow_has_one_role_after_another(tmp_path: Path) -> None:
    folder = RunFolder.open(synthetic.write(tmp_path, Drive(mode="backup")))
    far = [interval for interval in subflow_intervals(run_of(folder, "threshold"), 24.0) if interval.path == FAR]
    assert [(round(interval.begin_s, 2), round(interval.end_s, 2), interval.backup) for interval in far] == [
        (1.06, 13.05, True),
        (13.05, 24.0, False),
    ]


def test_a_file_that_is_missing_is_named_once(drive: Path) -> None:
    run = RunFolder.open(drive).runs[0]
    (run.folder / "events.jsonl").unlink()
    with pytest.raises(
        LabError, match=r"^while reading \S+/events.jsonl: No such file or directory; run the drive"
    ):
        _ = run.events
