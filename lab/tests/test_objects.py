"""The report on traffic with deadlines."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import resolved_scenario
import synthetic

from crosslane_lab.figures import ALL, objects
from crosslane_lab.report.summary_text import paragraphs, subject
from crosslane_lab.runs.folder import RunFolder
from crosslane_lab.runs.frame import representative

LATE = "kernel-1"


@pytest.fixture
def uploads(drive: Path) -> RunFolder:
    """Two objects per run, due within 8 s; the second takes 9 s in one run, and never arrives in another."""

    def with_deadlines(data: dict[str, Any]) -> None:
        data["traffic"] |= {"kind": "deadline", "deadline_s": 8.0}
        data["service"]["cost_per_gb"] = {"its-g5": 0.1, "lte": 0.5}
        data["expect"][-1]["strategy"] = "deadline"

    resolved_scenario.change(drive, with_deadlines)
    for file in drive.glob("runs/*/messages.arrow"):
        second = {LATE: 11_000_000_000 + 9_000_000_000, "kernel-tuned-1": None}.get(
            file.parent.name, 18_000_000_000
        )
        received = [1_000_000_000 + 6_000_000_000, second]
        columns = {"number": [0, 1], "sent_ns": [1_000_000_000, 11_000_000_000], "received_ns": received}
        synthetic.rewrite(file, lambda _, c=columns: synthetic.frame("messages", c, 2))
    summary = json.loads((drive / "summary.json").read_text())
    for run in summary["runs"]:
        saves = run["strategy"] == "threshold"
        run["metrics"] = {
            "deadline.missed_share": 0.0 if saves else 0.5,
            "path.lte.share": 0.2 if saves else 0.6,
            "path.lte.share_optimum": 0.15,
            "cost": 1.2 if saves else 3.0,
            "cost_optimum": 1.0,
        }
    synthetic.change_summary(drive, **summary)
    return RunFolder.open(drive)


def plain(folder: RunFolder) -> str:
    return " ".join(paragraphs(folder)).replace("\u00a0", " ")


def test_misses_expensive_share_and_cost_are_reported(uploads: RunFolder) -> None:
    text = plain(uploads)
    assert subject(uploads) == "threshold"
    assert "Objects that missed their deadline of 8 s: none with `threshold`; 50 % with the default kernel" in text
    assert "Share on the expensive path lte: 20 % with `threshold`; 60 % with the default kernel" in text
    assert text.count("15 % would have sufficed") == 1
    assert "Cost as a multiple of the minimum: 1.2 with `threshold`; 3 with the default kernel" in text
    assert "delivery delay" not in text


def test_late_and_missing_objects_do_not_count_as_in_time(uploads: RunFolder) -> None:
    completion = {run.folder.name: objects._objects(run)[1].tolist() for run in uploads.runs}
    assert completion[LATE] == [6.0, 9.0]
    assert completion["kernel-tuned-1"] == [6.0, float("inf")]
    assert "1 of 2 with kernel, 1 of 2 with kernel-tuned, 2 of 2 with threshold" in objects.caption(uploads)


def test_objects_are_drawn_without_their_delays(uploads: RunFolder) -> None:
    assert objects.skip_reason(uploads) is None
    assert objects.draw(uploads).axes
    for key in ("fig09", "seeds"):
        assert "deadline" in (ALL[key].skip_reason(uploads) or "")


def test_other_traffic_has_no_objects(left: RunFolder) -> None:
    assert objects.skip_reason(left) == "the traffic has no deadlines"
    assert left.scenario.deadline_s is None


def test_the_bytes_of_an_object_are_those_from_its_start_to_that_of_the_next(uploads: RunFolder) -> None:
    """Objects may begin at any tenth of a second, which the records have."""
    starts_s = (2.2, 3.4)
    for run in uploads.runs:
        columns = {
            "number": [0, 1],
            "sent_ns": [round(at * 1e9) for at in starts_s],
            "received_ns": [4 * 10**9] * 2,
        }
        synthetic.rewrite(run.folder / "messages.arrow", lambda _, c=columns: synthetic.frame("messages", c, 2))
    lower = next(axes for axes in objects.draw(uploads).axes if axes.get_ylabel() == "delivered (MB)")
    drawn = sum(bar.get_height() for bar in lower.patches if bar.get_x() < starts_s[1])  # pyright: ignore
    time = pl.col("t_ns") / 1e9
    rows = representative(uploads, "kernel").throughput.filter(pl.col("direction") == "up")
    between = rows.filter(time.is_between(*starts_s, closed="left"))
    assert drawn == pytest.approx(between.select(pl.col("payload_bytes").sum()).collect().item() / 1e6)
