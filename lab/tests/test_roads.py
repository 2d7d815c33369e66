import tomllib
from pathlib import Path

import polars as pl
import pytest

from crosslane_lab.cli import main
from crosslane_lab.papers.roads import campaign as roads
from crosslane_lab.papers.roads import page as roads_page

DRIVE = roads.Drive("UL_atnt_verizon_4_run_25.csv", 111.5, (10.0, 30.0), "verizon")


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


def test_the_targets_compare_us_with_the_better_kernel_and_every_alpha_that_misses_as_little() -> None:
    frame = pl.DataFrame(
        rows("kernel", 0.3, 0.5, 2.0)
        + rows("kernel-tuned", 0.25, 0.5, 2.0)
        + rows("mp-dpa-05", 0.25, 0.4, 1.1)
        + rows("mp-dpa-10", 0.5, 0.3, 1.0)
        + rows("deadline-mptcp", 0.25, 0.27, 1.2)
    )
    page = roads_page.page(frame)
    assert "| all drives (6) | missed ≤ 25.5 % (kernel + 0.5) | 25.0 % | yes |" in page
    assert "| all drives | expensive share ≤ optimum + 8 points, median | 7.0 | yes |" in page
    assert "`mp-dpa-05` 1.10 | 1.20 | **no** |" in page
    assert "| held out (4) |" in page


def test_a_folder_without_recordings_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "roads", "--data", str(tmp_path), "--out", str(tmp_path / "out.md")]) == 2
    assert "no file UL_*.csv; name the folder of pam2025 with --data" in capsys.readouterr().err
