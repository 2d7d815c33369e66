"""Trees with the answer that no order is needed, and what of the labels is chance."""

import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from synthetic import write_runs
from test_learn import made, needs_extra

from crosslane_lab.errors import LabError
from crosslane_lab.learn import collect, gains, harm, refit, repeat, tree
from crosslane_lab.learn.places import draw


@needs_extra
def test_an_order_applies_only_where_it_brings_more_than_none() -> None:
    """Wi-Fi first wins above −70 dBm, and the cellular path first never: no order brings as much."""
    frame = made(20)
    found = gains.nodes(gains.rows(frame), 4)
    assert {node["a_first"] for node in found if "a_first" in node} == {0.0, 0.5, 1.0}
    rows = gains.rows(frame)
    best, none = rows.gains.argmax(axis=1), rows.gains.max(axis=1) <= 0
    right = [
        _said(found, rows.features, row) == (gains.NEITHER if is_none else gains.LEAVES[choice])
        for row, choice, is_none in zip(rows.x, best, none, strict=True)
    ]
    assert np.mean(right) > 0.95
    worse = frame.with_columns(
        goodput_mbit_s=pl.when(pl.col("prio") == "NO").then(30.0).otherwise(pl.col("goodput_mbit_s"))
    )
    assert gains.nodes(gains.rows(worse), 4) == [{"a_first": 0.5}], "where none is best, no order applies anywhere"
    with pytest.raises(LabError, match="none has the outcome of every choice"):
        gains.rows(collect.orders(frame))


@needs_extra
def test_a_path_is_alone_where_that_is_best() -> None:
    """Wi-Fi alone carries 30 Mbit/s where Wi-Fi first carries 20."""
    better = (pl.col("prio") == "WO") & (pl.col("wifi_signal_dbm") > -70)
    frame = made(20).with_columns(goodput_mbit_s=pl.when(better).then(30.0).otherwise(pl.col("goodput_mbit_s")))
    rows = gains.rows(frame)
    found = gains.nodes(rows, 4)
    half = len(rows.x) // 2
    asked = {True: rows.x[:half], False: rows.x[half:]}
    for is_wifi_a, x in asked.items():
        won = rows.gains[:half].max(axis=1) > 0
        said = [_said(found, rows.features, row) for row in x[won]]
        leaf = {"a_first": float(is_wifi_a), "alone": True}
        assert np.mean([each == leaf for each in said]) > 0.9, is_wifi_a


def test_what_a_drive_loses_counts_more_than_what_another_wins() -> None:
    """Wi-Fi alone wins 5 % in 90 drives, and loses in 10."""
    for loss, leaf in ((-0.02, {"a_first": 1.0, "alone": True}), (-0.2, gains.NEITHER)):
        won = np.full((100, 4), -0.5)
        won[:, 2] = [0.05] * 90 + [loss] * 10
        assert won[:, 2].mean() > 2 * won[:, 2].std() / 10, "by the mean alone it applies"
        assert gains._best(won, np.arange(100)) == leaf


def _said(nodes: list[tree.Node], features: list[str], row: tree.Values) -> tree.Node:
    node = nodes[0]
    while "feature" in node:
        node = nodes[node["yes" if row[features.index(node["feature"])] <= node["at_most"] else "no"]]
    return node


def test_what_differs_between_two_runs_of_a_drive_is_chance() -> None:
    one = made(2)
    assert repeat.agreement(one, one) == 1
    other = one.with_columns(goodput_mbit_s=16.0 - pl.col("goodput_mbit_s"))
    assert repeat.agreement(one, other) == 0
    assert [repeat.greatest_accuracy(same) for same in (1.0, 0.5, 0.4, 0.82)] == pytest.approx([1, 0.5, 0.5, 0.9])
    found = repeat.goodputs(one, one)
    assert found.select("best", "repeated").equals(found.select(best="chosen", repeated=pl.lit(1.0)))
    crossed = repeat.goodputs(one, other)
    assert (crossed["chosen"] < crossed["best"]).all(), "the worse order is chosen, the better one is the bound"


def test_a_repeated_case_is_the_same_drive_with_longer_delays() -> None:
    [case, *_] = collect.cases(draw(1, 1))
    for number, ending in ((1, "repeated"), (3, "repeated3")):
        [again] = repeat.again([case], number)
        assert again.name == f"{case.name}-{ending}"
        one, other = (tomllib.loads(each.scenario("priority", {})) for each in (case, again))
        for path in ("wifi", "cellular"):
            before, after = one[path][0].pop("delay_ms"), other[path][0].pop("delay_ms")
            assert after == pytest.approx(before + number * repeat.LATER_MS)
        assert one == other


def test_harm_is_the_ratio_of_the_means_of_all_runs_with_its_error() -> None:
    row = {"drive": 1, "kind": "city", "traffic": "bulk-up", "buffer_kb": 64}
    goodputs = {"minrtt": (6.0, 2.0), "without-trials": (4.0, 6.0), "with-trials": (3.0, 3.0)}
    rows = [
        {**row, "by": by, "goodput_mbit_s": goodput, "withdrawn": by == "with-trials" and run == 0}
        for by, each in goodputs.items()
        for run, goodput in enumerate(each)
    ]
    [found] = harm.ratios(pl.DataFrame(rows)).rows(named=True)
    assert found["ratio_without-trials"] == 1.25, "not the mean of the ratios of the runs, which is 1.83"
    assert found["error_with-trials"] == pytest.approx(0.75 * 0.5), "that of MinRTT alone: 2 of 4"
    assert found["withdrawn_with-trials"] == 0.5
    lines = list(harm.page(harm.ratios(pl.DataFrame(rows))))
    assert "| all |  | 1.25 | 1.25 | 0 of 1 | 0.75 | 0.75 | 1 of 1 | 50.0% |" in lines


def test_a_run_that_delivered_nothing_counts_as_harm_and_is_no_reference(tmp_path: Path) -> None:
    cases = collect.cases(draw(1, 2), ["bulk-up"])[::2]
    for case, tree_goodput, minrtt in ((cases[0], None, 4.0), (cases[1], 3.0, None)):
        write_runs(tmp_path / f"{case.name}-harm", {harm.WITHOUT: tree_goodput, harm.WITH: 2.0})
        write_runs(tmp_path / f"{case.name}-harm-minrtt", {"threshold": minrtt})
    found = harm.ratios(harm.outcomes(tmp_path, [cases, cases]))
    assert found["ratio_without-trials"].to_list() == [0.0, None]
    assert found["error_without-trials"].to_list() == [0.0, None]
    lines = list(harm.page(found))
    assert "| all |  | 0.00 | 0.00 | 1 of 1 | 0.50 | 0.50 | 1 of 1 | 0.0% |" in lines
    assert "| all |  | – | – | 0 of 0 | – | – | 0 of 0 | 0.0% |" in list(harm.page(found.tail(1)))


def test_drives_without_goodput_are_compared_as_far_as_there_is_a_reference(tmp_path: Path) -> None:
    drives = draw(2, 2)
    for drive, user, minrtt in ((drives[0], None, 4.0), (drives[1], 2.0, None)):
        for size in refit.BUFFERS_KB:
            trees = {"user": user, "fitted": 3.0, "fitted-trials": None}
            write_runs(tmp_path / refit.name(drive, f"{size}-trees"), trees)
            write_runs(tmp_path / refit.name(drive, f"{size}-minrtt"), {"threshold": minrtt})
    lines = list(refit.page(tmp_path, drives))
    assert "| `fitted` | 3.00 | 0.75 | 0.75 | 1 | 1.50 |" in lines
    assert "| `fitted-trials` | 0.00 | 0.00 | 0.00 | 1 | 0.00 |" in lines
    nothing = list(refit.page(tmp_path, drives[1:]))
    assert "| `fitted` | 3.00 | – | – | 0 | 1.50 |" in nothing
