import tomllib
from pathlib import Path

import polars as pl

from crosslane_lab.papers.adaptive import campaign, page
from crosslane_lab.papers.frame import Options
from crosslane_lab.runs.runner import Runner

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def test_each_scenario_has_a_strategy_per_limit() -> None:
    plan = campaign.plan(Options(Runner("crosslane", Path()), SCENARIOS, Path(), quick=True))
    assert [each.name for each in plan] == list(campaign.SCENARIOS)
    found = tomllib.loads(plan[0].scenario)["strategy"]
    assert [each["late_ms"] for each in found if each["base"] == "adaptive"] == list(campaign.LATE_MS)


def frame(share: float, worst: float) -> pl.DataFrame:
    """`adaptive` with this share and delay, `threshold` with 0.38 and 25 ms, the others with 0.7 and 60 ms."""
    names = [*map(campaign.named, campaign.LATE_MS), *campaign.OTHERS]
    values = {"threshold": (0.38, 25.0)}
    limits = dict(zip(names, campaign.LATE_MS, strict=False))
    return pl.DataFrame(
        {
            "scenario": scenario,
            "strategy": name,
            "late_ms": limits.get(name),
            "seeds": 20,
            "share": values.get(name, (share, worst) if name in limits else (0.7, 60.0))[0],
            "worst": values.get(name, (share, worst) if name in limits else (0.7, 60.0))[1],
            "p95": 60.0,
            "in_time": 0.96,
        }
        for scenario in campaign.SCENARIOS
        for name in names
    )


def test_the_page_says_which_targets_are_reached() -> None:
    text = page.page(frame(0.86, 28.0), "late-ms.png")
    assert "| leave-coverage | `adaptive`, 60 | 86.0 | 28 | 60 | 96 |" in text
    assert "| flapping | 60: in time in 95 %, at 85 % | reached |" in text
    assert "reached: +48.0 points" in text
    assert "**not reached**" not in text
    worse = page.page(frame(0.6, 61.0), "late-ms.png")
    assert "| flapping | 60: in time in 95 %, at 85 % | **not reached** |" in worse
    assert "**not reached**: 0.857 ×, median 61 and 60 ms" in worse


def test_the_figure_has_a_panel_per_scenario() -> None:
    assert len(page.draw(frame(0.5, 28.0)).axes) == len(campaign.SCENARIOS)
