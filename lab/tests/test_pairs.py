import sys
import tomllib
from pathlib import Path

import polars as pl
import pytest
from synthetic import write_runs

from crosslane_lab import cli
from crosslane_lab.pairs import page as pairs_page
from crosslane_lab.pairs.draw import TRAFFIC, Lot
from crosslane_lab.papers.frame import Results

LOT = Lot(seed=1, count=20, paths=2, duration_s=20)


def test_a_seed_draws_the_same_paths_each_time_and_another_seed_others() -> None:
    assert LOT.draws() == LOT.draws() != Lot(2, 20, 2, 20).draws()
    assert Lot(1, 5, 2, 20).draws() == LOT.draws()[:5]
    for paths in Lot(7, 50, 3, 20).draws():
        assert len(paths) == 3
        for path in paths:
            assert 2 <= path.rate <= 200
            assert 2 <= path.delay <= 80
            assert 0 <= path.loss <= 0.02
            assert 0 <= path.jitter <= 20


def test_a_plan_has_each_path_alone_and_of_a_triple_each_pair() -> None:
    plan = list(Lot(1, 2, 3, 20).plan())
    assert len(plan) == 2 * len(TRAFFIC) * 4
    assert [each.name for each in plan[:4]] == [
        f"triples-1/bulk-cubic/0/{paths}" for paths in ("abc", "ab", "ac", "bc")
    ]
    for each in plan:
        found = tomllib.loads(each.scenario)
        singles = {f"single-{path['name']}" for path in found["cellular"]}
        assert {strategy["name"] for strategy in found["strategy"]} == singles
        assert singles <= set(each.strategies) or each.strategies == ("tunnel",)


def rows(traffic: str, values: dict[str, float], paths: str = "ab") -> list[dict[str, object]]:
    return [
        {
            "lot": "pairs-1",
            "traffic": traffic,
            "draw": 0,
            "paths": paths,
            "strategy": strategy,
            "goodput_mbit_s": value,
            "p99_ms": value,
        }
        for strategy, value in values.items()
    ]


def values(frame: pl.DataFrame, column: str = "value") -> dict[str, float]:
    return dict(frame.select("strategy", pl.col(column).round(3)).rows())


def test_a_strategy_is_compared_with_the_better_path_and_the_kernel() -> None:
    singles = {"single-a": 10.0, "single-b": 40.0}
    bulk = pairs_page.compared(pl.DataFrame(rows("bulk-cubic", singles | {"kernel": 44.0, "tunnel": 38.12})))
    assert values(bulk) == {"kernel": 1.1, "tunnel": 1.0}
    assert values(bulk, "of_kernel") == {"kernel": 1.0, "tunnel": 0.909}
    messages = pairs_page.compared(pl.DataFrame(rows("messages", singles | {"kernel": 15.0, "tunnel": 18.0})))
    assert values(messages) == {"kernel": 5.0, "tunnel": 8.0}


def test_a_triple_is_compared_also_with_the_best_pair_of_it() -> None:
    whole = rows("bulk-bbr", {"single-a": 10.0, "single-b": 40.0, "kernel": 40.0, "tunnel": 76.24}, "abc")
    parts = rows("bulk-bbr", {"tunnel": 38.12}, "ab") + rows("bulk-bbr", {"tunnel": 19.06}, "bc")
    found = pairs_page.compared(pl.DataFrame(whole + parts))
    assert values(found) == {"kernel": 1.0, "tunnel": 2.0, "tunnel-pair": 1.0}


def test_a_run_that_delivered_nothing_is_the_worst_and_no_pair(tmp_path: Path) -> None:
    given = pl.DataFrame(rows("bulk-cubic", {"single-a": 10.0, "single-b": 40.0, "kernel": 44.0, "tunnel": 38.12}))
    silent = pl.when(pl.col("strategy") != "tunnel")
    lost = given.with_columns(goodput_mbit_s=silent.then("goodput_mbit_s"), p99_ms=silent.then("p99_ms"))
    assert values(pairs_page.compared(lost)) == {"kernel": 1.1, "tunnel": 0.0}
    late = lost.with_columns(traffic=pl.lit("messages"))
    assert values(pairs_page.compared(late)) == {"kernel": 34.0, "tunnel": float("inf")}
    nothing = given.with_columns(goodput_mbit_s=pl.lit(None, pl.Float64))
    assert pairs_page.compared(nothing).is_empty()
    write_runs(tmp_path / "pairs-1" / "bulk-cubic" / "0" / "ab", {"kernel": None})
    assert pairs_page.rows(Results(tmp_path, ("pairs-1/bulk-cubic/0/ab",)))["goodput_mbit_s"].to_list() == [None]


def test_of_equally_bad_draws_the_first_is_listed_first() -> None:
    lot = Lot(1, 30, 2, 20)
    strategies = {"single-a": 10.0, "single-b": 40.0, "kernel": 44.0, "tunnel": 30.0}
    for traffic in ("bulk-cubic", "messages"):
        draws = [row | {"draw": draw} for draw in range(30) for row in rows(traffic, strategies)]
        frame = pairs_page.compared(pl.DataFrame(draws).sample(fraction=1, shuffle=True, seed=1))
        lines = list(pairs_page._worst(frame, traffic, lot))[2:]
        assert [line.split(" ")[1] for line in lines] == [f"{draw}" for draw in range(10)]


def test_the_page_has_a_distribution_and_the_worst_of_each_kind_of_traffic() -> None:
    lot = Lot(1, 1, 2, 20)
    strategies = {"single-a": 10.0, "single-b": 40.0, "kernel": 44.0, "tunnel": 30.0, "tunnel-redundant": 20.0}
    frame = pl.DataFrame([row for traffic in TRAFFIC for row in rows(traffic, strategies)])
    text = "\n".join(pairs_page.page(frame, [lot]))
    assert text.count("\n## ") == len(TRAFFIC)
    assert "| `tunnel-redundant` | 1 | 0.52 |" in text
    assert text.count(lot.draws()[0][0].words) == len(TRAFFIC)


def test_the_first_draws_are_driven_and_compared_with_the_simulated_ones() -> None:
    plan = list(LOT.drives(2))
    assert [each.name for each in plan[:2]] == ["driven-pairs-1/bulk-cubic/0/ab", "driven-pairs-1/bulk-cubic/1/ab"]
    assert {each.engine for each in plan} == {"kernel"}
    assert len(plan) == 2 * len(TRAFFIC)
    simulated = rows("bulk-cubic", {"single-a": 10.0, "tunnel": 30.0})
    driven = [row | {"lot": LOT.driven_name} for row in rows("bulk-cubic", {"single-a": 11.5, "tunnel": 27.9})]
    frame = pl.DataFrame(simulated + driven)
    assert values(pairs_page.agreement(frame, LOT), "ratio") == {"single-a": 1.15, "tunnel": 0.93}
    text = "\n".join(pairs_page._driven(frame, LOT))
    assert "| bulk-cubic | `single-a` | 1 | 1.15 | 1.15 | 1.15 | 0 |" in text
    assert "| bulk-cubic | `tunnel` | 1 | 0.93 | 0.93 | 0.93 | 1 |" in text


def test_nothing_to_draw_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for wrong in (["--count", "0"], ["--drive", "-1"]):
        assert cli.main(["tunnel-pairs", *wrong, "--runs", str(tmp_path)]) == 2
        assert "at least 1" in capsys.readouterr().err


PROGRAM = """
import json, pathlib, sys
if sys.argv[1] != "--version":
    given = dict(zip(sys.argv[3::2], sys.argv[4::2]))
    names, out = given["--strategy"].split(","), pathlib.Path(given["--out"])
    metrics = {"goodput_mbit_s": 8.0, "delivery_delay_ms.p99": 9.0}
    runs = [{"strategy": name, "seed": 1, "valid": True, "metrics": metrics} for name in names]
    summary = {"schema": 1, "scenario": "x", "engine": "simulator", "duration_s": 20.0, "seeds": [1]}
    out.mkdir(parents=True)
    (out / "summary.json").write_text(json.dumps(summary | {"strategies": names, "runs": runs}))
    (out / "versions.json").write_text(json.dumps({"crosslane": "0.1.0+1a"}))
"""


def test_the_page_names_the_program_that_made_its_runs(tmp_path: Path) -> None:
    program = tmp_path / "crosslane"
    program.write_text(f"#!{sys.executable}{PROGRAM}")
    program.chmod(0o755)
    places = ["--runs", str(tmp_path / "runs"), "--program", str(program)]
    assert cli.main(["tunnel-pairs", "--count", "1", "--jobs", "1", *places]) == 0
    text = (tmp_path / "runs" / "tunnel-pairs.md").read_text()
    assert text.endswith("|\n\nMade by crosslane 0.1.0+1a.\n")
