"""The command: its output, and one line with exit code 2 for unusable input."""

import errno
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pytest
import resolved_scenario
import synthetic

from crosslane_lab.cli import main
from crosslane_lab.progress import Progress


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, progress would mix with the output under test."""
    monkeypatch.setattr("crosslane_lab.progress.QUIET_S", float("inf"))


def test_report_writes_the_page_and_prints_its_path(drive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(drive), "--open", "no"]) == 0
    assert capsys.readouterr().out == f"{drive / 'report.html'}\n"
    assert (drive / "report.html").read_text().startswith("<!doctype html>")


def test_results_writes_the_page(drive: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.md"
    assert main(["results", str(drive), "--out", str(out)]) == 0
    assert out.read_text().startswith("# Results\n")


def test_results_draws_a_distribution_next_to_the_page_from_a_summary_only(drive: Path, tmp_path: Path) -> None:
    summary = json.loads((drive / "summary.json").read_text())
    first = summary["runs"][0]
    del first["folder"]
    many = [first | {"seed": seed} for seed in range(60)]
    (tmp_path / "many").mkdir()
    shutil.copy(drive / "scenario.json", tmp_path / "many")
    text = json.dumps(summary | {"engine": "simulator", "seeds": list(range(60)), "runs": many})
    (tmp_path / "many" / "summary.json").write_text(text)
    out = tmp_path / "results.md"
    assert main(["results", str(tmp_path / "many"), "--out", str(out)]) == 0
    assert "| strategy | p5 |" in out.read_text()
    assert (tmp_path / "results-leave-coverage.png").read_bytes().startswith(b"\x89PNG")


def test_a_report_needs_records(drive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(drive / "runs")
    assert main(["report", str(drive)]) == 2
    assert "its runs have no records; simulate again with --records all" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["report", "--help"], ["results", "--help"]])
def test_help_and_version_succeed(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 0


@pytest.mark.parametrize("arguments", [[], ["report"], ["nonsense"], ["report", "x", "--open", "maybe"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2


def test_a_full_disk_is_named_with_what_to_do(
    drive: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Mock(write=Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    monkeypatch.setattr("sys.stdout", full)
    assert main(["report", str(drive), "--open", "no"]) == 1
    sentence = "crosslane-lab: while printing: No space left on device; free some space there\n"
    assert capsys.readouterr().err == sentence


def printing(arguments: list[str], drive: Path, output: int) -> tuple[int, str]:
    """Exit code and messages of the command in its own process, with this standard output."""
    named = {"DRIVE": str(drive), "OUT": str(drive / "page.md")}
    command = [sys.executable, "-m", "crosslane_lab", *(named.get(each, each) for each in arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": ""}
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", [["results", "DRIVE", "--out", "OUT"], ["results", "--help"], ["--version"]])
def test_output_that_is_not_read_is_no_failure(arguments: list[str], drive: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        code, messages = printing(arguments, drive, writes)
    finally:
        os.close(writes)
    assert (code, "ipe" in messages, "Traceback" in messages) == (0, False, False)


def test_a_full_disk_below_standard_output_is_a_failure(drive: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        code, messages = printing(["results", "DRIVE", "--out", "OUT"], drive, full.fileno())
    sentence = "crosslane-lab: while printing: No space left on device; free some space there"
    assert (code, messages.splitlines()[-1]) == (1, sentence)


def test_a_result_that_does_not_fit_on_the_disk_is_named_and_not_left_in_part(
    drive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = drive / "report.html"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        assert main(["report", str(drive), "--open", "no"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    sentence = f"crosslane-lab: while working on {out}: File too large; check the path and its permissions\n"
    assert (capsys.readouterr().err, out.exists()) == (sentence, False)


def test_an_interrupt_is_exit_code_130(drive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crosslane_lab.report.page.write", Mock(side_effect=KeyboardInterrupt))
    assert main(["report", str(drive), "--open", "no"]) == 130


def test_an_unwritable_output_is_a_failure_of_code_1(drive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(drive), "--out", str(drive / "no" / "such" / "place.html")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def act(root: Path) -> None:
        file = root / name
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    return act


def put(name: str, text: str) -> Callable[[Path], None]:
    def act(root: Path) -> None:
        (root / name).write_text(text)

    return act


def summary(**changes: object) -> Callable[[Path], None]:
    return lambda root: synthetic.change_summary(root, **changes)


def scenario(part: str, key: str, value: object) -> Callable[[Path], None]:
    return lambda root: resolved_scenario.change(root, lambda data: data[part].update({key: value}))


def metric(name: str, value: float) -> Callable[[Path], None]:
    def act(root: Path) -> None:
        runs = json.loads((root / "summary.json").read_text())["runs"]
        synthetic.change_summary(root, runs=[run | {"metrics": run["metrics"] | {name: value}} for run in runs])

    return act


def table(name: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[Path], None]:
    def act(root: Path) -> None:
        synthetic.rewrite(root / "runs" / "kernel-1" / name, change)

    return act


def remove(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).unlink()


def damage(name: str) -> Callable[[Path], None]:
    """Random bytes between the head and the end with the schema."""

    def act(root: Path) -> None:
        whole = (root / name).read_bytes()
        places = range(len(whole) // 20, len(whole) // 2)
        bad = bytes((byte ^ 0xA5) if place in places else byte for place, byte in enumerate(whole))
        (root / name).unlink()
        (root / name).write_bytes(bad)

    return act


PACKETS = "runs/kernel-1/packets.arrow"
EVENTS = "runs/kernel-1/events.jsonl"

BAD = {
    "no summary": (remove("summary.json"), "summary.json: the file is missing", "give the folder that"),
    "broken summary": (put("summary.json", '{"schema": 1'), "summary.json: not JSON", "give the folder that"),
    "summary is a list": (put("summary.json", "[]"), "summary.json: not a JSON object", "give the folder that"),
    "newer schema": (summary(schema=2), "schema 2 is not the known 1", "install a newer crosslane-lab"),
    "no schema": (summary(schema=None), "schema None is not the known 1", "run the drive again"),
    "runs missing": (summary(runs=None), "summary.json: `runs` has the wrong type", "run the drive again"),
    "run without seed": (summary(runs=[{"strategy": "kernel"}]), "`seed` is missing", "run the drive again"),
    "run is text": (summary(runs=["kernel-1"]), "expected an object", "run the drive again"),
    "folder of an earlier version": (
        remove("scenario.json"),
        "scenario.json: the file is missing: an earlier version wrote the folder",
        "run it again",
    ),
    "broken scenario": (put("scenario.json", "{"), "scenario.json: not JSON", "run it again"),
    "odd scenario": (put("scenario.json", '{"service": 1}'), "scenario.json: not a scenario", "run it again"),
    **{
        f"scenario with {key} {value!r}": (scenario(part, key, value), f"`{key}` is not {what}", "run it again")
        for part, key, value, what in (
            ("traffic", "direction", -1, "text"),
            ("traffic", "deadline_s", "soon", "a number"),
            ("service", "late_ms", None, "a number"),
            ("service", "late_ms", 1e300, "a number, or too great"),
            ("service", "mode", [], "text"),
            ("service", "prefer", [1], "a list of text"),
        )
    },
    "a path without a name": (
        lambda root: resolved_scenario.change(root, lambda data: data["paths"][0].pop("name")),
        "not a scenario (KeyError: 'name')",
        "run it again",
    ),
    "an infinite metric": (
        metric("path.lte.share", float("inf")),
        "`path.lte.share` is inf, which",
        "run the drive",
    ),
    "a metric that is too great": (metric("path.lte.share", 1e308), "`path.lte.share` is 1e+308", "run the drive"),
    "a whole number that is too great": (metric("gap_ms.max", 10**400), "`gap_ms.max` is ", "run the drive"),
    "a seed of text": (summary(seeds=["1"]), "`seeds` has the wrong type", "run the drive again"),
    "a strategy that is a number": (summary(strategies=[1]), "`strategies` has the wrong type", "run the drive"),
    "a name that leaves the folder": (summary(scenario="../x"), "`scenario` is no name", "run the drive again"),
    "half a character": (summary(title="\ud800"), "summary.json: not JSON (", "give the folder that"),
    "a deep scenario": (put("scenario.json", "[" * 100_000), "scenario.json: not JSON (nested", "run it again"),
    "fleet": (
        lambda root: resolved_scenario.change(root, lambda data: data.update(fleet={"vehicles": 9})),
        "a run of a fleet has no records",
        "see runs/*/vehicles.csv",
    ),
    "broken versions": (put("versions.json", "{"), "versions.json: not JSON", "run the drive again"),
    "no packets": (remove(PACKETS), "packets.arrow: the file is missing", "run the drive again"),
    "not Arrow": (put(PACKETS, "text"), "packets.arrow: not an Arrow IPC file", "run the drive again"),
    "damaged Arrow": (
        damage(PACKETS),
        "packets.arrow: the file is damaged (",
        "run the drive again",
    ),
    "column missing": (
        table("packets.arrow", lambda t: t.drop("dsn")),
        "column `dsn` is missing",
        "run the drive again",
    ),
    "column of text": (
        table("messages.arrow", lambda t: t.with_columns(pl.col("sent_ns").cast(pl.String))),
        "messages.arrow: column `sent_ns` is String, not UInt64",
        "run the drive again",
    ),
    "no events": (remove(EVENTS), "events.jsonl", "run the drive again"),
    "broken event": (
        put(EVENTS, '{"t_s": 1, "source": "run"}\n'),
        "events.jsonl line 1: not an event",
        "run the drive",
    ),
    "event is a number": (put(EVENTS, "\n7\n"), "events.jsonl line 2: not an event", "run the drive again"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_reported_in_one_line_with_exit_code_2(
    case: str, drive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corrupt, cause, remedy = BAD[case]
    corrupt(drive)
    assert main(["report", str(drive)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("crosslane-lab: while reading ")
    assert output.err.count("\n") == 1
    assert cause in output.err
    assert remedy in output.err
    assert not (drive / "report.html").exists()


def test_a_name_that_is_not_utf_8_is_refused(drive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = drive.rename(os.fsdecode(os.fsencode(drive) + b"\xff"))
    assert main(["report", str(other)]) == 2
    assert "the name is not UTF-8; rename it" in capsys.readouterr().err


def test_a_missing_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["results", str(tmp_path / "gone"), "--out", str(tmp_path / "r.md")]) == 2
    assert "gone: no such folder; give the folder" in capsys.readouterr().err


def test_progress_is_silent_for_two_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("crosslane_lab.progress.QUIET_S", 2.0)
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    progress = Progress()
    progress("one")
    now = 102.5
    progress("two")
    progress.done()
    assert capsys.readouterr().err == "two …\n"


def test_numbers_of_other_widths_are_accepted(drive: Path) -> None:
    for file in (drive / "runs").glob("*/packets.arrow"):
        synthetic.rewrite(file, lambda table: table.cast({"tcp_flags": pl.Int64, "path": pl.Categorical}))
    assert main(["report", str(drive)]) == 0
    assert json.loads((drive / "summary.json").read_text())["schema"] == 1


def test_a_step_that_takes_longer_is_reported_though_it_began_in_the_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crosslane_lab.progress.QUIET_S", 0.05)
    out, ended = io.StringIO(), io.StringIO()
    running, done = Progress(out), Progress(ended)
    for each in (running, done):
        each("zero")
        each("one")
    done.done()
    deadline = time.monotonic() + 20
    while not out.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    running("two")
    running.done()
    assert out.getvalue() == "one …\ntwo …\n"
    assert ended.getvalue() == ""
