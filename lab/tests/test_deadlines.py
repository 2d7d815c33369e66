"""The table of cases with deadlines."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import resolved_scenario
import synthetic

from crosslane_lab.errors import LabError
from crosslane_lab.pages import deadlines
from crosslane_lab.runs.folder import RunFolder

SHARES = {"deadline": (0.055, 0.0), "kernel": (0.5, 0.0), "mp-dpa": (0.2, 0.0), "mp-dpa-13": (0.06, 0.1)}
SCENARIO = resolved_scenario.of(
    paths=[{"name": "lte-a", "link": "cellular"}, {"name": "lte-b", "link": "cellular"}],
    service={"cost_per_gb": {"lte-a": 0.1, "lte-b": 0.5}},
    traffic={"kind": "deadline", "deadline_s": 10.0},
    strategies=[*SHARES],
)


def folder(root: Path, engine: str, shares: dict[str, tuple[float, float]]) -> RunFolder:
    synthetic.write(root)
    runs = [
        {
            "strategy": strategy,
            "seed": seed,
            "valid": seed < 3,
            "metrics": {
                "path.lte-b.share": share + (seed == 2) * 0.02,
                "path.lte-b.share_optimum": 0.05,
                "deadline.missed_share": missed,
                "cost": 1.2,
                "cost_optimum": 1.0,
                "overhead_share": 0.055,
            },
        }
        for strategy, (share, missed) in shares.items()
        for seed in (1, 2, 3)
    ]
    (root / "scenario.json").write_text(json.dumps(SCENARIO))
    summary = {"schema": 1, "scenario": "both", "engine": engine, "duration_s": 64.0, "seeds": [1, 2, 3]}
    (root / "summary.json").write_text(json.dumps(summary | {"strategies": list(shares), "runs": runs}))
    return RunFolder.open(root)


def test_a_case_is_evaluated_by_its_optimum_and_the_best_alpha_misses_no_more(tmp_path: Path) -> None:
    (case,) = deadlines.cases([folder(tmp_path, "kernel", SHARES)])
    assert case.expensive_path == "lte-b"
    assert case.met
    assert case.best_alpha == ("mp-dpa", pytest.approx(0.21))
    row = deadlines.page([folder(tmp_path, "kernel", SHARES)]).splitlines()[-1]
    assert row.startswith("| `both` | kernel | 2 | 5.0 | 6.5 (5.5–7.5) | 1.5 | 0.00 | yes | – | 51.0 / 0.0 |"), row
    assert row.endswith("| 21.0 (`mp-dpa`) | 5.5 / 5.5 | 1.20 |"), row


def test_a_missed_deadline_fails_the_target(tmp_path: Path) -> None:
    (case,) = deadlines.cases([folder(tmp_path, "kernel", SHARES | {"deadline": (0.01, 0.01)})])
    assert case.met is False


def test_a_share_of_more_than_two_points_above_the_optimum_fails_the_target(tmp_path: Path) -> None:
    (case,) = deadlines.cases([folder(tmp_path, "kernel", SHARES | {"deadline": (0.065, 0.0)})])
    assert case.met is False


def test_folders_of_one_case_are_combined_and_engines_are_separate(tmp_path: Path) -> None:
    ours = {"deadline": SHARES["deadline"]}
    folders = [
        folder(tmp_path / "a", "simulator", ours),
        folder(tmp_path / "b", "simulator", {"kernel": SHARES["kernel"]}),
        folder(tmp_path / "c", "kernel", ours),
    ]
    kernel, simulated = deadlines.cases(folders)
    assert (kernel.engine, simulated.engine) == ("kernel", "simulator")
    assert [len(simulated.of(s)) for s in ("deadline", "kernel")] == [2, 2]


def test_other_traffic_is_rejected(left: RunFolder) -> None:
    with pytest.raises(LabError, match="no deadlines"):
        deadlines.cases([left])


def test_the_page_names_the_program_that_made_its_runs(tmp_path: Path) -> None:
    made = replace(folder(tmp_path, "kernel", SHARES), versions={"crosslane": "0.1.0+1a"})
    assert "\n\nMade by crosslane 0.1.0+1a.\n\n" in deadlines.page([made])


def test_a_run_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    given = folder(tmp_path, "kernel", SHARES)
    with pytest.raises(
        LabError, match="another folder has `deadline` with seed 1 of both, too; give each run once"
    ):
        deadlines.cases([given, given])


def test_the_cost_of_an_even_number_of_runs_is_the_middle_of_both_middle_ones(tmp_path: Path) -> None:
    given = folder(tmp_path, "kernel", SHARES)
    runs = tuple(
        replace(run, metrics=run.metrics | {"cost": cost})
        for run, cost in zip(
            [run for run in given.runs if run.strategy == "deadline"], (1.0, 1.5, 9.0), strict=True
        )
    )
    row = deadlines.page([replace(given, runs=runs)]).splitlines()[-1]
    assert row.endswith("| 1.25 |"), "the third run is invalid"
