import tomllib
from pathlib import Path

import polars as pl
import pytest

from crosslane_lab.cli import main
from crosslane_lab.papers.drives import campaign, pam2025, sample
from crosslane_lab.papers.drives import page as drives_page
from crosslane_lab.papers.frame import Options
from crosslane_lab.papers.roads.campaign import Drive
from crosslane_lab.runs.runner import Runner

INDEX = """\
file,leg,start_unix_s,km,duration_s,operators,verizon_pings,att_pings,tmobile_pings
b-2.csv,b,0,1.5,200.5,att+tmobile,0,10,10
a-1.csv,a,0,1.5,100.2,verizon+att+tmobile,10,10,10
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "imc23").mkdir()
    (tmp_path / "imc23" / "index.csv").write_text(INDEX)
    return tmp_path


def test_every_pair_is_driven_in_both_orders_and_the_triple_once(data: Path) -> None:
    found = [(drive.file, drive.operators) for drive in campaign.drives(data)]
    pairs = {("verizon", "att"), ("att", "verizon"), ("verizon", "tmobile"), ("tmobile", "verizon")}
    pairs |= {("att", "tmobile"), ("tmobile", "att")}
    of_first = [operators for file, operators in found if file == "a-1.csv"]
    assert set(of_first) == pairs | {("verizon", "att", "tmobile")}
    assert len(of_first) == 7
    assert [operators for file, operators in found if file == "b-2.csv"] == [("att", "tmobile"), ("tmobile", "att")]


def test_a_scenario_has_a_trace_for_each_operator_and_prefers_the_first(data: Path) -> None:
    drive = next(drive for drive in campaign.drives(data) if len(drive.operators) == 3)
    found = tomllib.loads(campaign.scenario(drive, "200B-5Hz", "backup", 60))
    assert found["duration_s"] == 60
    assert found["service"] == {"mode": "backup", "prefer": ["verizon", "att", "tmobile"]}
    assert [path["trace"] for path in found["cellular"]] == [
        f"data:imc23/a-1.csv#imc23:{operator}" for operator in drive.operators
    ]
    assert (found["traffic"]["size_bytes"], found["traffic"]["every_ms"]) == (200, 200)


def row(operators: str, late: float, messages: int, worst_ms: float) -> dict[str, object]:
    return {
        "segment": "a-1",
        "operators": operators,
        "traffic": "1kB-50Hz",
        "strategy": "kernel",
        "late": late,
        "messages": messages,
        "p50_ms": 40.0,
        "p99_ms": 300.0,
        "worst_ms": worst_ms,
        "changes": 2.0,
        "overhead": 0.1,
    }


def test_the_late_share_is_of_all_messages_and_the_worst_delays_are_over_drives() -> None:
    frame = pl.DataFrame([row("verizon+att", 0.1, 1000, 500), row("verizon+att", 0.02, 3000, 900)])
    page = drives_page.page(frame)
    assert "**All pairs** (2 drives)" in page
    assert "**Verizon, then AT&T** (2 drives)" in page
    # (100 + 60) of 4000 messages.
    assert "| `kernel` | 4.00 | 40 | 300 | 700 | 900 | 900 | 2 |" in page


def test_the_triple_counts_as_one_choice_and_not_among_the_pairs() -> None:
    frame = pl.DataFrame([row("verizon+att", 0.1, 1000, 500), row("tmobile+verizon+att", 0.0, 1000, 100)])
    page = drives_page.page(frame)
    assert "**All three** (1 drives)" in page
    assert "**All pairs** (1 drives)" in page


def test_a_sample_is_driven_and_simulated_by_strategies_that_a_kernel_can_run(data: Path) -> None:
    plan = sample.plan(Options(Runner("crosslane", data, data), Path(), Path(), engine="kernel"))
    assert len(plan) == 10
    assert [comparison.engine for comparison in plan] == ["kernel", "simulator"] * 5
    assert all("oracle" not in comparison.strategies for comparison in plan)
    assert all(tomllib.loads(comparison.scenario)["duration_s"] <= 120 for comparison in plan)


def test_the_page_of_the_sample_has_both_engines_beside_each_other() -> None:
    driven = row("att+verizon", 0.01, 1000, 700) | {"simulated": False}
    simulated = row("att+verizon", 0.005, 1000, 300) | {"simulated": True}
    page = sample.page(pl.DataFrame([driven, simulated]))
    assert "**a-1**: AT&T, then Verizon" in page
    assert "| `kernel` | 1.00 | 0.50 | 300 | 300 | 700 | 300 | 2 | 2 |" in page
    assert "| `threshold` | – | – |" in page


def test_the_sample_is_of_one_mode(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "drives", "pam2025", "--engine", "kernel", "--data", str(data)]) == 2
    assert "pam2025 on the kernel; leave out --engine kernel" in capsys.readouterr().err


def test_a_folder_without_the_data_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "drives", "--data", str(tmp_path), "--out", str(tmp_path / "out.md")]) == 2
    assert "name the folder of imc23 with --data" in capsys.readouterr().err


def test_late_messages_are_compared_with_all_sent_twice() -> None:
    late = {"adaptive": 0.02, "tunnel-adaptive": 0.016, "tunnel-redundant": 0.01}
    of = [row("verizon+att", share, 1000, 500) | {"strategy": name} for name, share in late.items()]
    assert "| Verizon, then AT&T | 1.00 | 2.00 | **1.60** |" in drives_page.page(pl.DataFrame(of))
    assert "| Verizon, then AT&T | 1.00 | – | **1.60** |" in drives_page.page(pl.DataFrame(of[1:])), "not 0.00"


def test_of_pam2025_drives_that_were_used_are_left_out_and_either_operator_is_preferred() -> None:
    found = [Drive(f"UL_atnt_verizon_{place}.csv", 60, (1.0, 1.0), "att") for place in range(9)]
    found.append(Drive("UL_atnt_verizon_1_run_23.csv", 60, (1.0, 1.0), "att"))
    held_out = pam2025.held_out(found)
    assert [drive.name for drive in held_out] == ["2", "3", "4", "6", "8"]
    made = tomllib.loads(pam2025.scenario(held_out[0], "verizon", "aggregate"))
    assert made["service"] == {"mode": "aggregate", "prefer": ["verizon", "att"]}
    assert [path["name"] for path in made["cellular"]] == ["verizon", "att"]


def test_a_downlink_drive_is_of_its_folder_and_its_messages_come_down() -> None:
    drive = Drive("DL_atnt_verizon_3_run_1.csv", 60, (1.0, 1.0), "att", "downlink")
    made = tomllib.loads(pam2025.scenario(drive, "att", "backup"))
    assert made["traffic"]["direction"] == "down"
    assert made["cellular"][0]["trace"] == "data:pam2025/downlink/DL_atnt_verizon_3_run_1.csv#pam2025:att"
    assert drive.name == "3-run-1"


def test_the_targets_over_pam2025_are_of_the_worst_delays_of_the_drives() -> None:
    worst = {"kernel": (300, 300), "adaptive": (60, 400), "oracle": (50, 350)}
    worst |= {"tunnel-adaptive": (40, 90), "tunnel-redundant": (40, 60)}
    frame = pl.DataFrame(
        [
            {"drive": str(drive), "preferred": "att", "mode": mode, "strategy": name, "late": 0.0, "messages": 9.0}
            | {"worst_ms": float(of[drive]), "copied_bytes": 5.0, "delivered_bytes": 100.0}
            for mode in campaign.MODES
            for name, of in worst.items()
            for drive in range(2)
        ]
    )
    page = pam2025.page(frame)
    assert "| `adaptive` | 0.00 | 230 | 400 | 400 | 400 | 50.0 | 5.0 |" in page
    assert "`oracle`: 1.15 ×, reached." in page
    assert "`tunnel-redundant`: 1.50 ×, **not reached**." in page
    assert "50.0 %, **not reached**." in page


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"a,b\n1,2\n", "index.csv: the columns duration_s, file, operators are missing; restore"),
        (b"file,duration_s,operators\na,long,att\n", "index.csv: `duration_s` is String, not numbers; restore"),
        (b"", "index.csv: empty CSV"),
    ],
)
def test_another_index_is_named(content: bytes, cause: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "imc23" / "index.csv").write_bytes(content)
    assert main(["reproduce", "drives", "--data", str(data), "--runs", str(data), "--draw-only"]) == 2
    assert cause in capsys.readouterr().err
