"""Vehicles in a grid city by a small built-in model, for machines without SUMO.

Car following is that of Krauß (1998): the highest allowed speed from which the vehicle can still stop behind the
one ahead. Traffic lights serve both axes in turn, turning vehicles slow down, and no vehicle enters a full street.
The trajectories are a function of the city and the seed.
"""

import math
from dataclasses import dataclass

from crosslane_lab.mobility.city import City, Crossing
from crosslane_lab.mobility.trace import Point

STEP_S = 0.5
SPEED_M_S = 50 / 3.6
TURNING_M_S = 5.0
ACCELERATION_M_S2 = 2.0
BRAKING_M_S2 = 3.0
REACTION_S = 1.0
SPACE_M = 7.5
"""Length of a standing vehicle and its distance to the next."""
LANE_M = 1.75
"""From the centre of the street to that of the lane, to the right."""
STOP_M = 8.0
"""From the stop line to the centre of the crossing."""
GREEN_S, CLEARING_S = 26.0, 4.0


@dataclass
class _Car:
    number: int
    route: list[Crossing]
    index: int = 0
    """Index of the last crossing."""
    s_m: float = STOP_M
    v_m_s: float = 0.0

    @property
    def street(self) -> tuple[Crossing, Crossing]:
        return self.route[self.index], self.route[self.index + 1]

    @property
    def next_street(self) -> tuple[Crossing, Crossing]:
        return self.route[self.index + 1], self.route[self.index + 2]

    @property
    def turns(self) -> bool:
        (x0, y0), (x1, y1) = self.street
        return self.route[self.index + 2] != (2 * x1 - x0, 2 * y1 - y0)


def drive(city: City) -> dict[int, list[Point]]:
    """The trajectories of all vehicles."""
    crossings = 3 + int(city.duration_s * SPEED_M_S / city.block_m)
    waiting = [_Car(number, city.route(number, crossings)) for number in range(city.vehicles)]
    departures = city.departures_s
    lanes: dict[tuple[Crossing, Crossing], list[_Car]] = {}
    trajectories: dict[int, list[Point]] = {}
    for step in range(int(city.duration_s / STEP_S) + 1):
        t_s = step * STEP_S
        waiting = [car for car in waiting if departures[car.number] > t_s or not _enter(lanes, car)]
        for street in sorted(lanes):
            _advance(city, lanes, street, t_s)
        if t_s == int(t_s):
            for cars in lanes.values():
                for car in cars:
                    trajectories.setdefault(car.number, []).append((t_s, *_position(city, car)))
    return trajectories


def _enter(lanes: dict[tuple[Crossing, Crossing], list[_Car]], car: _Car) -> bool:
    lane = lanes.setdefault(car.street, [])
    if lane and lane[-1].s_m < car.s_m + SPACE_M:
        return False
    lane.append(car)
    return True


def _advance(
    city: City, lanes: dict[tuple[Crossing, Crossing], list[_Car]], street: tuple[Crossing, Crossing], t_s: float
) -> None:
    """Move the cars of one lane, from the first to the last."""
    ahead: _Car | None = None
    for car in list(lanes[street]):
        limit = _safe(ahead.s_m - SPACE_M - car.s_m, ahead.v_m_s) if ahead else _at_crossing(city, lanes, car, t_s)
        car.v_m_s = max(0.0, min(car.v_m_s + ACCELERATION_M_S2 * STEP_S, SPEED_M_S, limit))
        car.s_m += car.v_m_s * STEP_S
        if ahead is None and car.s_m >= city.block_m:
            lanes[street].remove(car)
            car.s_m -= city.block_m
            car.index += 1
            lanes.setdefault(car.street, []).append(car)
        else:
            ahead = car


def _at_crossing(city: City, lanes: dict[tuple[Crossing, Crossing], list[_Car]], car: _Car, t_s: float) -> float:
    """The speed at which the first car of a lane may approach its crossing."""
    to_line = city.block_m - STOP_M - car.s_m
    beyond = lanes.get(car.next_street)
    full = bool(beyond) and beyond[-1].s_m < STOP_M + SPACE_M
    stops = (full or not _green(car, t_s)) and to_line > -1
    if stops and to_line >= car.v_m_s**2 / (2 * BRAKING_M_S2) - 2:
        return _safe(to_line, 0.0)
    return _safe(to_line + STOP_M, TURNING_M_S) if car.turns else SPEED_M_S


def _green(car: _Car, t_s: float) -> bool:
    """Neighbouring lights are offset: each column and row is a little later."""
    (x0, _), (x, y) = car.street
    phase = (t_s + 7 * x + 11 * y) % (2 * (GREEN_S + CLEARING_S))
    along_x = x0 != x
    return phase < GREEN_S if along_x else GREEN_S + CLEARING_S <= phase < 2 * GREEN_S + CLEARING_S


def _safe(distance_m: float, ahead_m_s: float) -> float:
    reach = BRAKING_M_S2 * REACTION_S
    under = reach**2 + ahead_m_s**2 + 2 * BRAKING_M_S2 * distance_m
    return math.sqrt(under) - reach if under > 0 else 0.0


def _position(city: City, car: _Car) -> tuple[float, float]:
    (x0, y0), (x1, y1) = car.street
    dx, dy = x1 - x0, y1 - y0
    return x0 * city.block_m + dx * car.s_m + dy * LANE_M, y0 * city.block_m + dy * car.s_m - dx * LANE_M
