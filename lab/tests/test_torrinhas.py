"""The paper on MPTCP over one radio: bitrates and RTTs by phase, verdicts and the page."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic

from crosslane_lab.papers.frame import Options, Results
from crosslane_lab.papers.torrinhas import PAPER, page
from crosslane_lab.papers.torrinhas.results import (
    BOTH,
    DRIVEN,
    FIRST,
    LAST,
    LOADED,
    OURS,
    PHASES,
    STRATEGIES,
    UNLOADED,
    bitrate,
    bitrates,
    lower_carries_more,
    rtt,
    rtt_ratio,
    rtts,
    share,
    subflows,
)
from crosslane_lab.runs.folder import Run
from crosslane_lab.runs.runner import Runner

PROJECT = Path(__file__).parents[2]
SECOND = 1_000_000_000
RUNS = ("scenario-1", "scenario-2", UNLOADED, LOADED)
RTT_US = {"rsu1": 26_000, "rsu2": 25_000, "rsu3": 27_000}


def simulated(root: Path, name: str, rtt_us: dict[str, int], mbit_s: float = 8.5) -> None:
    """A run of each strategy: `mbit_s` in halves, the second unit with 1 % more; `kernel` has no third one."""
    runs: list[dict[str, Any]] = []
    for strategy in STRATEGIES:
        folder = root / name / "runs" / f"{strategy}-1"
        folder.mkdir(parents=True)
        rows = [
            (second, unit, 1.01 if unit == "rsu2" and at is not PHASES[2] else 1, len(at.units))
            for at in PHASES
            for second in range(at.from_s, at.to_s)
            for unit in at.units
            if (strategy, unit) != ("kernel", "rsu3")
        ]
        times = [second * SECOND for second, *_ in rows]
        units = [unit for _, unit, *_ in rows]
        payload = [round(mbit_s * 125_000 * more / count) for *_, more, count in rows]
        columns = {"t_ns": times, "path": units, "direction": ["up"] * len(rows), "payload_bytes": payload}
        synthetic.frame("throughput", columns, len(rows)).write_ipc(folder / "throughput.arrow")
        columns = {"t_ns": times, "path": units, "rtt_us": [rtt_us[unit] for unit in units]}
        synthetic.frame("tcp_info", columns, len(rows)).write_ipc(folder / "tcp_info.arrow")
        events = [
            ("subflow_established", "rsu2", 20.1),
            ("subflow_closed", "rsu1", 9.0),
            ("subflow_closed", "rsu1", 52.0),
        ]
        more = {"source": "kernel", "side": "vehicle"}
        lines = [json.dumps({"t_s": t_s, "event": what, "path": unit} | more) for what, unit, t_s in events]
        (folder / "events.jsonl").write_text("\n".join(lines))
        runs.append({"strategy": strategy, "seed": 1, "valid": True, "metrics": {"gap_ms.max": 400.0}})
    summary = {"schema": 1, "scenario": name, "engine": "simulator", "duration_s": 150.0, "seeds": [1]}
    (root / name / "summary.json").write_text(json.dumps(summary | {"strategies": STRATEGIES, "runs": runs}))


@pytest.fixture
def results(tmp_path: Path) -> Results:
    for name in RUNS:
        simulated(tmp_path, name, RTT_US | ({} if name == RUNS[0] else {"rsu2": 226_000}))
    return Results(tmp_path, RUNS)


def run_of(results: Results, name: str = RUNS[0], strategy: str = OURS) -> Run:
    return results.runs(name, strategy)[0]


def test_a_bitrate_is_that_of_a_unit_in_its_phase(results: Results) -> None:
    run = run_of(results)
    assert bitrate(run, FIRST) == pytest.approx(8.5, abs=0.001)
    assert bitrate(run, BOTH, "rsu1") == pytest.approx(4.25, abs=0.001)
    assert bitrate(run, LAST, "rsu1") == 0
    assert share(run, BOTH, "rsu2") == pytest.approx(1.01 / 2.01, abs=0.001)


def test_the_seconds_after_a_change_do_not_count(results: Results) -> None:
    run = run_of(results)
    file = run.folder / "throughput.arrow"
    before = bitrate(run, BOTH)
    synthetic.rewrite(file, lambda frame: frame.filter(~frame["t_ns"].is_between(20 * SECOND, 22 * SECOND)))
    assert bitrate(run, BOTH) == before
    synthetic.rewrite(file, lambda frame: frame.filter(frame["t_ns"] != 23 * SECOND))
    assert bitrate(run, BOTH) < before


def test_only_what_the_server_receives_is_a_bitrate(results: Results) -> None:
    run = run_of(results)
    down = {"t_ns": [5 * SECOND], "path": ["rsu1"], "direction": ["down"], "payload_bytes": [9_000_000]}
    more = synthetic.frame("throughput", down, 1)
    synthetic.rewrite(run.folder / "throughput.arrow", lambda frame: frame.vstack(more))
    assert bitrates(run).filter(bitrates(run)["second"] == 5)["mbit_s"].to_list() == pytest.approx([8.5])


def test_an_rtt_counts_while_its_unit_is_in_reach(results: Results) -> None:
    run = run_of(results)
    gone = {"t_ns": [60 * SECOND], "path": ["rsu1"], "rtt_us": [900_000]}
    synthetic.rewrite(
        run.folder / "tcp_info.arrow", lambda frame: frame.vstack(synthetic.frame("tcp_info", gone, 1))
    )
    assert rtts(run)["rtt_ms"].max() == 27
    assert rtt(run, BOTH, "rsu2") == 25
    assert rtt_ratio(run, BOTH) == pytest.approx(26 / 25)
    assert rtt_ratio(run, FIRST) is None


def test_each_local_address_is_a_subflow(results: Results) -> None:
    run = run_of(results)
    ports = {"t_ns": [120 * SECOND] * 2, "path": ["rsu3"] * 2, "local": ["10.3.0.2:1", "10.3.0.2:2"]}
    more = synthetic.frame("tcp_info", ports, 2)
    synthetic.rewrite(
        run.folder / "tcp_info.arrow", lambda frame: frame.filter(frame["path"] != "rsu3").vstack(more)
    )
    assert subflows(run, LAST, "rsu3") == 2
    assert subflows(run, LAST, "rsu2") == 1


def test_the_lower_rtt_carries_more_in_one_both_or_no_phase(results: Results, tmp_path: Path) -> None:
    assert lower_carries_more(run_of(results)) == 1
    assert lower_carries_more(run_of(results, "scenario-2")) == 0
    simulated(tmp_path, "other", RTT_US | {"rsu3": 20_000})
    assert lower_carries_more(run_of(Results(tmp_path, ("other",)), "other")) == 0.5


def test_the_page_has_a_verdict_on_each_claim(results: Results, tmp_path: Path) -> None:
    files = page.write(results, tmp_path / "page.md")
    assert [file.name for file in files] == ["torrinhas-4.png", "torrinhas-5.png", "page.md"]
    assert all(file.stat().st_size > 1000 for file in files)
    text = files[-1].read_text(encoding="utf-8").replace("\u00a0", " ")

    def row(start: str) -> str:
        (found,) = [line for line in text.splitlines() if line.startswith(f"| {start}")]
        return found

    assert row("4a: RSU1, sum").endswith("| 8.5 Mbit/s | 8.5 Mbit/s | same |")
    assert row("4a: share of RSU2").endswith("| 50.2 % | same |")
    assert row("5a: RSU1, sum").endswith("| more: there are no other stations |")
    assert row("5a, other stations: RSU2 and RSU3, sum").endswith("| same |")
    assert row("5b: RTT, higher / lower, RSU1 and RSU2").endswith("| 8.69 | same |")
    assert row("5b: share of RSU1").endswith("| 49.8 % | not met |")
    assert row("IV: RSU2 appears").endswith("| 0.1 s | met |")
    assert row("IV: RSU1 is gone").endswith("| 2 s | not met |")
    assert row("IV: RSU3 appears").endswith("| – | not measured |")
    assert row("III: subflow to RSU3").endswith("| 0 Mbit/s | met |")
    assert "not met: its SYN" in row("III: subflow to RSU2")
    assert "| `torrinhas` | 8.50 (26 ms) | 4.25 (26 ms) + 4.29 (25 ms) |" in text
    assert "1 seeds, engine: simulator" in text
    assert "$" not in text


def test_the_loaded_scenario_differs_from_the_unloaded_one_in_its_background_only(tmp_path: Path) -> None:
    options = Options(Runner("crosslane", tmp_path), PROJECT / "scenarios", tmp_path / "page.md")
    texts = {each.name: each.scenario for each in PAPER.plan(options)}
    changed = set(texts[LOADED].splitlines()) ^ set(texts[UNLOADED].splitlines())
    assert len(changed) == 2
    assert all(line.startswith("background = ") for line in changed)


def test_drives_have_the_congestion_control_of_their_name_and_the_schedulers_of_the_kernel(tmp_path: Path) -> None:
    options = Options(Runner("crosslane", tmp_path), PROJECT / "scenarios", tmp_path / "page.md")
    driven = [each for each in PAPER.plan(options) if each.engine == "kernel"]
    assert [each.name for each in driven] == list(DRIVEN)
    for each in driven:
        assert f'congestion = "{each.name.rpartition("-")[2]}"' in each.scenario
        assert 'scheduler = "default"' in each.scenario
    simulated = [each.engine for each in PAPER.plan(replace(options, engine="simulator"))]
    assert set(simulated) == {"simulator"}
