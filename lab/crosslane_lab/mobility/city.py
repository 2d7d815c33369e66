"""A grid city: square blocks, streets in both directions with one lane each way, a crossing at every corner."""

import random
from dataclasses import dataclass

Crossing = tuple[int, int]
"""Column and row of a crossing, from 0."""


@dataclass(frozen=True)
class City:
    """What is to be driven, and by how many."""

    blocks: int
    block_m: float
    vehicles: int
    minutes: float
    seed: int

    @property
    def duration_s(self) -> float:
        """How long the vehicles drive (s)."""
        return self.minutes * 60

    @property
    def departures_s(self) -> list[float]:
        """When each vehicle begins: the first at once, the others over the first tenth."""
        last = max(1, self.vehicles - 1)
        return [number / last * self.duration_s / 10 for number in range(self.vehicles)]

    def way(self, vehicle: int, crossings: int) -> list[Crossing]:
        """A vehicle's way over so many crossings: half of the time straight on, never back."""
        chance = random.Random(f"{self.seed} {vehicle}")
        at = (chance.randint(0, self.blocks), chance.randint(0, self.blocks))
        way = [at, chance.choice(self._beside(at))]
        while len(way) < crossings:
            (x0, y0), (x, y) = way[-2:]
            ahead = (2 * x - x0, 2 * y - y0)
            ways = [other for other in self._beside((x, y)) if other != (x0, y0)]
            straight = ahead in ways and chance.random() < 0.5
            way.append(ahead if straight else chance.choice([w for w in ways if w != ahead] or ways))
        return way

    def _beside(self, at: Crossing) -> list[Crossing]:
        around = [(at[0] + dx, at[1] + dy) for dx, dy in ((1, 0), (0, 1), (-1, 0), (0, -1))]
        return [(x, y) for x, y in around if 0 <= x <= self.blocks and 0 <= y <= self.blocks]
