"""The paper on SmartPS: the plan, the trees, what the runs show, and the page's tables."""

import hashlib
import json
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import synthetic
from test_learn import made

from crosslane_lab.errors import LabError
from crosslane_lab.learn import bound, train, tree
from crosslane_lab.papers.frame import Options, Results
from crosslane_lab.papers.liao import campaign, figures, page, trees, verdicts
from crosslane_lab.papers.liao.results import Found, Walk, in_flight
from crosslane_lab.progress import Progress
from crosslane_lab.runs.folder import Run
from crosslane_lab.runs.runner import Runner

needs_extra = pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")
SECOND = 1_000_000_000


def options(root: Path, engine: str = "") -> Options:
    return Options(Runner("crosslane", root), Path("scenarios"), root / "liao.md", engine=engine, quick=True)


def with_trees(root: Path) -> None:
    folder = campaign.tree_folder(root)
    folder.mkdir(parents=True, exist_ok=True)
    for name, kind in trees.KINDS.items():
        (folder / f"{name}.json").write_text(tree.text(kind.strategy, [{"a_first": 0.5}], {}))


def test_every_scenario_of_the_plan_finds_its_trees_beside_it(tmp_path: Path) -> None:
    with_trees(tmp_path)
    planned = campaign.plan(options(tmp_path))
    assert len({each.name for each in planned}) == len(planned)
    for each in planned:
        found = tomllib.loads(each.scenario)
        file = tmp_path / "scenarios" / f"{each.name}.toml"
        own = [strategy["name"] for strategy in found.get("strategy", [])]
        assert not [name for name in each.strategies if name.startswith("with-") and name not in own]
        for strategy in found.get("strategy", []):
            assert "tree" not in strategy or (file.parent / strategy["tree"]).is_file(), each.name
    engines = {each.engine for each in planned}
    assert engines == {"simulator", "kernel"}
    assert {each.engine for each in campaign.plan(options(tmp_path, "simulator"))} == {"simulator"}


def test_another_tree_makes_the_runs_with_it_stale_and_no_others(tmp_path: Path) -> None:
    with_trees(tmp_path)
    before = {each.name: each.scenario for each in campaign.plan(options(tmp_path))}
    (campaign.tree_folder(tmp_path) / "learned-tunnel.json").write_text("{}")
    after = {each.name: each.scenario for each in campaign.plan(options(tmp_path))}
    changed = {name for name, text in after.items() if text != before[name]}
    assert changed == {name for name in after if name.startswith("kernel/")}


def test_without_trees_the_plan_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="without --draw-only"):
        campaign.plan(options(tmp_path))


@needs_extra
def test_trees_are_trained_again_on_other_rows_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "FOLDS", 2)
    windows = made(12)
    trees.make(tmp_path / "a", windows, windows, Progress())
    files = {name: tmp_path / "a" / f"{name}.json" for name in trees.KINDS}
    stamps = {name: file.stat().st_mtime_ns for name, file in files.items()}
    trees.make(tmp_path / "a", windows, windows, Progress())
    assert stamps == {name: file.stat().st_mtime_ns for name, file in files.items()}
    trees.make(tmp_path / "a", windows.filter(pl.col("drive") > 0), windows, Progress())
    for name, file in files.items():
        assert (stamps[name] == file.stat().st_mtime_ns) == trees.KINDS[name].in_tunnel, name
    files["learned-tunnel"].unlink()
    trees.make(tmp_path / "a", windows.filter(pl.col("drive") > 0), windows, Progress())
    assert files["learned-tunnel"].is_file(), "a tree that is gone is trained again"
    for name, kind in trees.KINDS.items():
        asked = {node["feature"].split(".")[1] for node in trees.nodes(tmp_path / "a", name) if "feature" in node}
        assert not asked & set(kind.without), name
    assert "| forest of 200 |" in "\n".join(trees.scores(tmp_path / "a", "learned")["lines"])
    figures.tree(trees.nodes(tmp_path / "a", "smartps"))


def test_the_drawn_scenarios_are_these(tmp_path: Path) -> None:
    """A change of the draws changes all training data: it must be meant."""
    with_trees(tmp_path)
    texts = "".join(case.scenario("priority", {}) for case in campaign.training(True) + campaign.held_out(True))
    assert hashlib.sha256(texts.encode()).hexdigest()[:16] == "45c6914a2107128e"


@needs_extra
def test_the_trees_of_made_rows_are_these(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training gives the same bytes on every machine with the locked versions."""
    monkeypatch.setattr(train, "FOLDS", 2)
    trees.make(tmp_path, made(12), made(12), Progress())
    content = b"".join((tmp_path / f"{name}.json").read_bytes() for name in trees.KINDS)
    assert hashlib.sha256(content).hexdigest()[:16] == "efcad1efccb30cd7"


def run_of(folder: Path, tables: dict[str, dict[str, list[Any]]]) -> Run:
    folder.mkdir(parents=True, exist_ok=True)
    for name, columns in tables.items():
        synthetic.frame(name, columns, len(next(iter(columns.values())))).write_ipc(folder / f"{name}.arrow")
    return Run("x", 1, folder, valid=True, attempts=1, reason="", metrics={})


PACKETS = {
    "t_ns": [50_000_000, 150_000_000, 160_000_000, 170_000_000, 950_000_000],
    "delivered_ns": [250_000_000, 210_000_000, None, 500_000_000, 1_000_000_000],
    "path": ["wifi"] * 5,
    "direction": ["up", "up", "up", "down", "up"],
    "payload_bytes": [1400, 1400, 1400, 1400, 1400],
}


def test_packets_in_flight_have_entered_a_link_and_are_not_delivered(tmp_path: Path) -> None:
    found = in_flight(run_of(tmp_path, {"packets": PACKETS}))
    assert found["packets"].to_list() == [1, 2, 0, 0, 0, 0, 0, 0, 0]
    assert found["t_ns"].to_list()[:2] == [100_000_000, 200_000_000]


def test_the_switching_point_is_where_wifi_is_slower_for_good(tmp_path: Path) -> None:
    times = [second * SECOND for second in range(6)]
    both = {"t_ns": times * 2, "path": ["wifi"] * 6 + ["cellular"] * 6}
    tables = {
        "links": both | {"up_mbit_s": [20, 5, 20, 5, 5, 5, *[10] * 6]},
        "throughput": both | {"direction": ["up"] * 12, "payload_bytes": [9, 9, 9, 9, 1, 1, 1, 1, 1, 1, 9, 9]},
        "samples": {"t_ns": times, "path": ["wifi"] * 6, "rssi_dbm": [-50.0] * 6},
        "packets": PACKETS,
    }
    walk = Walk(run_of(tmp_path, tables))
    assert (walk.switching_s, walk.left_s) == (3, 4)
    figures.walk({"minrtt": walk})
    assert verdicts._when(walk.left_s - walk.switching_s) == "1 s after it"


def outcomes(learned: float, drives: int = 3) -> pl.DataFrame:
    goodput = {
        "minrtt": 10.0,
        "bound": 12.0,
        "bound-alone": 14.0,
        "smartps": 11.0,
        "learned": learned,
        "roundrobin": 8.0,
    }
    rows = [
        {
            "drive": drive,
            "traffic": traffic,
            "buffer_kb": buffer_kb,
            "kind": "walking",
            "by": by,
            "goodput_mbit_s": goodput.get(by, 9.0),
            "delay_ms": None if by in bound.BOUNDS else 100.0 if by == "minrtt" else 90.0,
        }
        for drive in range(drives)
        for traffic in page.TRAFFICS
        for buffer_kb in page.BUFFERS_KB
        for by in bound.COLUMNS
    ]
    return bound.ratios(pl.DataFrame(rows))


def found_of(tmp_path: Path, **frames: pl.DataFrame) -> Found:
    found = Found(Results(tmp_path, ()), quick=True)
    for name, frame in frames.items():
        found.__dict__[name] = frame
    return found


def test_targets_are_reached_or_not(tmp_path: Path) -> None:
    for learned, won, of_all, words in (
        (11.8, "90 %", "45 %", "reached"),
        (10.5, "25 %", "12 %", "**not reached**"),
    ):
        found = found_of(tmp_path, held_out=outcomes(learned), driven=pl.DataFrame())
        rows = list(page._targets(found))
        assert rows[0][1:] == [won, words]
        assert rows[1][1:] == [of_all, "**not reached**"]
        assert rows[4][1:] == ["0 of 24 cases are below", "reached"], "24: three drives, four traffics, two buffers"
    found = found_of(tmp_path, held_out=outcomes(9.0), driven=pl.DataFrame())
    assert list(page._targets(found))[4][1] == "24 of 24 cases are below"


def test_verdicts_of_the_simulated_figures_compare_medians(tmp_path: Path) -> None:
    packets = pl.DataFrame({"by": ["minrtt", "smartps"], "packets": [40, 30], "t_ns": [0, 0]})
    rows = list(verdicts._simulated(found_of(tmp_path, held_out=outcomes(11.0), packets=packets)))
    assert rows[0] == (
        "10: goodput, smartps / MinRTT",
        "+23.5\u00a0%",
        "+10.0\u00a0%",
        "less",
    )
    assert rows[4][2:] == ("100 to 90 ms", "same direction")
    assert rows[5][2:] == ("30 in the mean, `minrtt` 40", "same direction")
    table = "\n".join(page._simulated(outcomes(9.0)))
    assert (
        "| bulk-up | 64 kB | 0.80 | 0.90 | 0.90 | 0.90 | 0.90 | 0.90 | 1.10 | 0.90 | 1.20 | 1.40 | 1.10, 0.90 |"
        in table
    )


def summary(folder: Path, runs: dict[str, float]) -> None:
    folder.mkdir(parents=True)
    entries = [
        {
            "strategy": name,
            "seed": 1,
            "valid": True,
            "metrics": {"goodput_mbit_s": goodput, "delivery_delay_ms.p50": 100.0},
        }
        for name, goodput in runs.items()
    ]
    head = {"schema": 1, "scenario": "x", "engine": "kernel", "duration_s": 20, "seeds": [1]}
    (folder / "summary.json").write_text(json.dumps(head | {"strategies": list(runs), "runs": entries}))


def test_drives_on_the_kernel_and_recordings_are_compared_with_their_reference(tmp_path: Path) -> None:
    driven = dict.fromkeys(campaign.KERNEL, 8.0) | {
        "tunnel-smartps": 10.0,
        campaign.OVER_MPTCP: 12.0,
        "kernel": 6.0,
    }
    summary(tmp_path / "kernel" / "5-64", driven)
    summary(tmp_path / "recorded" / "imc23-a-b-64-minrtt", {"threshold": 10.0})
    summary(tmp_path / "recorded" / "imc23-a-b-64-default", {"threshold": 8.0})
    summary(tmp_path / "recorded" / "imc23-a-b-64-roundrobin", {"threshold": 7.0})
    of_order = {"threshold": 9.0, "with-learned": 9.0, "with-learned-transport": 11.0}
    summary(tmp_path / "recorded" / "imc23-a-b-64-priority", of_order)
    names = ("kernel/5-64", *(f"recorded/imc23-a-b-64-{way}" for way in (*campaign.SCHEDULERS, "priority")))
    found = Found(Results(tmp_path, names), quick=True)
    rows = "\n".join(page._kernel(found.driven))
    assert "| `tunnel-smartps` | 1 | 10.0 | 100 | 1.25 | 1.25 |" in rows
    assert "| `mptcp-learned` | 1 | 12.0 | 100 | 2.00 | 2.00 |" in rows
    assert (
        "| imc23 | 64 kB | 1 | 0.90 (1.00) | 0.90 (1.00) | 1.10 (1.00) | 0.70 (1.00) | 0.80 (1.00) |"
        in "\n".join(page._recorded(found.recorded))
    )
    nothing = Found(Results(tmp_path, ()), quick=True)
    assert list(page._kernel(nothing.driven)) == ["Not measured."]
    assert "--data DIR" in "\n".join(page._recorded(nothing.recorded))


@needs_extra
def test_signs_and_figure_4_are_of_the_path_that_is_first() -> None:
    windows = made(6)
    same, compared, ranking = verdicts.signs(windows)
    assert 0 < same <= compared
    assert {"PDR", "RSSI"} <= {*ranking}
    figures.attributes(windows)
    raw = "\n".join(page._raw(windows))
    assert "| WF |" in raw
    assert "LF (LTE)" in raw


@needs_extra
def test_the_page_has_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "FOLDS", 2)
    windows = made(12)
    trees.make(campaign.tree_folder(tmp_path), windows, windows, Progress())
    packets = pl.DataFrame({"by": ["minrtt", "smartps"], "packets": [40, 40], "t_ns": [0, 0]})
    frames = {"held_out": outcomes(11.0), "driven": pl.DataFrame(), "recorded": pl.DataFrame()}
    frames["repeated"] = pl.DataFrame({"ratio": [1.02, 0.97, 0.96, 0.71]})
    found = found_of(tmp_path, windows=windows, packets=packets, driven_packets=pl.DataFrame(), **frames)
    times = [second * SECOND for second in range(2)]
    both = {"t_ns": times * 2, "path": ["wifi"] * 2 + ["cellular"] * 2}
    tables = {
        "links": both | {"up_mbit_s": [20, 5, 10, 10]},
        "throughput": both | {"direction": ["up"] * 4, "payload_bytes": [9, 9, 1, 1]},
        "samples": {"t_ns": times, "path": ["wifi"] * 2, "rssi_dbm": [-50.0] * 2},
        "packets": PACKETS,
    }
    walk = Walk(run_of(tmp_path / "walk", tables))
    monkeypatch.setattr(Found, "walk", lambda _, by: walk)
    text = page.page(found)
    assert "| 12: packets in flight | fewer | 40 in the mean, `minrtt` 40 | not fewer |" in text
    assert "MinRTT is below 0.97 times itself in 2 of 4, the least 0.71." in text
    assert "7: goodput" not in text, "without drives on the kernel it has no verdict"
    assert text.count("Not measured.") == 2
    drawn = [name for name, _ in page._pictures(found)]
    assert drawn == ["2", "4", "5", "10"]
    assert all(f"(liao-{name}.png)" in text for name in drawn)
    assert "liao-7.png" not in text


@pytest.mark.parametrize("text", ["", "[1]", '{"made_from": 1'])
def test_scores_that_were_cut_are_made_again_or_named(text: str, tmp_path: Path) -> None:
    file = tmp_path / "learned-scores.json"
    file.write_text(text)
    assert not trees._is_made(file, "1")
    with pytest.raises(
        LabError, match=r"learned-scores.json: .*; remove it and run the command without --draw-only"
    ):
        trees.scores(tmp_path, "learned")
