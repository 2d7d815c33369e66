from itertools import groupby
from pathlib import Path

import pytest

from crosslane_lab.cli import main
from crosslane_lab.papers.nota import traces as nota

PROJECT = Path(__file__).parents[2]
PAYLOAD = 1424 / 1500
"""Of a full MPTCP packet."""
ROADS = {road.name: road for road in nota.ROADS}


def both(road: nota.Road) -> tuple[list[float], list[float]]:
    return nota.rates(road, road.a), nota.rates(road, road.b)


def infeasible_objects(road: nota.Road, deadline_s: int) -> int:
    """The number of objects of 100 MB, one per minute, that both paths together cannot deliver in time."""
    totals_mb = [PAYLOAD * (a + b) / 8 for a, b in zip(*both(road), strict=True)]
    return sum(sum(totals_mb[t : t + deadline_s]) < 100 for t in range(0, road.duration_s, 60))


@pytest.mark.parametrize(("name", "share"), [("highway", 0.38), ("rural", 0.22), ("city", 0.78)])
def test_the_preferred_path_suffices_for_the_described_share_of_time(name: str, share: float) -> None:
    rates, _ = both(ROADS[name])
    assert sum(rate >= nota.NEEDED_MBIT_S for rate in rates) / len(rates) == pytest.approx(share, abs=0.003)
    with_headers = nota.NEEDED_MBIT_S / PAYLOAD
    assert sum(rate >= with_headers for rate in rates) / len(rates) == pytest.approx(share, abs=0.003)


@pytest.mark.parametrize(
    ("name", "duration_s", "peak_a", "peak_b"),
    [("highway", 480, 22.5, 45), ("rural", 780, 24, 45), ("city", 600, 50, 50)],
)
def test_drives_last_and_peak_as_described(name: str, duration_s: int, peak_a: float, peak_b: float) -> None:
    a, b = both(ROADS[name])
    assert (len(a), len(b)) == (duration_s, duration_s)
    assert (max(a), max(b)) == (peak_a, peak_b)


def test_the_highway_has_a_hole_in_which_both_paths_cannot_deliver_an_object() -> None:
    road = ROADS["highway"]
    hole = [sum(pair) for pair in zip(*both(road), strict=True)][360:420]
    assert PAYLOAD * sum(hole) / 8 < 90
    assert infeasible_objects(road, 60) == 1


@pytest.mark.parametrize(("name", "missed"), [("highway", (1, 1, 2)), ("rural", (4, 7, 9)), ("city", (0, 0, 0))])
def test_the_number_of_infeasible_objects_is_that_of_mptcps_misses_in_the_thesis(
    name: str, missed: tuple[int, ...]
) -> None:
    assert tuple(infeasible_objects(ROADS[name], deadline_s) for deadline_s in (60, 50, 40)) == missed


def test_the_country_has_dead_zones_of_the_preferred_operator() -> None:
    rates, _ = both(ROADS["rural"])
    zones = [len(list(seconds)) for dead, seconds in groupby(rates, lambda rate: rate == 0) if dead]
    assert sum(zone >= 8 for zone in zones) >= 3
    assert max(zones) >= 15


def test_the_operators_of_the_city_are_each_ahead_at_times() -> None:
    ahead = [a > b for a, b in zip(*both(ROADS["city"]), strict=True)]
    assert 0.3 < sum(ahead) / len(ahead) < 0.75


def test_the_triangle_is_lowest_at_the_start_and_in_the_middle_of_the_minute() -> None:
    rates = [nota.triangle(second) for second in range(1, 62)]
    assert max(rates) == 14
    assert [second for second, rate in enumerate(rates) if rate == min(rates)] == [0, 30, 60]


def test_the_jitter_is_20_ms_about_50() -> None:
    for path in ("a", "b"):
        delays = nota.delays(path)
        assert 30 <= min(delays) < 31
        assert 69 < max(delays) <= 70
        assert sum(delays) / len(delays) == pytest.approx(50, abs=1)
    assert nota.delays("a") != nota.delays("b")


def test_the_shipped_files_are_what_the_command_writes(tmp_path: Path) -> None:
    assert main(["traces", "nota", "--out", str(tmp_path)]) == 0
    written = sorted(tmp_path.iterdir())
    assert len(written) == 9
    for file in written:
        assert file.read_bytes() == (PROJECT / "data" / file.name).read_bytes(), file.name
        assert file.stat().st_size < 10_000
