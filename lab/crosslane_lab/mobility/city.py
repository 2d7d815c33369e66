"""A grid city: square blocks, streets in both directions with one lane each, a crossing at every corner."""

import random
from dataclasses import dataclass

Crossing = tuple[int, int]
"""Column and row of a crossing, from 0."""


@dataclass(frozen=True)
class City:
    """The city and its vehicles."""

    blocks: int
    block_m: float
    vehicles: int
    minutes: float
    seed: int

    @property
    def duration_s(self) -> float:
        """Duration of the drive (s)."""
        return self.minutes * 60

    @property
    def departures_s(self) -> list[float]:
        """Start time of each vehicle: the first at 0 s, the others in the first tenth of the duration."""
        last = max(1, self.vehicles - 1)
        return [vehicle / last * self.duration_s / 10 for vehicle in range(self.vehicles)]

    def route(self, vehicle: int, crossings: int) -> list[Crossing]:
        """The route of a vehicle over this number of crossings: half of the time straight on, never back."""
        chance = random.Random(f"{self.seed} {vehicle}")
        at = (chance.randint(0, self.blocks), chance.randint(0, self.blocks))
        route = [at, chance.choice(self._neighbours(at))]
        while len(route) < crossings:
            (x0, y0), (x, y) = route[-2:]
            ahead = (2 * x - x0, 2 * y - y0)
            next_crossings = [other for other in self._neighbours((x, y)) if other != (x0, y0)]
            straight = ahead in next_crossings and chance.random() < 0.5
            route.append(
                ahead if straight else chance.choice([c for c in next_crossings if c != ahead] or next_crossings)
            )
        return route

    def _neighbours(self, at: Crossing) -> list[Crossing]:
        neighbours = [(at[0] + dx, at[1] + dy) for dx, dy in ((1, 0), (0, 1), (-1, 0), (0, -1))]
        return [(x, y) for x, y in neighbours if 0 <= x <= self.blocks and 0 <= y <= self.blocks]
