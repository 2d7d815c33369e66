"""Synthetic roads of Nota 2020: its recordings are not published, only described (chapters 5.5 and 6.7).

A rate is an AR(1) process with offsets in the intervals that the text names. It is then mapped by rank to the
described distribution, so that the shares of time are exact for every seed. The seeds were chosen so that the
number of objects of 100 MB that both paths together cannot deliver in time is that of the text.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

STEP_S = 1
"""The thesis changed the rates of its links once a second."""

NEEDED_MBIT_S = 100 * 8 / 60
"""The rate that delivers 100 MB in 60 s: from this rate a path "alone suffices"."""

TRIANGLE_FROM_S = 1
"""Start of the first object."""

Knot = tuple[float, float]
"""Share of the time, and the rate (Mbit/s) not exceeded in it."""
Offset = tuple[int, int, float]
"""Start and end (s), and the offset of the AR(1) process in standard deviations."""


@dataclass(frozen=True)
class PathProfile:
    """One path along a road."""

    operator: str
    knots: tuple[Knot, ...]
    offsets: tuple[Offset, ...] = ()
    memory_s: float = 15


@dataclass(frozen=True)
class Road:
    """A place of chapter 6.7: `a` is the preferred path (O2), `b` the other (Telekom)."""

    name: str
    duration_s: int
    seed: int
    a: PathProfile
    b: PathProfile
    description: str


ROADS = (
    Road(
        name="highway",
        duration_s=480,
        seed=49,
        a=PathProfile("O2", ((0, 0.3), (0.25, 4), (0.62, 12.8), (0.62, 14.2), (1, 22.5)), ((360, 420, -3),)),
        b=PathProfile("Telekom", ((0, 0.5), (0.97, 40), (1, 45)), ((360, 420, -3),)),
        description="O2 suffices 38 % of the time; Telekom about twice as fast, uniform up to 40, "
        "peaks of 45 Mbit/s; a hole at 360 to 420 s",
    ),
    Road(
        name="rural",
        duration_s=780,
        seed=116,
        a=PathProfile(
            "O2",
            ((0, 0), (0.08, 0), (0.08, 0.1), (0.58, 2.5), (0.78, 12.8), (0.78, 14.2), (1, 24)),
            ((140, 155, -4), (340, 360, -4), (618, 633, -4)),
        ),
        b=PathProfile("Telekom", ((0, 0.02), (0.22, 2), (0.42, 9), (0.85, 22), (1, 45))),
        description="O2 suffices 22 % of the time, is mostly very slow and not there at all in dead zones; "
        "Telekom mostly about 20 Mbit/s, at times only dozens of kbit/s",
    ),
    Road(
        name="city",
        duration_s=600,
        seed=417,
        a=PathProfile("O2", ((0, 2), (0.22, 12.8), (0.22, 14.2), (0.4, 22), (0.75, 28), (0.97, 42), (1, 50))),
        b=PathProfile("Telekom", ((0, 1), (0.5, 8), (0.6, 22), (0.95, 42), (1, 50))),
        description="O2 suffices 78 % of the time, mostly about 25; Telekom is slow or fast; "
        "both peak at 50 Mbit/s",
    ),
)


def rates(road: Road, profile: PathProfile) -> list[float]:
    """The rate of each second, in Mbit/s."""
    process = _ar1(random.Random(f"{road.name} {profile.operator} {road.seed}"), road.duration_s, profile)
    order = sorted(range(len(process)), key=process.__getitem__)
    found = [0.0] * len(process)
    for rank, second in enumerate(order):
        found[second] = round(_at(profile.knots, rank / (len(order) - 1)), 2)
    return found


def triangle(second: int) -> float:
    """Rate (Mbit/s) of the preferred path of chapter 6.6, lowest at the start and in the middle of a minute.

    The text gives the peak. The lowest rate is the one at which both paths just deliver 1 MB in 0.8 s, and with
    which MPTCP sends the published 40 % over the other path.
    """
    low, peak, period = 5.0, 14.0, 30
    after = (second - TRIANGLE_FROM_S) % period
    rising = after if after <= period / 2 else period - after
    return low if second < TRIANGLE_FROM_S else low + (peak - low) * rising / (period / 2)


def delays(path: str) -> list[float]:
    """One-way delays of 50 ms with 20 ms of jitter, with a new value every 100 ms, without reordering."""
    chance = random.Random(f"jitter {path}")
    return [round(50 + 20 * (2 * chance.random() - 1), 1) for _ in range(640)]


def _ar1(chance: random.Random, steps: int, profile: PathProfile) -> list[float]:
    """An AR(1) process of unit variance, with offsets."""
    keep = 1 - STEP_S / profile.memory_s
    fresh = (1 - keep**2) ** 0.5
    level, levels = _normal(chance), []
    for second in range(steps):
        level = keep * level + fresh * _normal(chance)
        levels.append(level + sum(by for begin, end, by in profile.offsets if begin <= second < end))
    return levels


def _normal(chance: random.Random) -> float:
    """Approximately normal, and identical on every machine."""
    return sum(chance.random() for _ in range(12)) - 6


def _at(knots: Sequence[Knot], share: float) -> float:
    """The rate not exceeded in this share of the time; at a step, the rate above it."""
    for (s0, r0), (s1, r1) in reversed(list(pairwise(knots))):
        if s0 <= share and s1 > s0:
            return r0 + (r1 - r0) * (share - s0) / (s1 - s0)
    return knots[0][1]
