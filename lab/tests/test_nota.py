import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from crosslane_lab.cli import main
from crosslane_lab.papers import frame
from crosslane_lab.papers.nota import page, tables
from crosslane_lab.papers.nota.cases import ALPHAS, COMPARED, Case, comparison, mp_dpa, plan
from crosslane_lab.papers.nota.published import STATIC
from crosslane_lab.papers.nota.results import (
    DELIVERED_S,
    EXPENSIVE,
    MINIMUM,
    MISSED,
    MU1,
    MU2,
    Results,
)

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


def write(root: Path, case: Case, by_strategy: dict[str, list[dict[str, float]]]) -> Results:
    """The runs of a case, one seed per entry."""
    runs = [
        {"strategy": strategy, "seed": seed, "valid": True, "metrics": each}
        for strategy, of in by_strategy.items()
        for seed, each in enumerate(of, 1)
    ]
    summary = {"schema": 1, "scenario": case.name, "engine": "simulator", "duration_s": 64, "seeds": [1, 2]}
    (root / case.name).mkdir()
    text = json.dumps(summary | {"strategies": list(by_strategy), "runs": runs})
    (root / case.name / "summary.json").write_text(text)
    return Results(frame.Results(root, (case.name,)))


CASE = Case("symmetric", 10)


def test_a_utility_of_1_has_no_miss_nothing_on_the_expensive_path_and_no_more_bytes_than_mptcp(
    tmp_path: Path,
) -> None:
    kernel = metrics(expensive=0.5, missed=0, overhead=0.05)
    results = write(tmp_path, CASE, {"kernel": [kernel], "single": [metrics(0, 0)], "mp-dpa": [metrics(0.4, 0.5)]})
    for weights in (MU1, MU2):
        assert weights.met + weights.preferred + weights.low_overhead == pytest.approx(1)
        assert results.mu(CASE, "single", weights) == pytest.approx(1)
    assert results.mu(CASE, "mp-dpa", MU1) == pytest.approx(0.6 * 0.5 + 0.25 * 0.6 + 0.15)
    assert results.mu(CASE, "mp-dpa", MU2) == pytest.approx(0.1 * 0.5 + 0.8 * 0.6 + 0.1)


def test_the_excess_counts_bytes_beyond_those_of_mptcp_and_is_never_negative(tmp_path: Path) -> None:
    more, less = metrics(0.3, 0, overhead=0.155), metrics(0.3, 0, overhead=0.02)
    nothing = {MISSED: 1.0, EXPENSIVE: 0.0, "delivered_bytes": 0.0}
    runs = {
        "kernel": [metrics(0.5, 0, overhead=0.05)],
        "single": [more],
        "mp-dpa": [less],
        "deadline-mptcp": [nothing],
    }
    results = write(tmp_path, CASE, runs)
    assert results.excess(CASE, "single") == pytest.approx(0.1)
    assert results.excess(CASE, "mp-dpa") == 0
    assert results.excess(CASE, "deadline-mptcp") == 0


def test_every_case_changes_the_keys_it_is_named_for() -> None:
    cases = plan()
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        read = tomllib.loads(comparison(case, PROJECT / "scenarios").scenario)
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
    ("ours", "missed", "expected"),
    [
        (0.177, 1.0, "same"),
        (0.22, 1.0, "same"),
        (0.24, 1.0, "more: why"),
        (0.1, 0.0, "better"),
        (0.1, 0.2, "less: why"),
        (None, 1.0, "not measured"),
    ],
)
def test_a_share_within_5_points_is_the_same(
    ours: float | None, missed: float, expected: str, tmp_path: Path
) -> None:
    claim = replace(STATIC[1], reason="why")
    runs = {} if ours is None else {claim.strategy: [metrics(ours, missed)]}
    assert claim.verdict(write(tmp_path, claim.case, {"single": [metrics(0, 0)]} | runs).all) == expected


@pytest.mark.parametrize(("ours_s", "expected"), [(5.6, "same"), (5.8, "more")])
def test_times_are_the_same_within_a_tenth(ours_s: float, expected: str, tmp_path: Path) -> None:
    (claim,) = [each for each in STATIC if (each.place, each.strategy) == ("6.7", "kernel")]
    assert claim.range == (5.2, 5.2)
    results = write(tmp_path, claim.case, {"kernel": [metrics(0, 0) | {DELIVERED_S: ours_s}]})
    assert claim.verdict(results.all) == expected


@pytest.fixture
def synthetic_results(tmp_path: Path) -> Results:
    """Runs of the whole plan in which a higher α saves more, and misses from α = 1.5."""
    for case in plan():
        write(
            tmp_path, case, {strategy: [run_of(strategy, seed) for seed in (1, 2)] for strategy in case.strategies}
        )
    return Results(frame.Results(tmp_path, tuple(case.name for case in plan())))


def run_of(strategy: str, seed: int) -> dict[str, float]:
    alpha = 1.0 if strategy == "mp-dpa" else int(strategy[7:] or 0) / 10 if strategy.startswith("mp-dpa") else None
    expensive = 0.5 if alpha is None else 0.6 - alpha / 5
    return metrics(expensive + seed / 1000, float(alpha is not None and alpha >= 1.5))


def test_the_best_alpha_is_the_highest_without_a_miss_where_reliability_counts(synthetic_results: Results) -> None:
    case = CASE
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
    folders = ["--scenarios", str(PROJECT / "scenarios"), "--runs", str(tmp_path)]
    assert main(["reproduce", "nota", "--out", str(tmp_path / "page.md"), "--program", "/nowhere", *folders]) == 2
    assert "/nowhere: No such file or directory; `make build`, or name it with --program" in capsys.readouterr().err


def test_missing_scenarios_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = ["--scenarios", str(tmp_path / "none"), "--runs", str(tmp_path / "runs")]
    assert main(["reproduce", "nota", "--out", str(tmp_path / "page.md"), *folders]) == 2
    assert "narrow.toml: No such file or directory; name the folder of scenarios" in capsys.readouterr().err
