import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crosslane_lab.cli import main
from crosslane_lab.papers.nota import page, published, tables
from crosslane_lab.papers.nota.cases import ALPHAS, COMPARED, Case, mp_dpa, plan, scenario
from crosslane_lab.papers.nota.published import STATIC, verdict
from crosslane_lab.papers.nota.results import DELIVERED_S, EXPENSIVE, MINIMUM, MISSED, Results
from crosslane_lab.papers.nota.utility import MU1, MU2, excess, utility
from crosslane_lab.runs.frame import Spread

PROJECT = Path(__file__).parents[2]


def metrics(expensive: float, missed: float, overhead: float = 0.05) -> dict[str, float]:
    return {
        EXPENSIVE: expensive,
        MISSED: missed,
        MINIMUM: 0.05,
        DELIVERED_S: 9.0,
        "object.written_s.p50": 3.0,
        "deadline.unwritten_share": 0.0,
        "overhead_share": overhead,
        "delivered_bytes": 60e6,
    }


def test_a_utility_of_1_has_no_miss_nothing_on_the_expensive_path_and_no_more_bytes_than_mptcp() -> None:
    kernel = metrics(expensive=0.5, missed=0, overhead=0.05)
    for weights in (MU1, MU2):
        assert weights.met + weights.preferred + weights.low_overhead == pytest.approx(1)
        assert utility(metrics(0, 0), kernel, weights) == pytest.approx(1)
    assert utility(metrics(0.4, 0.5), kernel, MU1) == pytest.approx(0.6 * 0.5 + 0.25 * 0.6 + 0.15)
    assert utility(metrics(0.4, 0.5), kernel, MU2) == pytest.approx(0.1 * 0.5 + 0.8 * 0.6 + 0.1)


def test_the_excess_counts_bytes_beyond_those_of_mptcp_and_is_never_negative() -> None:
    kernel = metrics(0.5, 0, overhead=0.05)
    assert excess(metrics(0.3, 0, overhead=0.155), kernel) == pytest.approx(0.1)
    assert excess(metrics(0.3, 0, overhead=0.02), kernel) == 0
    nothing_delivered = {MISSED: 1.0, EXPENSIVE: 0.0, "delivered_bytes": 0.0}
    assert excess(nothing_delivered, kernel) == 0


def test_every_case_changes_the_keys_it_is_named_for() -> None:
    cases = plan()
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        read = tomllib.loads(scenario(case, PROJECT / "scenarios", PROJECT / "data"))
        assert (read["name"], read["congestion"]) == (case.name, case.congestion)
        assert read["traffic"]["deadline_s"] == case.deadline_s
        cells = read["cellular"]
        assert [cell["loss"] for cell in cells] == [0.01 if case.variant == "loss" else 0] * 2
        jittered = [
            str(cell.get("trace", "")).endswith(f"jitter-{x}.csv") for cell, x in zip(cells, "ab", strict=True)
        ]
        assert jittered == [case.variant == "jitter"] * 2
        assert all(Path(cell["trace"]).is_file() for cell in cells if "trace" in cell)
        buffer = 0 if case.variant == "autotuned" else 64_000_000 if case.is_road else 2_000_000
        assert read["traffic"]["send_buffer_bytes"] == buffer
        named = {strategy["name"]: strategy["alpha"] for strategy in read["strategy"]}
        assert set(case.strategies) <= set(named) | set(COMPARED)
        for alpha in ALPHAS if case.swept else ():
            assert named.get(mp_dpa(alpha), 1.0) == alpha


def test_the_thesis_is_in_the_scenarios_as_plain_keys() -> None:
    sizes = {"narrow": 5, "symmetric": 10, "asymmetric": 10, "triangular": 1}
    for base in {case.base for case in plan()}:
        read = tomllib.loads((PROJECT / "scenarios" / "nota" / f"{base}.toml").read_text())
        bulk = base.endswith("-bulk")
        traffic = read["traffic"]
        assert traffic["object_bytes"] == sizes.get(base, 100 if bulk else 2) * 1_000_000
        assert all(cell["delay_ms"] == 50 and cell["loss"] == 0 for cell in read["cellular"])
        assert (read["congestion"], traffic["late"]) == ("bbr", "give-up")
        minutes = {"highway": 8, "rural": 13, "city": 10}.get(base.split("-")[0])
        if minutes:
            assert traffic["objects"] == minutes * (1 if bulk else 60)


@pytest.mark.parametrize(
    ("ours", "expected"),
    [(0.177, "same"), (0.22, "same"), (0.24, "more: why"), (0.1, "better"), (None, "nothing delivered")],
)
def test_a_share_within_5_points_is_the_same(ours: float | None, expected: str) -> None:
    entry = replace(STATIC[1], reason="why")
    missed = 0.0 if ours and ours < 0.15 else 1.0
    stats = None if ours is None else Spread(ours, ours, ours, 1)
    assert verdict(entry, stats, missed) == expected
    assert ours != 0.1 or verdict(entry, stats, 0.2) == "less: why"


def test_times_are_the_same_within_a_tenth() -> None:
    entry = published.Published("6.7", Case("symmetric", 10), "kernel", DELIVERED_S, 5.2)
    assert verdict(entry, Spread(5.6, 5.6, 5.6, 1)) == "same"
    assert verdict(entry, Spread(5.8, 5.8, 5.8, 1)) == "more"


@pytest.fixture
def synthetic_results(tmp_path: Path) -> Results:
    """Runs of the whole plan in which a higher α saves more, and misses from α = 1.5."""
    for case in plan():
        runs = [run_of(strategy, seed) for strategy in case.strategies for seed in (1, 2)]
        summary = {"schema": 1, "scenario": case.name, "engine": "simulator", "duration_s": 64, "seeds": [1, 2]}
        (tmp_path / case.name).mkdir()
        text = json.dumps(summary | {"strategies": list(case.strategies), "runs": runs})
        (tmp_path / case.name / "summary.json").write_text(text)
    return Results(tmp_path)


def run_of(strategy: str, seed: int) -> dict[str, Any]:
    alpha = 1.0 if strategy == "mp-dpa" else int(strategy[7:] or 0) / 10 if strategy.startswith("mp-dpa") else None
    expensive = 0.5 if alpha is None else 0.6 - alpha / 5
    missed = float(alpha is not None and alpha >= 1.5)
    return {"strategy": strategy, "seed": seed, "valid": True, "metrics": metrics(expensive + seed / 1000, missed)}


def test_the_best_alpha_is_the_highest_without_a_miss_where_reliability_counts(synthetic_results: Results) -> None:
    case = Case("symmetric", 10)
    assert synthetic_results.safe_alpha(case) == 1.4
    assert synthetic_results.best_alpha(case, MU1) == 1.4
    assert synthetic_results.best_alpha(case, MU2) == 2.3
    stats = synthetic_results.spread(case, "mp-dpa", EXPENSIVE)
    assert stats is not None
    assert (stats.median, stats.low, stats.high, stats.count) == pytest.approx((0.4015, 0.401, 0.402, 2))


def test_the_page_has_published_numbers_and_ours(synthetic_results: Results) -> None:
    text = page.page(synthetic_results)
    assert "| 6.2 | 3.8 + 3.0, 10 s | `mp-dpa` | expensive path | 17.7 | 40.1 (40.1–40.2) |" in text
    assert "| 8 + 8, 10 s | bbr | up to 1.4 | up to 2.3 | 1.4 | 2.3 |" in text
    assert page.page(synthetic_results) == text
    assert "$" not in text
    assert "| highway, 60 s | 70.0 / 12.5 | 50.2 / 0.0 | 50.2 / 0.0 | 60.9 / 12.5 |" in tables.roads(
        synthetic_results, "bulk"
    )


def test_a_missing_program_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = ["--scenarios", str(PROJECT / "scenarios"), "--data", str(PROJECT / "data"), "--runs", str(tmp_path)]
    assert main(["reproduce", "nota", "--out", str(tmp_path / "page.md"), "--program", "/nowhere", *folders]) == 2
    assert "/nowhere: No such file or directory; `make build`, or name it with --program" in capsys.readouterr().err


def test_missing_scenarios_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = ["--scenarios", str(tmp_path / "none"), "--runs", str(tmp_path / "runs")]
    assert main(["reproduce", "nota", "--out", str(tmp_path / "page.md"), *folders]) == 2
    assert "narrow.toml: No such file or directory; name the folder of scenarios" in capsys.readouterr().err
