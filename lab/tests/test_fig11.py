from pathlib import Path

import pytest
import synthetic
from synthetic import Drive, Plan

from crosslane_lab.errors import LabError
from crosslane_lab.figures import fig11_bytes
from crosslane_lab.papers import hapanchak
from crosslane_lab.runs.folder import RunFolder

CITY = Drive(
    name="manhattan",
    traffic="uploads",
    seeds=(1,),
    plans={"kernel": Plan(14.6, 0.9), "threshold": Plan(13.2, 0.1), "oracle": Plan(13.2, 0.1, decides=True)},
)


@pytest.fixture
def city(tmp_path: Path) -> Path:
    return synthetic.write(tmp_path / "city", CITY)


def test_total_bytes_are_also_a_share_of_the_oracles(city: Path) -> None:
    folder = RunFolder.open(city)
    assert fig11_bytes.skip_reason(folder) is None
    assert [row.total for row in fig11_bytes.rows(folder)] == [140e6, 140e6, 160e6]
    caption = fig11_bytes.caption(folder)
    assert "threshold 140\u00a0MB (87.5\u00a0% of the oracle's)" in caption
    assert caption.endswith("oracle 160\u00a0MB.")


def test_the_table_and_its_picture_are_made(city: Path, tmp_path: Path) -> None:
    lines = hapanchak.figure_11([RunFolder.open(city)] * 2, tmp_path / "fig11.png")
    assert (tmp_path / "fig11.png").read_bytes().startswith(b"\x89PNG")
    assert lines[0] == "![Total transferred bytes](fig11.png)"
    assert lines[4].startswith("| 1 roadside unit | kernel | 40 | 100 | 140 | 87.5\u00a0% | 321 | ")
    assert len(lines) == 2 + 2 + 2 * 3


def test_a_drive_of_messages_has_no_figure_11(left: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"this drive uploads no files; simulate scenarios/manhattan\.toml"):
        hapanchak.figure_11([left], tmp_path / "fig11.png")
