"""Wrong and damaged input of `crosslane-lab learn`."""

from pathlib import Path

import polars as pl
import pytest
from test_learn import made

from crosslane_lab import cli
from crosslane_lab.errors import LabError
from crosslane_lab.learn import collect, tree


def wrong(column: str) -> pl.DataFrame:
    """Windows with text in a column."""
    return made(1).with_columns(pl.lit("many").alias(column))


@pytest.mark.parametrize(
    ("frame", "cause"),
    [
        (wrong("wifi_rtt_ms"), "w.parquet: `wifi_rtt_ms` is String, not numbers; make it with"),
        (wrong("goodput_mbit_s"), "w.parquet: `goodput_mbit_s` is String, not numbers; make it with"),
        (made(1).with_columns(prio=1), "w.parquet: `prio` is Int32, not text; make it with"),
        (made(1).drop("wifi"), "w.parquet: the column wifi is missing; make it with"),
    ],
)
@pytest.mark.parametrize("part", ["analyse", "train"])
def test_a_table_with_other_columns_is_no_data(
    part: str, frame: pl.DataFrame, cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame.write_parquet(tmp_path / "w.parquet")
    assert cli.main(["learn", part, str(tmp_path / "w.parquet"), "--out", str(tmp_path / "out")]) == 2
    assert cause in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "cause"),
    [(b"\xff\x00", "not a tree ("), (b"[]", "it has no list of `nodes`"), (None, "No such file or directory")],
)
def test_a_file_that_is_no_tree_is_named(
    content: bytes | None, cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.json"
    if content is not None:
        file.write_bytes(content)
    places = ["--runs", str(tmp_path)]
    assert cli.main(["learn", "harm", "--learned", str(file), *places]) == 2
    assert cli.main(["learn", "bound", "--learned", str(file), "--smartps", str(file), *places]) == 2
    for line in capsys.readouterr().err.splitlines():
        assert line.startswith(f"crosslane-lab: while reading {file}: ")
        assert cause in line


def test_a_tree_is_not_compared_on_the_drives_that_it_was_trained_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, places = tmp_path / "t.json", ["--seed", "7", "--runs", str(tmp_path)]
    trained = collect.provenance(made(2).with_columns(seed=pl.lit(7)))
    assert trained["seeds"] == [7]
    file.write_text(tree.text("learned", [{"a_first": 0.5}], trained))
    commands = (["harm"], ["bound", "--smartps", str(file)])
    for command in commands:
        assert cli.main(["learn", *command, "--learned", str(file), *places]) == 2
        assert f"{file}: it was trained on the drives of seed 7, on which" in capsys.readouterr().err
    assert cli.main(["learn", "refit", "--seed", "2", "--out", str(tmp_path)]) == 2
    assert "seed 2 draws the drives on which trees are compared; give another --seed" in capsys.readouterr().err
    assert "seeds" not in collect.provenance(made(2)), "a recording that was imported, or earlier data"


def test_a_record_of_windows_that_is_damaged_is_named_with_the_folder_to_remove(tmp_path: Path) -> None:
    run = tmp_path / "case" / "runs" / "wifi-first-1"
    run.mkdir(parents=True)
    (run / "windows.arrow").write_bytes(b"ARROW1" + bytes(200) + b"ARROW1")
    with pytest.raises(LabError, match=f"windows.arrow: .*; remove {tmp_path / 'case'} and make its runs again"):
        collect.windows(run)
