"""A made-up paper of five claims on the frame: its page, and which runs are made again."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from crosslane_lab.errors import LabError
from crosslane_lab.papers.command import PAPERS
from crosslane_lab.papers.frame import Claim, Options, Paper, Results, reproduce
from crosslane_lab.runs.runner import Comparison, Runner

PROGRAM = """#!/bin/sh
[ "$1" = --version ] && { echo crosslane 1; exit; }
while [ "$1" != --out ]; do shift; done
mkdir -p "$2" && echo run >> "$2.log"
metrics() { echo '"metrics": {"goodput_mbit_s": '$1', "gap_ms.max": '$2'}'; }
run() { echo '{"strategy": "'$1'", "seed": '$2', "valid": true, '$(metrics $3 $4)'}'; }
cat > "$2/summary.json" <<END
{"schema": 1, "scenario": "x", "engine": "simulator", "duration_s": 9, "seeds": [1, 2],
 "strategies": ["kernel", "ours"], "expect": [],
 "runs": [$(run kernel 1 8 900), $(run kernel 2 10 700), $(run ours 1 12 40), $(run ours 2 14 60)]}
END
"""
DRIVE = Comparison("drive", 'name = "drive"\n', ("kernel", "ours"), "1..2")
CITY = replace(DRIVE, name="city")
PAPER = Paper(
    name="made-up",
    what="five claims",
    claims=(
        Claim("figure 1", "drive", "kernel", "goodput_mbit_s", 9.2, tolerance=0.05, relative=True),
        Claim("figure 2", "drive", "ours", "goodput_mbit_s", (9.0, 11.0), reason="a faster link"),
        Claim("table 1", "drive", "ours", "goodput_mbit_s", 1.2, "at least", relative_to="kernel"),
        Claim("table 2", "city", "ours", "gap_ms.max", 20, "at most"),
        Claim("section 5", "city", "ours", "cost", 1, words="cheaper"),
    ),
    plan=lambda options: [DRIVE, CITY],
)
PAGE = """\
| place | run | strategy | metric | published | ours | verdict |
| --- | --- | --- | --- | ---: | ---: | --- |
| figure 1 | drive | `kernel` | goodput_mbit_s | 9.2 Mbit/s | 9 Mbit/s (8–10) | same |
| figure 2 | drive | `ours` | goodput_mbit_s | 9 Mbit/s to 11 Mbit/s | 13 Mbit/s (12–14) | more: a faster link |
| table 1 | drive | `ours` | goodput_mbit_s | ≥ 1.2 × `kernel` | 1.44 (1.33–1.56) × `kernel` | met |
| table 2 | city | `ours` | gap_ms.max | ≤ 20 ms | 50 ms (40–60) | not met |
| section 5 | city | `ours` | cost | cheaper | – | not measured |
"""


@pytest.fixture
def options(tmp_path: Path) -> Options:
    (tmp_path / "crosslane").write_text(PROGRAM)
    (tmp_path / "crosslane").chmod(0o755)
    return Options(Runner(tmp_path / "crosslane", tmp_path / "runs"), tmp_path, tmp_path / "page.md")


def count(options: Options, name: str) -> int:
    log = options.runner.root / f"{name}.log"
    return log.read_text().count("run") if log.exists() else 0


def test_five_claims_make_a_page(options: Options) -> None:
    assert reproduce(PAPER, options) == [options.out]
    assert options.out.read_text().replace("\u00a0", " ") == f"{PAGE}\nMade by crosslane unknown.\n"


def test_the_page_of_a_paper_names_the_program(options: Options) -> None:
    def write(_: Results, options: Options) -> list[Path]:
        options.out.write_text("# A page\n")
        return [options.out]

    reproduce(PAPER, options)
    for name, version in (("drive", "0.1.0+2b"), ("city", "0.1.0+1a")):
        (options.runner.root / name / "versions.json").write_text(json.dumps({"crosslane": version}))
    reproduce(replace(PAPER, write=write), options, draw_only=True)
    assert options.out.read_text() == "# A page\n\nMade by crosslane 0.1.0+1a, 0.1.0+2b.\n"


def test_one_figure_runs_only_its_comparison(options: Options) -> None:
    reproduce(PAPER, replace(options, figures=("table 2",)))
    assert (count(options, "drive"), count(options, "city")) == (0, 1)
    assert len(options.out.read_text().splitlines()) == 5
    with pytest.raises(LabError, match="'figure 9' of made-up: there is none; choose from figure 1, figure 2"):
        reproduce(PAPER, replace(options, figures=("figure 9",)))


def test_only_missing_and_stale_runs_are_made(options: Options) -> None:
    def runs_after(paper: Paper, program: str = "") -> tuple[int, int]:
        file = options.runner.root.parent / "crosslane"
        file.write_text(file.read_text() + program)
        reproduce(paper, replace(options, runner=Runner(file, options.runner.root)))
        return count(options, "drive"), count(options, "city")

    assert runs_after(PAPER) == (1, 1)
    assert runs_after(PAPER) == (1, 1)
    for change in ({"scenario": "name = 1\n"}, {"seeds": "1..3"}, {"strategies": ("ours",)}, {"engine": "kernel"}):
        before = count(options, "drive")
        changed = replace(PAPER, plan=lambda _, change=change: [replace(DRIVE, **change), CITY])
        assert runs_after(changed) == (before + 1, 1), change
    before = count(options, "drive")
    assert runs_after(PAPER, "# another build\n") == (before + 1, 2)
    (options.runner.root / "city" / "summary.json").unlink()
    assert runs_after(PAPER) == (before + 1, 3)
    record = options.runner.root / "city" / "runs" / "ours-1" / "windows.arrow"
    record.parent.mkdir(parents=True)
    pl.DataFrame({"t_ns": [1]}).write_ipc(record)
    assert runs_after(PAPER) == (before + 1, 3)
    os.truncate(record, 100)
    assert runs_after(PAPER) == (before + 1, 4), "a record that was cut"


def test_runs_are_made_again_if_a_file_that_their_scenario_names_changes(options: Options) -> None:
    data, scenarios = options.scenarios / "data", options.runner.root / "scenarios"
    trace, tree = data / "set" / "a.csv", scenarios / "tree.json"
    for file in (trace, tree):
        file.parent.mkdir(parents=True)
        file.write_text("1")
    text = 'title = "1.5 km"\ntrace = "data:set/a.csv#set:att@5"\ntree = "tree.json"\nmobility = "gone.csv"\n'
    paper = replace(PAPER, plan=lambda _: [replace(DRIVE, scenario=text), CITY])
    of_data = replace(options, runner=replace(options.runner, data=data))

    def runs_after(file: Path, content: str) -> int:
        file.write_text(content)
        reproduce(paper, of_data)
        return count(options, "drive")

    assert [runs_after(trace, "1"), runs_after(trace, "1")] == [1, 1]
    assert [runs_after(trace, "22"), runs_after(tree, "22"), runs_after(tree, "22")] == [2, 3, 3]
    assert count(options, "city") == 1


def test_drives_on_the_kernel_are_one_after_another_and_so_are_runs_of_one_job(options: Options) -> None:
    program, log = options.runner.root.parent / "crosslane", options.runner.root.parent / "log"
    alone = f'echo "$@" >> {log}\n[ "$1" = drive ] && {{ mkdir {log}.d || exit 1; sleep 0.3; rmdir {log}.d; }}\n'
    program.write_text(program.read_text().replace("while [", f"{alone}while [", 1))
    drives = [replace(DRIVE, name=f"drive-{number}", engine="kernel") for number in range(3)]
    for parallel, jobs in ((3, " --jobs 1"), (1, " --jobs 1"), (0, "")):
        runner = replace(options.runner, parallel=parallel, root=options.runner.root / f"{parallel}")
        runner.run([*drives, CITY])
        *driven, simulated = sorted(log.read_text().splitlines())
        log.unlink()
        assert len(driven) == 3
        assert f"--records none{jobs} --out" in simulated


def test_runs_are_made_again_if_a_record_that_they_kept_is_gone(options: Options) -> None:
    program = options.runner.root.parent / "crosslane"
    program.write_text(f'{program.read_text()}mkdir -p "$2/runs/ours-1" && : > "$2/runs/ours-1/events.jsonl"\n')
    paper = replace(PAPER, plan=lambda _: [replace(DRIVE, keep=("events", "windows")), CITY])
    for _ in range(2):
        reproduce(paper, options)
    assert (count(options, "drive"), count(options, "city")) == (1, 1)
    shutil.rmtree(options.runner.root / "drive" / "runs" / "ours-1")
    reproduce(paper, options)
    assert (count(options, "drive"), count(options, "city")) == (2, 1)


@pytest.mark.parametrize("name", ["hapanchak", "nota", "szilagyi", "torrinhas"])
def test_every_claim_has_its_run(name: str, tmp_path: Path) -> None:
    paper = PAPERS[name]
    scenarios = Path(__file__).parents[2] / "scenarios"
    planned = paper.plan(Options(Runner("crosslane", tmp_path), scenarios, tmp_path / "page.md"))
    strategies = {each.name: each.strategies for each in planned}
    assert len(strategies) == len(planned), "two comparisons have one folder"
    for claim in paper.claims:
        assert claim.strategy in strategies[claim.run], claim.place
        assert not claim.relative_to or claim.relative_to in strategies[claim.run], claim.place


def test_of_runs_that_are_all_invalid_nothing_was_measured(options: Options) -> None:
    program = options.runner.root.parent / "crosslane"
    program.write_text(program.read_text().replace('"valid": true', '"valid": false'))
    reproduce(PAPER, options)
    assert "| figure 1 | drive | `kernel` | goodput_mbit_s | 9.2 Mbit/s | – | not measured |" in (
        options.out.read_text().replace("\u00a0", " ")
    )


def test_a_program_that_fails_without_a_word_is_not_said_to_have_a_message(options: Options) -> None:
    with pytest.raises(LabError, match="while asking for its version: exit code 1, no message"):
        reproduce(PAPER, replace(options, runner=replace(options.runner, program="/bin/false")))
