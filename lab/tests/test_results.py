"""The results page."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crosslane_lab.conformance.compare import compare
from crosslane_lab.errors import LabError
from crosslane_lab.figures import distribution
from crosslane_lab.pages import roadside
from crosslane_lab.pages.results import key_metrics, page, write
from crosslane_lab.runs.folder import RunFolder


@pytest.fixture(scope="module")
def text(left: RunFolder, passed_by: RunFolder) -> str:
    return page([left, passed_by]).replace("\u00a0", " ").replace("\u202f", " ")


def test_each_strategy_has_median_worst_and_ratios(text: str) -> None:
    assert "| `kernel` | 903 (902–904) | 904 | 2 |  | 2.19 times higher |" in text
    row = next(line for line in text.splitlines() if line.startswith("| `threshold` | 33"))
    assert row.endswith("| 27.4 times lower | 12.5 times lower |")


def test_the_key_metrics_are_those_of_the_scenario(left: RunFolder, passed_by: RunFolder) -> None:
    assert key_metrics(left) == ["delivery_delay_ms.max", "gap_ms.max", "path.its-g5.share"]
    assert "recovery_ms" in key_metrics(passed_by)


def test_the_share_of_the_preferred_path_is_shown_and_of_it_no_run_is_the_worst(left: RunFolder) -> None:
    shares = {"path.its-g5.share": 0.5, "path.lte.share": 0.5}
    runs = tuple(replace(run, metrics={**run.metrics, **shares}) for run in left.runs)
    text = page([replace(left, runs=runs)]).replace("\u00a0", " ")
    assert "`path.its-g5.share`" in text
    assert "`path.lte.share`" not in text
    assert "| `kernel` | 50 % | – | 2 |  | the same |" in text


def test_targets_have_verdicts(text: str) -> None:
    assert "| threshold: delivery_delay_ms.max at most 60 | 27 | ok |" in text
    assert "| threshold: gap_ms.max at most 1 | 7.5 | **not ok** |" in text
    assert "Targets met: 2 of 4." in text


def test_invalid_and_repeated_runs_are_counted(left: RunFolder) -> None:
    first, second, *rest = left.runs
    runs = (replace(first, valid=False, attempts=3), replace(second, attempts=2), *rest)
    text = page([replace(left, runs=runs)])
    assert "Of 6 runs, 1 was invalid (excluded from all values) and 2 were repeated." in text
    assert "1 run invalid, 2 runs repeated." in text


def test_versions_are_listed_once_if_they_agree(left: RunFolder, passed_by: RunFolder) -> None:
    other = replace(passed_by, versions=json.loads(json.dumps(passed_by.versions)) | {"kernel": "7.3"})
    text = page([left, other])
    assert "| machine.cpu | synthetic |" in text
    assert "| tcp_rmem | 4096 131072 6291456 |" in text
    assert "| processor | not known |" in text
    assert "| kernel | leave-coverage: 6.18.0; pass-by: 7.3 |" in text


@pytest.fixture
def simulated(left: RunFolder) -> RunFolder:
    """The drive out of coverage with 60 seeds; the worst delays are 1 to 60 ms."""
    runs = [
        replace(left.valid_runs(strategy)[0], seed=seed, metrics={"delivery_delay_ms.max": float(seed)})
        for strategy in left.strategies
        for seed in range(1, 61)
    ]
    return replace(left, engine="simulator", seeds=tuple(range(1, 61)), runs=tuple(runs))


def test_many_seeds_are_shown_as_a_distribution(simulated: RunFolder, left: RunFolder) -> None:
    text = page([left, simulated])
    section = text[text.index("## leave-coverage, simulated") :]
    assert "![Distribution of the worst delivery delay over the drives](results-leave-coverage.png)" in section
    assert "| strategy | p5 | p25 | median | p75 | p95 | max | runs |" in section
    assert "| `threshold` | 3.95 | 15.8 | 30.5 | 45.2 | 57 | 60 | 60 |" in section
    assert "results-leave-coverage.png" not in page([left]), "two seeds are no distribution"


def test_a_distribution_rises_to_all_drives(simulated: RunFolder) -> None:
    lines = distribution.draw(simulated).axes[0].get_lines()
    assert [line.get_label() for line in lines] == list(simulated.strategies)
    for line in lines:
        assert np.asarray(line.get_xdata())[-1] == 60.0
        assert np.asarray(line.get_ydata())[30] == pytest.approx(0.5)
        assert np.asarray(line.get_ydata())[-1] == 1.0


def test_the_same_folders_give_the_same_text(left: RunFolder) -> None:
    assert page([left]) == page([left])


def test_two_folders_of_one_scenario_and_engine_are_refused_instead_of_one_being_lost(
    left: RunFolder, tmp_path: Path
) -> None:
    """The versions of the first, its picture, or its side of a comparison would be those of the second."""
    given = [left, replace(left, path=Path("again"), versions={"kernel": "7.3"})]
    for make in (lambda: write(given, tmp_path / "r.md"), lambda: compare([], given), lambda: roadside.page(given)):
        with pytest.raises(
            LabError, match=r"while reading again: .* has leave-coverage on the same engine \(kernel\)"
        ):
            make()
