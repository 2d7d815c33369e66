"""The comparison of simulator and kernel: tolerances, the golden file, exceptions and the page."""

import json
from pathlib import Path

import pytest

from crosslane_lab.cli import main
from crosslane_lab.conformance.compare import INSIDE, OUTSIDE, REPORTED, read_golden, verdict
from crosslane_lab.runs.frame import Spread

KERNEL = {
    "path.its-g5.share": 0.50,
    "path.lte.share": 0.50,
    "goodput_mbit_s": 10.0,
    "delivery_delay_ms.max": 900.0,
    "gap_ms.max": 40.0,
    "handover.count": 4.0,
    "reinjected_bytes": 5000.0,
    "lateness_us.p99": 50.0,
}


def comparison(
    root: Path, engine: str, changes: dict[str, dict[str, float]], seeds: tuple[int, ...] = (1, 2, 3)
) -> Path:
    """A run folder with only a summary: the given values, slightly varied by seed."""
    root.mkdir(parents=True)
    runs = [
        {
            "strategy": strategy,
            "seed": seed,
            "valid": True,
            "metrics": {metric: value * factor for metric, value in (KERNEL | own).items()},
        }
        for strategy, own in changes.items()
        for seed, factor in ((seed, 1 + 0.01 * (seed - 2)) for seed in seeds)
    ]
    summary = {
        "schema": 1,
        "scenario": "leave",
        "engine": engine,
        "duration_s": 40,
        "seeds": list(seeds),
        "strategies": list(changes),
        "runs": runs,
    }
    (root / "summary.json").write_text(json.dumps(summary))
    if engine == "kernel":
        (root / "versions.json").write_text(json.dumps({"kernel": "6.18.0", "crosslane": "0.1.0+1a"}))
    return root


class Workspace:
    """A folder with the kernel side, and the output of the command."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.capsys, self.count = root, capsys, 0
        self.golden, self.page = root / "conformance.csv", root / "conformance.md"
        self.exemptions = root / "conformance.toml"
        self.kernel = comparison(root / "kernel", "kernel", {"kernel": {}, "threshold": {"gap_ms.max": 5.0}})

    def simulation(self, **of_kernel: float) -> Path:
        self.count += 1
        changes = {name.replace("__", "."): value for name, value in of_kernel.items()}
        root = self.root / f"simulator-{self.count}"
        return comparison(root, "simulator", {"kernel": changes, "threshold": {"gap_ms.max": 5.0}})

    def write(self, *folders: Path) -> int:
        return self._run(*folders, "--out", self.page)

    def check(self, *folders: Path) -> int:
        return self._run(*folders, "--check")

    def _run(self, *arguments: Path | str) -> int:
        code = main(["conformance", *map(str, arguments), "--golden", str(self.golden)])
        self.output = self.capsys.readouterr()
        return code


@pytest.fixture
def workspace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Workspace:
    return Workspace(tmp_path, capsys)


@pytest.mark.parametrize(
    ("metric", "kernel", "inside", "outside"),
    [
        ("path.lte.share", 0.50, 0.55, 0.551),
        ("goodput_mbit_s", 10.0, 9.0, 8.99),
        ("delivery_delay_ms.max", 900.0, 600.0, 599.0),
        ("delivery_delay_ms.max", 5.0, 25.0, 25.1),
        ("gap_ms.max", 900.0, 1350.0, 1351.0),
        ("gap_ms.max", 0.0, 20.0, 20.1),
        ("handover.count", 4.0, 5.0, 5.1),
        ("handover.count", 30.0, 27.0, 26.9),
        ("handover.count", 0.0, 1.0, 2.0),
    ],
)
def test_tolerances_are_those_of_the_page(metric: str, kernel: float, inside: float, outside: float) -> None:
    def evaluated(value: float) -> str:
        return verdict(metric, Spread(kernel, kernel, kernel, 5), Spread(value, value, value, 20))

    assert evaluated(kernel) == evaluated(inside) == INSIDE
    assert evaluated(outside) == OUTSIDE


def test_what_only_one_side_has_is_outside_and_reinjection_is_not_evaluated() -> None:
    some = Spread(1.0, 1.0, 1.0, 5)
    assert verdict("gap_ms.max", some, None) == verdict("gap_ms.max", None, some) == OUTSIDE
    assert verdict("reinjected_bytes", some, Spread(1e9, 1e9, 1e9, 5)) == REPORTED


def test_a_check_against_a_golden_file_that_is_missing_fails(workspace: Workspace) -> None:
    assert workspace.check(workspace.kernel, workspace.simulation()) == 2
    assert workspace.output.err.startswith(
        f"crosslane-lab: while reading {workspace.golden}: the file is missing; name"
    )


def test_golden_file_and_page_have_both_sides(workspace: Workspace) -> None:
    assert workspace.write(workspace.kernel, workspace.simulation(gap_ms__max=70.0)) == 0
    rows = workspace.golden.read_text().splitlines()
    assert rows[1] == "leave,kernel,delivery_delay_ms.max,1 2 3,6.18.0,900,891,909,3,900,891,909,3,inside"
    assert "leave,kernel,gap_ms.max,1 2 3,6.18.0,40,39.6,40.4,3,70,69.3,70.7,3,outside" in rows
    assert not any("lateness" in row for row in rows)
    page = workspace.page.read_text()
    assert (
        "**11 of 12 values are within their tolerance**, 0 are outside for a known reason, 1 without one." in page
    )
    row = next(line for line in page.splitlines() if line.startswith("| `kernel`"))
    assert row.endswith("| **40 / 70** ✗ | 10 / 10 | 50 / 50 | 50 / 50 | 4 / 4 | 5\u202f000 / 5\u202f000 |")
    assert "| pause | 1 | 2 |" in page
    assert "\n\nMade by crosslane 0.1.0+1a, unknown.\n\n" in page, "the simulation has no versions"


def test_a_value_that_left_its_tolerance_fails_the_check_and_nothing_is_written(workspace: Workspace) -> None:
    workspace.write(workspace.kernel, workspace.simulation())
    before = workspace.golden.read_text()
    assert workspace.check(workspace.simulation(gap_ms__max=59.0)) == 0
    assert workspace.output.out == "12 of 12 values are within their tolerance\n"
    assert workspace.check(workspace.simulation(gap_ms__max=61.0)) == 1
    assert workspace.output.err == (
        "crosslane-lab: leave, kernel: gap_ms.max left its tolerance: the kernel has 40, now 61\n"
    )
    assert workspace.golden.read_text() == before


def test_a_value_that_was_outside_before_does_not_fail_the_check(workspace: Workspace) -> None:
    workspace.write(workspace.kernel, workspace.simulation(gap_ms__max=70.0))
    assert workspace.check(workspace.simulation(gap_ms__max=80.0)) == 0


def test_an_exception_gives_its_reason_and_is_an_error_once_it_is_not_needed(workspace: Workspace) -> None:
    workspace.exemptions.write_text(
        '[[exception]]\nscenario = "leave"\nstrategy = ["kernel"]\nmetric = ["gap_ms.max", "path.*.share"]\n'
        'reason = "The model waits longer."\n'
    )
    assert workspace.write(workspace.kernel, workspace.simulation(gap_ms__max=70.0, path__lte__share=0.7)) == 0
    page = workspace.page.read_text()
    assert "2 are outside for a known reason, 0 without one." in page
    assert "**40 / 70** ✗ 1 |" in page
    assert page.endswith("## Exceptions\n\n1. The model waits longer.\n")
    assert workspace.check(workspace.simulation(gap_ms__max=70.0)) == 1
    assert workspace.output.err == (
        "crosslane-lab: leave, kernel: path.*.share is an exception but within its tolerance; remove it\n"
    )


def test_the_kernel_side_is_kept_until_it_is_re_measured(workspace: Workspace) -> None:
    workspace.write(workspace.kernel, workspace.simulation())
    assert workspace.write(workspace.simulation(gap_ms__max=45.0)) == 0
    gaps = [f for f in read_golden(workspace.golden) if f.key == ("leave", "kernel", "gap_ms.max")]
    assert [(f.kernel and f.kernel.median, f.simulator and f.simulator.median) for f in gaps] == [(40.0, 45.0)]


def test_a_scenario_that_is_not_given_stays_in_the_golden_file(workspace: Workspace) -> None:
    workspace.write(workspace.kernel, workspace.simulation())
    before = workspace.golden.read_text().replace("leave,", "pass-by,")
    workspace.golden.write_text(before)
    assert workspace.write(workspace.kernel, workspace.simulation()) == 0
    head, *rows = before.splitlines()
    after = workspace.golden.read_text().splitlines()
    assert after == [head, *rows, *(row.replace("pass-by,", "leave,") for row in rows)]
    assert "## pass-by" not in workspace.page.read_text()


def test_metrics_that_the_seed_determines_are_compared_over_the_seeds_of_the_valid_kernel_runs(
    workspace: Workspace, tmp_path: Path
) -> None:
    summary = json.loads((workspace.kernel / "summary.json").read_text())
    summary["runs"][2]["valid"] = False
    (workspace.kernel / "summary.json").write_text(json.dumps(summary))
    strategies = {"kernel": {}, "threshold": {"gap_ms.max": 5.0}}
    workspace.write(
        workspace.kernel, comparison(tmp_path / "many", "simulator", strategies, seeds=tuple(range(1, 40)))
    )
    rows = workspace.golden.read_text().splitlines()
    assert "leave,kernel,handover.count,1 2,6.18.0,3.98,3.96,4,2,3.98,3.96,4,2,inside" in rows
    assert "leave,kernel,gap_ms.max,1 2,6.18.0,39.8,39.6,40,2,47.2,39.6,54.8,39,inside" in rows
    assert workspace.write(workspace.kernel, comparison(tmp_path / "few", "simulator", strategies, seeds=(1,))) == 2
    assert "kernel lacks a seed; simulate those of the kernel: --seed 1,2" in workspace.output.err


def test_a_missing_side_is_reported(workspace: Workspace, tmp_path: Path) -> None:
    assert workspace.write(workspace.simulation()) == 2
    assert "the golden file has no kernel side of leave; give the folder of the kernel, too" in workspace.output.err
    assert workspace.write(workspace.kernel) == 2
    assert "no simulation of leave is given; give the folder of the simulator, too" in workspace.output.err
    incomplete = comparison(tmp_path / "incomplete", "simulator", {"kernel": {}})
    assert workspace.write(workspace.kernel, incomplete) == 2
    assert "threshold was not simulated; simulate every strategy that was driven" in workspace.output.err


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        ("conformance.csv", "scenario,strategy\na,b\n", "conformance.csv: not a golden file (KeyError"),
        (
            "conformance.csv",
            "scenario,strategy,metric,kernel\na,b,c,many\n",
            "conformance.csv: not a golden file (",
        ),
        (
            "conformance.csv",
            "scenario,strategy,metric,seeds,kernel_version,kernel,verdict\na,b,c,1",
            "conformance.csv: not a golden file (ValueError: the row of a, b: c is not complete); remove it and",
        ),
        (
            "conformance.toml",
            "[[exception]]\n",
            "conformance.toml: not a list of exceptions (KeyError: 'scenario')",
        ),
        ("conformance.toml", "exception = 1\n", "conformance.toml: not a list of exceptions ("),
        ("conformance.toml", "= 1", "conformance.toml: not a list of exceptions ("),
    ],
)
def test_a_corrupt_file_is_reported_in_one_line(workspace: Workspace, name: str, text: str, cause: str) -> None:
    (workspace.root / name).write_text(text)
    assert workspace.write(workspace.kernel, workspace.simulation()) == 2
    assert cause in workspace.output.err
    assert workspace.output.err.count("\n") == 1
