"""The mobility file: `t_s,vehicle,x_m,y_m` (docs/formats.md), without the points that a straight line gives."""

from collections.abc import Iterator, Mapping
from pathlib import Path

Point = tuple[float, float, float]
"""Time (s) and position (m, m)."""

TOLERANCE_M = 0.5
"""A point this near to where the straight line between its neighbours has the vehicle at its time is left out."""
_LONGEST = 120
"""Points that one line may stand for."""


def write(out: Path, ways: Mapping[int, list[Point]], made_by: str) -> None:
    """Write the ways of the vehicles, by number."""
    with out.open("w", encoding="ascii") as file:
        file.write(f"# {made_by}\nt_s,vehicle,x_m,y_m\n")
        for vehicle in sorted(ways):
            for t_s, x_m, y_m in thinned(ways[vehicle]):
                file.write(f"{t_s:g},{vehicle},{x_m:.1f},{y_m:.1f}\n")


def thinned(way: list[Point]) -> Iterator[Point]:
    """The points that are needed to come within the tolerance of all."""
    begin = 0
    while begin < len(way):
        yield way[begin]
        end = begin + 1
        while end + 1 < len(way) and end - begin < _LONGEST and _is_straight(way, begin, end + 1):
            end += 1
        begin = end


def _is_straight(way: list[Point], begin: int, end: int) -> bool:
    (t0, x0, y0), (t1, x1, y1) = way[begin], way[end]
    for t, x, y in way[begin + 1 : end]:
        share = (t - t0) / (t1 - t0)
        off = (x0 + share * (x1 - x0) - x, y0 + share * (y1 - y0) - y)
        if off[0] ** 2 + off[1] ** 2 > TOLERANCE_M**2:
            return False
    return True
