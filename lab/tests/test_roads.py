import json
import tomllib
from pathlib import Path

import polars as pl
import pytest

from crosslane_lab.cli import main
from crosslane_lab.papers.roads import campaign as roads
from crosslane_lab.papers.roads import page as roads_page
from crosslane_lab.runs.folder import Run
from crosslane_lab.runs.tables import TABLES

DRIVE = roads.Drive("UL_atnt_verizon_4_run_25.csv", 111.5, (10.0, 30.0), "verizon")
TUNED = ["0", "5"]


def rows(strategy: str, missed: float, share: float, cost: float) -> list[dict[str, object]]:
    return [
        {
            "drive": f"{index}",
            "load": load,
            "objects": 4,
            "strategy": strategy,
            "missed": missed,
            "share": share,
            "share_optimum": 0.2,
            "cost": cost,
            "cost_optimum": 1.0,
            "switches": 3.0,
            "right": 3 if strategy == "deadline" else None,
        }
        for index in range(6)
        for load in roads.LOADS
    ]


def test_the_objects_of_a_scenario_are_due_within_its_drive() -> None:
    text = roads.scenario(DRIVE, 70, "cubic")
    found = tomllib.loads(text)
    assert found["service"]["prefer"] == ["verizon", "att"]
    assert found["service"]["cost_per_gb"] == {"verizon": 0.1, "att": 0.5}
    assert found["traffic"]["objects"] == 5
    assert found["traffic"]["object_bytes"] == round(0.7 * 40e6 / 8 * 20 * 1424 / 1500)
    assert found["cellular"][0]["trace"].endswith("4_run_25.csv#pam2025:verizon")
    assert {strategy["alpha"] for strategy in found["strategy"]} == set(roads.ALPHAS)


def test_the_targets_compare_us_with_the_better_kernel_and_the_optimum() -> None:
    frame = pl.DataFrame(
        rows("kernel", 0.3, 0.5, 2.0)
        + rows("kernel-tuned", 0.25, 0.5, 2.0)
        + rows("mp-dpa-05", 0.25, 0.4, 1.1)
        + rows("mp-dpa-10", 0.5, 0.3, 1.0)
        + rows("deadline-mptcp", 0.25, 0.27, 1.2)
        + rows("deadline", 0.22, 0.27, 1.09)
    )
    page = roads_page.page(frame, TUNED)
    assert "| held out (4) | missed ≤ 23.0 % (kernel − 2) | 22.0 % | yes |" in page
    assert "| held out | cost ≤ 1.08 × optimum | 1.09 | **no** |" in page
    assert "| held out | completion predicted within 10 % for ≥ 90 % of objects | 75 % | **no** |" in page
    assert "| tuned on (2) |" in page
    assert "where the preferred path suffices" not in page
    assert "| tuned on" not in roads_page.page(frame, TUNED, quick=True)
    cheap = frame.with_columns(share_optimum=pl.lit(0.0), share=pl.lit(0.02))
    what = "expensive share where the preferred path suffices (12 runs) ≤ 1 %, median"
    assert f"| held out | {what} | 2.0 % | **no** |" in roads_page.page(cheap, TUNED)


def test_a_drive_without_a_valid_run_makes_no_other_one_held_out() -> None:
    names = [f"cubic/{drive}-{load}" for drive in range(6) for load in roads.LOADS]
    assert roads.tuned_on(names) == TUNED
    frame = pl.DataFrame(rows("kernel", 0.3, 0.5, 2.0) + rows("deadline", 0.22, 0.27, 1.09))
    page = roads_page.page(frame.filter(pl.col("drive") != "1"), roads.tuned_on(names))
    assert "| held out (3) |" in page
    assert "| tuned on (2) |" in page


def test_a_prediction_is_right_within_a_tenth_or_if_it_says_that_the_object_will_be_late(tmp_path: Path) -> None:
    def admission(number: int, expected_s: float | None) -> str:
        fields = {"object": number, "expected_s": expected_s, "deadline_s": 21.0, "can_be_met": None}
        return json.dumps({"t_s": 1.0, "source": "agent", "event": "admission", "predicted_s": None} | fields)

    # Object: prediction, completion in s; all begin at 1 s. The last is never predicted.
    cases = [(11.0, 9.5), (11.0, 9.0), (21.0, None), (21.5, None), (21.5, 19.9), (21.5, 19.0), (None, 5.0)]
    lines = [admission(0, None)] + [admission(number, expected) for number, (expected, _) in enumerate(cases)]
    # Only the first prediction counts.
    lines.append(admission(1, 10.0))
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    received = [None if took is None else round((1 + took) * 1e9) for _, took in cases]
    messages = {"number": range(len(cases)), "sent_ns": [10**9] * len(cases), "written_ns": received}
    messages |= {"received_ns": received, "size_bytes": [1] * len(cases)}
    frame = pl.DataFrame(messages, schema=TABLES["messages"])
    frame.write_ipc(tmp_path / "messages.arrow")
    run = Run("deadline", 1, tmp_path, True, 1, "", {})
    # Right: 10 s for 9.5, late as predicted, and 20.5 s for 19.9 and for 19.0.
    assert roads.right_predictions(run) == 4


def test_a_folder_without_recordings_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "roads", "--data", str(tmp_path), "--out", str(tmp_path / "out.md")]) == 2
    assert "no file UL_*.csv; name the folder of pam2025 with --data" in capsys.readouterr().err


def test_a_recording_that_is_not_text_is_left_to_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pam2025" / "uplink").mkdir(parents=True)
    (tmp_path / "pam2025" / "uplink" / "UL_1.csv").write_bytes(b"\xf6\n\xff\n")
    program = tmp_path / "crosslane"
    program.write_text("#!/bin/sh\nprintf 'crosslane: while importing: \\377; no\\n' >&2; exit 2\n")
    program.chmod(0o755)
    places = ["--data", str(tmp_path), "--runs", str(tmp_path), "--program", str(program)]
    assert main(["reproduce", "roads", *places]) == 2
    assert "UL_1.csv: crosslane: while importing: \ufffd; no" in capsys.readouterr().err
