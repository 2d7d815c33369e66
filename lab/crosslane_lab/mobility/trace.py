"""The mobility file: `t_s,vehicle,x_m,y_m` (docs/reference/scenario.md), without interpolated points."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from crosslane_lab.output import write_file

Point = tuple[float, float, float]
"""Time (s) and position (m, m)."""

TOLERANCE_M = 0.5
"""A point is omitted if linear interpolation between its neighbours is at most this far off."""
_MAX_POINTS = 120
"""Maximum number of points on one line."""


def write(out: Path, trajectories: Mapping[int, list[Point]], made_by: str) -> None:
    """Write the trajectories of the vehicles, in order of their numbers."""
    points = ((vehicle, point) for vehicle in sorted(trajectories) for point in thinned(trajectories[vehicle]))
    rows = [f"{t_s:g},{vehicle},{x_m:.1f},{y_m:.1f}\n" for vehicle, (t_s, x_m, y_m) in points]
    write_file(out, f"# {made_by}\nt_s,vehicle,x_m,y_m\n" + "".join(rows))


def thinned(trajectory: list[Point]) -> Iterator[Point]:
    """The points needed to be within the tolerance of all points."""
    begin = 0
    while begin < len(trajectory):
        yield trajectory[begin]
        end = begin + 1
        while end + 1 < len(trajectory) and end - begin < _MAX_POINTS and _is_straight(trajectory, begin, end + 1):
            end += 1
        begin = end


def _is_straight(trajectory: list[Point], begin: int, end: int) -> bool:
    (t0, x0, y0), (t1, x1, y1) = trajectory[begin], trajectory[end]
    for t, x, y in trajectory[begin + 1 : end]:
        share = (t - t0) / (t1 - t0)
        off = (x0 + share * (x1 - x0) - x, y0 + share * (y1 - y0) - y)
        if off[0] ** 2 + off[1] ** 2 > TOLERANCE_M**2:
            return False
    return True
