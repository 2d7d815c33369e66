"""The opening of the report."""

from dataclasses import replace
from pathlib import Path

import pytest
import resolved_scenario
import synthetic
from synthetic import Drive, Plan

from crosslane_lab.render.markdown import duration_ratio, number
from crosslane_lab.report.summary_text import paragraphs, subject
from crosslane_lab.runs.catalog import WORST_DELAY
from crosslane_lab.runs.folder import RunFolder
from crosslane_lab.runs.frame import representative, spread


def plain(folder: RunFolder) -> str:
    return " ".join(paragraphs(folder)).replace("\u00a0", " ")


def test_the_drive_is_described_first(left: RunFolder) -> None:
    assert plain(left).startswith("The vehicle left the coverage of its-g5 at 13.2 s (mean signal below −82 dBm).")


def test_the_worst_delays_are_medians_with_their_ratio_to_ours(left: RunFolder) -> None:
    ours, kernel = (spread(left.valid_runs(s), WORST_DELAY) for s in ("threshold", "kernel"))
    assert ours is not None
    assert kernel is not None
    assert f"Worst delivery delay: {number(ours.median, 'ms')} with `threshold`".replace("\u00a0", " ") in plain(
        left
    )
    assert f"; 903 ms with the default kernel ({duration_ratio(kernel.median / ours.median)})" in plain(left)
    assert "; 413 ms with the tuned kernel (13 times as long)." in plain(left)


def test_the_recovery_of_a_path_is_reported(passed_by: RunFolder) -> None:
    assert "at 13.2 s (mean signal below −82 dBm) and re-entered it at 26.0 s." in plain(passed_by)
    assert "97 ms with `threshold`" in plain(passed_by)


def test_an_outage_in_the_scenario_is_no_loss_of_coverage(drive: Path) -> None:
    resolved_scenario.change(drive, lambda data: data["roadside_units"][0].update(outages_s=[[10, 12]]))
    assert plain(RunFolder.open(drive)).startswith(
        "The link its-g5 went down at 10.0 s, came up again at 12.0 s and"
    )


def test_the_delay_around_the_handover_is_reported_if_the_worst_message_was_elsewhere(left: RunFolder) -> None:
    assert "of the handover" not in plain(left)
    calm = tuple(replace(r, metrics=r.metrics | {"handover_delay_ms.max": 30.0}) for r in left.runs)
    assert "of the handover: 30 ms with `threshold`; 30 ms with the default kernel (just as long)" in plain(
        replace(left, runs=calm)
    )


def test_a_strategy_that_is_worse_is_reported_as_worse(tmp_path: Path) -> None:
    plans = {"kernel": Plan(14.0, 0.2), "threshold": Plan(13.2, 0.8, decides=True)}
    folder = RunFolder.open(synthetic.write(tmp_path, Drive(plans=plans)))
    assert "; 201 ms with the default kernel (0.3 times as long)" in plain(folder)


def test_the_default_strategy_is_the_subject(tmp_path: Path) -> None:
    plans = {s: Plan(13.2, 0.1, decides=True) for s in ("threshold", "adaptive")}
    assert subject(RunFolder.open(synthetic.write(tmp_path, Drive(plans=plans)))) == "adaptive"


def test_without_a_strategy_of_ours_nothing_is_compared(tmp_path: Path) -> None:
    plans = {s: plan for s, plan in Drive().plans.items() if s != "threshold"}
    folder = RunFolder.open(synthetic.write(tmp_path, Drive(plans=plans)))
    assert subject(folder) is None
    assert "times as long" not in plain(folder)


def test_invalid_runs_are_counted_and_excluded(left: RunFolder) -> None:
    bad = replace(left.runs[0], valid=False, reason="stalled", metrics={WORST_DELAY: 1e6})
    folder = replace(left, runs=(bad, *left.runs[1:]))
    assert "1 of 6 runs was invalid and excluded from all medians." in plain(folder)
    kept = spread(folder.valid_runs("kernel"), WORST_DELAY)
    assert kept is not None
    assert kept.count == 1
    assert kept.high < 1e6


def test_a_drive_without_a_valid_run_starts_with_a_warning(left: RunFolder) -> None:
    folder = replace(left, runs=tuple(replace(run, valid=False) for run in left.runs))
    assert plain(folder).startswith("Warning: the machine was too busy")


def test_the_representative_run_is_the_lower_median_one(left: RunFolder) -> None:
    runs = tuple(
        replace(left.runs[0], seed=seed, metrics={WORST_DELAY: value})
        for seed, value in ((1, 9.0), (2, 7.0), (3, 8.0), (4, 1.0))
    )
    assert representative(replace(left, runs=runs), "kernel").seed == 2


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (27.04, "ms", "27 ms"),
        (902.4, "ms", "902 ms"),
        (0.0, "", "0"),
        (1234567.0, "bytes", "1 234 567 bytes"),
        (0.153, "%", "15.3 %"),
        (-82.0, "dBm", "−82 dBm"),
        (9.996, "s", "10 s"),
        (0.004, "s", "0.004 s"),
    ],
)
def test_numbers_have_three_digits_and_a_unit(value: float, unit: str, text: str) -> None:
    assert number(value, unit).replace("\u00a0", " ").replace("\u202f", " ") == text


def test_late_messages_copies_and_price_are_reported_where_they_are_measured(drive: Path) -> None:
    resolved_scenario.change(drive, lambda data: data["service"].update(late_ms=60))
    folder = RunFolder.open(drive)
    assert "later than" not in plain(folder)
    assert "Price" not in plain(folder)
    measured = {"late_share": 0.01, "copied_bytes": 2.5e6, "cost": 0.0091}
    runs = (replace(r, metrics=r.metrics | (measured if r.strategy == "threshold" else {})) for r in folder.runs)
    text = plain(replace(folder, runs=tuple(runs)))
    assert "Messages later than 60 ms or lost: 1 % with `threshold`." in text
    assert "Bytes that the tunnel sent more than once: 2\u202f500\u202f000 bytes with `threshold`." in text
    assert "Price of what was delivered: 0.0091 with `threshold`." in text
