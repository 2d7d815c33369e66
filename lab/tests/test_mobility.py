import importlib.util
import math
from itertools import pairwise
from pathlib import Path

import pytest

from crosslane_lab.cli import main
from crosslane_lab.mobility import own, sumo, trace
from crosslane_lab.mobility.city import City

TOWN = City(blocks=3, block_m=150, vehicles=40, minutes=4, seed=1)


@pytest.fixture(scope="module")
def trajectories() -> dict[int, list[trace.Point]]:
    return own.drive(TOWN)


def test_all_vehicles_drive_to_the_end_and_move(trajectories: dict[int, list[trace.Point]]) -> None:
    assert sorted(trajectories) == list(range(TOWN.vehicles))
    for trajectory in trajectories.values():
        assert trajectory[-1][0] == TOWN.duration_s
        driven_m = sum(math.dist(a[1:], b[1:]) for a, b in pairwise(trajectory))
        assert driven_m / (trajectory[-1][0] - trajectory[0][0]) > 2


def test_every_position_is_on_a_street_and_no_step_is_a_jump(trajectories: dict[int, list[trace.Point]]) -> None:
    def off_m(at: float) -> float:
        return abs(at - round(at / TOWN.block_m) * TOWN.block_m)

    for trajectory in trajectories.values():
        assert all(min(off_m(x), off_m(y)) <= own.LANE_M + 1e-9 for _, x, y in trajectory)
        assert all(-2 <= x <= 452 and -2 <= y <= 452 for _, x, y in trajectory)
        assert max(math.dist(a[1:], b[1:]) for a, b in pairwise(trajectory)) < own.SPEED_M_S + 8


def test_vehicles_in_one_lane_keep_their_distance(trajectories: dict[int, list[trace.Point]]) -> None:
    lanes: dict[tuple[float, int, float], list[float]] = {}
    for trajectory in trajectories.values():
        for (_, *before), (t_s, *at) in pairwise(trajectory):
            along = next((axis for axis in (0, 1) if before[1 - axis] == at[1 - axis]), None)
            if along is not None:
                lanes.setdefault((t_s, along, at[1 - along]), []).append(at[along])
    gaps = [b - a for positions in lanes.values() for a, b in pairwise(sorted(positions))]
    assert len(gaps) > 1000
    assert min(gaps) > 4.5


def test_a_red_light_stops_vehicles(trajectories: dict[int, list[trace.Point]]) -> None:
    standing = [
        sum(math.dist(a[1:], b[1:]) < 0.3 for a, b in pairwise(trajectory)) / len(trajectory)
        for trajectory in trajectories.values()
    ]
    assert 0.1 < sum(standing) / len(standing) < 0.6


def test_thinning_keeps_within_the_tolerance(trajectories: dict[int, list[trace.Point]]) -> None:
    trajectory = trajectories[7]
    kept = list(trace.thinned(trajectory))
    assert kept[0] == trajectory[0]
    assert kept[-1] == trajectory[-1]
    assert len(kept) < 0.8 * len(trajectory)
    for t_s, x, y in trajectory:
        after = next(i for i, point in enumerate(kept) if point[0] >= t_s)
        (t0, x0, y0), (t1, x1, y1) = kept[max(0, after - 1)], kept[after]
        share = (t_s - t0) / (t1 - t0) if t1 > t0 else 1.0
        assert math.dist((x, y), (x0 + share * (x1 - x0), y0 + share * (y1 - y0))) <= trace.TOLERANCE_M + 1e-9


def manhattan(out: Path, *more: str) -> list[str]:
    return ["mobility", "manhattan", "--vehicles", "5", "--minutes", "1", "--out", str(out), *more]


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / name for name in ("a.csv", "b.csv", "c.csv")]
    for file, seed in zip(files, ("3", "3", "4"), strict=True):
        assert main(manhattan(file, "--seed", seed)) == 0
    a, b, c = (file.read_text() for file in files)
    assert a == b
    assert a.split("\n", 1)[1] != c.split("\n", 1)[1]
    head = a.split("\n")[:2]
    assert head[0].startswith("# crosslane-lab: manhattan --vehicles 5 --minutes 1 --blocks 6")
    assert head[1] == "t_s,vehicle,x_m,y_m"
    assert capsys.readouterr().out.count("\n") == 3


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("--vehicles", "0", "--vehicles: 0 is outside 1 to 10000; choose"),
        ("--minutes", "-3", "--minutes: -3 is outside 0.1 to 120; choose"),
        ("--minutes", "nan", "--minutes: nan is outside 0.1 to 120; choose"),
        ("--blocks", "0", "--blocks: 0 is outside 1 to 100; choose"),
        ("--block-m", "5", "--block-m: 5 is outside 40 to 1000; choose"),
    ],
)
def test_values_outside_their_range_are_reported(
    option: str, value: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(manhattan(tmp_path / "out.csv", option, value)) == 2
    assert error in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()


def test_without_sumo_the_error_names_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(manhattan(tmp_path / "out.csv", "--engine", "sumo")) == 2
    assert "SUMO: it is not installed; pip install -e 'lab[sumo]'" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("sumo") is None, reason="SUMO is not installed")
def test_sumo_drives_the_same_town() -> None:
    trajectories = sumo.drive(City(blocks=2, block_m=100, vehicles=3, minutes=1, seed=1))
    assert sorted(trajectories) == [0, 1, 2]
    assert all(trajectory[-1][0] > 55 for trajectory in trajectories.values())
