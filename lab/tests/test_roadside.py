"""The page on several roadside units over one radio."""

import json
from dataclasses import replace
from pathlib import Path

import resolved_scenario

from crosslane_lab.pages import roadside
from crosslane_lab.runs.folder import RunFolder


def folder(root: Path, name: str, metrics: dict[str, dict[str, float]]) -> RunFolder:
    root.mkdir(parents=True)
    scenario = resolved_scenario.of([], {}, {"kind": "messages"}, list(metrics))
    (root / "scenario.json").write_text(json.dumps(scenario))
    runs = [
        {"strategy": strategy, "seed": seed, "valid": True, "metrics": values}
        for strategy, values in metrics.items()
        for seed in (1, 2, 3)
    ]
    summary = {"schema": 1, "scenario": name, "engine": "simulator", "duration_s": 20.0, "seeds": [1, 2, 3]}
    (root / "summary.json").write_text(json.dumps(summary | {"strategies": list(metrics), "runs": runs}))
    return RunFolder.open(root)


def test_a_target_is_reached_or_not_and_bytes_over_units_are_those_of_the_bound(tmp_path: Path) -> None:
    ours = {"delivery_delay_ms.max": 120.0, "path.rsu1.bytes": 98.0, "path.lte.bytes": 50.0}
    bound = {"delivery_delay_ms.max": 10.0, "path.rsu1.bytes": 100.0}
    page = roadside.page([folder(tmp_path / "a", "roadside-ten-100", {"threshold": ours, "oracle": bound})])
    assert "Targets reached: 1 of 2." in page
    worst, share = (line for line in page.splitlines() if line.startswith("| `ten-100`"))
    assert "**not reached**" in worst
    assert "120" in worst
    assert "98 %" in share.replace("\u00a0", " ")
    assert "not reached" not in share


def test_a_target_that_was_not_measured_says_so(tmp_path: Path) -> None:
    page = roadside.page([folder(tmp_path / "a", "roadside-ten-30", {"kernel": {"gap_ms.max": 5.0}})])
    assert page.count("| not measured |") == 2


def test_the_page_names_the_programs_that_made_its_runs(tmp_path: Path) -> None:
    simulated = folder(tmp_path / "a", "roadside-ten-30", {"kernel": {"gap_ms.max": 5.0}})
    driven = replace(simulated, engine="kernel", versions={"crosslane": "0.1.0+1a"})
    page = roadside.page([replace(simulated, versions={"crosslane": "0.1.0+2b"}), driven])
    assert "\n\nMade by crosslane 0.1.0+1a, 0.1.0+2b.\n\n" in page
