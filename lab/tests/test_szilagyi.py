"""The paper on MPT-GRE, re-measured: figures, verdicts and the page."""

import json
from pathlib import Path

import pytest
import resolved_scenario
import synthetic

from crosslane_lab.papers.frame import Options, Results
from crosslane_lab.papers.szilagyi import PAPER, page
from crosslane_lab.papers.szilagyi.results import CASES, REDUNDANCY_STRATEGIES, Case
from crosslane_lab.runs.runner import Runner

PROJECT = Path(__file__).parents[2]
SCENARIO = resolved_scenario.of(
    paths=[
        {"name": "one", "link": "wire", "outages_s": [[21, 41]]},
        {"name": "two", "link": "wire", "outages_s": [[61, 81]]},
    ],
    service={},
    traffic={"kind": "bulk"},
    strategies=[],
)
MBIT_S = {
    "single-first": 57.0,
    "single-second": 57.0,
    "vxlan-first": 55.0,
    "kernel": 113.0,
    "tunnel": 110.0,
    "tunnel-plain": 112.0,
}
SECOND = 1_000_000_000


def driven(root: Path, case: str, mbit_s: dict[str, float]) -> None:
    folder = root / case
    folder.mkdir(parents=True)
    runs = []
    for strategy, goodput in mbit_s.items():
        for seed in (1, 2):
            of_run = folder / "runs" / f"{strategy}-{seed}"
            of_run.mkdir(parents=True)
            # A second of 1 Mbit each from 1 s on, the third of them without data.
            received = [(1 + second) * SECOND for second in range(100) if second != 2]
            columns = {"received_ns": received, "size_bytes": [125_000] * len(received)}
            synthetic.frame("messages", columns, len(received)).write_ipc(of_run / "messages.arrow")
            metrics = {"goodput_mbit_s": goodput + seed - 1.5, "gap_ms.max": 64.0}
            if strategy.startswith("tunnel"):
                metrics["tunnel.cpu_s_per_gb"] = 20.0
            runs.append({"strategy": strategy, "seed": seed, "valid": True, "metrics": metrics})
    (folder / "scenario.json").write_text(json.dumps(SCENARIO))
    summary = {"schema": 1, "scenario": case, "engine": "kernel", "duration_s": 102.0, "seeds": [1, 2]}
    (folder / "summary.json").write_text(json.dumps(summary | {"strategies": list(mbit_s), "runs": runs}))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    driven(tmp_path, "equal", MBIT_S)
    driven(tmp_path, "unequal", MBIT_S | {"tunnel": 30.0})
    driven(tmp_path, "redundancy", dict.fromkeys(REDUNDANCY_STRATEGIES, 100.0))
    return tmp_path


def results(root: Path) -> Results:
    return Results(root, tuple(CASES))


def test_a_goodput_is_compared_with_the_sum_of_both_single_paths(root: Path) -> None:
    case = Case(results(root), "equal")
    assert case.share_of_sum("tunnel") == pytest.approx(110 / 114)
    assert case.share_of_sum("kernel-tuned") is None


def test_the_share_of_a_core_is_time_per_gb_times_gb_per_second(root: Path) -> None:
    core = Case(results(root), "equal").core("tunnel")
    assert core is not None
    assert core.median == pytest.approx(20 * 110 / 8000)
    assert Case(results(root), "equal").core("kernel") is None


def test_goodput_is_counted_in_each_second_of_the_traffic(root: Path) -> None:
    rates = Case(results(root), "redundancy").per_second("tunnel")
    assert len(rates) == 100
    assert (rates[0], rates[2], rates[99]) == (1.0, 0.0, 1.0)


def test_a_path_is_used_again_when_the_goodput_is_nearly_as_before() -> None:
    rates = [110.0] * 20 + [55.0] * 20 + [55.0, 60.0, 105.0, 110.0]
    assert page.recovery_seconds(rates, 20, 40) == 2
    assert page.recovery_seconds(rates[:42], 20, 40) is None


def test_the_page_has_a_verdict_on_each_figure(root: Path, tmp_path: Path) -> None:
    files = page.write(results(root), tmp_path / "page.md")
    assert [file.name for file in files][-1] == "page.md"
    assert all(file.stat().st_size > 1000 for file in files)
    text = files[-1].read_text(encoding="utf-8")
    (five,) = [line for line in text.splitlines() if line.startswith("| 5:")]
    (seven,) = [line for line in text.splitlines() if line.startswith("| 7:")]
    (nine,) = [line for line in text.splitlines() if line.startswith("| 9:")]
    assert "96 %" in five
    assert five.endswith("| met |")
    assert seven.endswith("| not met |")
    assert "longest pause 64" in nine
    assert nine.endswith("| met |")
    assert "0–20 s | 20–40 s | 40–60 s | 60–80 s | 80–100 s" in text
    assert "`equal` 2 × 100 s" in text
    assert "$" not in text


def test_vxlan_is_in_the_tables_without_cpu_time(root: Path) -> None:
    lines = page.page(results(root)).splitlines()
    over_first, of_unequal = [line for line in lines if line.startswith("| VXLAN over path 1 |")]
    assert over_first == "| VXLAN over path 1 | 55 (54.5–55.5) | – | – | – |"
    assert of_unequal == over_first
    assert lines.count("| VXLAN over path 2 | – | – | – | – |") == 2, "it was not driven"
    assert not [line for line in lines if "kernel VXLAN" in line]


def test_every_strategy_of_a_case_is_one_of_its_scenario() -> None:
    scenarios = Path(__file__).parents[2] / "scenarios" / "szilagyi"
    built_in = ("kernel", "kernel-tuned", "tunnel", "tunnel-plain", "tunnel-redundant")
    for case, strategies in CASES.items():
        text = (scenarios / f"{case}.toml").read_text(encoding="utf-8")
        assert all(name in built_in or f'name = "{name}"' in text for name in strategies)


def test_a_strategy_without_a_valid_run_is_reported_as_not_measured(root: Path) -> None:
    synthetic.change_summary(root / "equal", runs=[])
    text = page.page(results(root))
    (five,) = [line for line in text.splitlines() if line.startswith("| 5:")]
    assert "not measured" in five


def options(program: Path, runs: Path, quick: bool = False) -> Options:
    return Options(Runner(program, runs), PROJECT / "scenarios", runs / "page.md", quick=quick)


@pytest.mark.parametrize(("quick", "seeds", "duration_s"), [(False, "1..10", 32), (True, "1..5", 12)])
def test_a_quick_run_has_fewer_and_shorter_runs(quick: bool, seeds: str, duration_s: int, tmp_path: Path) -> None:
    equal, _, redundancy = PAPER.plan(options(tmp_path, tmp_path, quick))
    assert (equal.seeds, redundancy.seeds) == (seeds, "1")
    assert f"\nduration_s = {duration_s}\n" in equal.scenario
    assert "\nduration_s = 102\n" in redundancy.scenario
