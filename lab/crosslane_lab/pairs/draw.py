"""Draws of paths at random, and their scenarios: a seed gives the same paths on every machine.

Each path has a rate of 2 to 200 Mbit/s (uniform in its logarithm) and a one-way delay of 2 to 80 ms. Half of the
paths lose packets, up to 2 % of them; a quarter have jitter that reorders, up to 20 ms.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from random import Random

from crosslane_lab.runs.runner import Comparison

TRAFFIC = {
    "bulk-cubic": ("cubic", 'kind = "bulk"'),
    "bulk-bbr": ("bbr", 'kind = "bulk"'),
    "messages": ("cubic", 'kind = "messages"\nsize_bytes = 1250\nevery_ms = 10'),
}
"""Kinds of traffic, with the congestion control; the messages are 1 Mbit/s."""

MULTIPATH = ("kernel", "tunnel", "tunnel-redundant")
DRIVEN = ("kernel", "tunnel")
"""The strategies that are also driven, beside each path alone."""
NAMES = "abc"

_TEMPLATE = """\
# Draw {number} of seed {seed} (docs/results/pairs.md), made by `crosslane-lab tunnel-pairs`.

name = "{name}"
title = "{title}"
duration_s = {duration_s}
congestion = "{congestion}"

[vehicle]
route = {{ from_m = [0, 0], to_m = [1, 0], speed_kmh = 1 }}    # these links do not depend on the position
{paths}
[service]
prefer = [{prefer}]

[traffic]
{traffic}
{singles}"""

_PATH = """
[[cellular]]
name = "{name}"
rat = "lte"
rate_mbit_s = {rate}
delay_ms = {delay}
loss = {loss}
{jitter}"""

_SINGLE = """
[[strategy]]
name = "single-{path}"
base = "single"
path = "{path}"
"""


@dataclass(frozen=True)
class Path:
    """A path: Mbit/s, one-way delay in ms, share of packets lost, longest jitter in ms (0: none)."""

    rate: float
    delay: int
    loss: float
    jitter: int

    @property
    def words(self) -> str:
        """As in `118 Mbit/s, 76 ms, 0.59 % lost, jitter 8 ms`."""
        loss = f", {self.loss * 100:.2f} % lost" if self.loss else ""
        jitter = f", jitter {self.jitter} ms" if self.jitter else ""
        return f"{self.rate:g} Mbit/s, {self.delay} ms{loss}{jitter}"


@dataclass(frozen=True)
class Lot:
    """Draws with the same number of paths."""

    seed: int
    count: int
    paths: int
    duration_s: int

    @property
    def name(self) -> str:
        """As in `pairs-7`, a folder of runs."""
        return f"{'pairs' if self.paths == 2 else 'triples'}-{self.seed}"

    @property
    def driven_name(self) -> str:
        """The folder of the runs on the kernel."""
        return f"driven-{self.name}"

    def draws(self) -> list[tuple[Path, ...]]:
        """The paths of each draw; more draws have the same beginning."""
        random = Random(f"{self.seed} {self.paths}")
        return [tuple(_path(random) for _ in range(self.paths)) for _ in range(self.count)]

    def plan(self) -> Iterator[Comparison]:
        """The runs: each draw with each kind of traffic, and of a triple also the tunnel over each pair of it."""
        for traffic in TRAFFIC:
            for number, paths in enumerate(self.draws()):
                names = NAMES[: len(paths)]
                singles = tuple(f"single-{name}" for name in names)
                yield self._comparison(
                    number, dict(zip(names, paths, strict=True)), traffic, (*singles, *MULTIPATH)
                )
                for two in combinations(zip(names, paths, strict=True), 2) if len(paths) > 2 else ():
                    yield self._comparison(number, dict(two), traffic, ("tunnel",))

    def drives(self, count: int) -> Iterator[Comparison]:
        """Drives on the kernel of the first draws, each with each kind of traffic."""
        for traffic in TRAFFIC:
            for number, paths in enumerate(self.draws()[:count]):
                names = NAMES[: len(paths)]
                strategies = (*(f"single-{name}" for name in names), *DRIVEN)
                drawn = dict(zip(names, paths, strict=True))
                yield self._comparison(number, drawn, traffic, strategies, "kernel")

    def _comparison(
        self,
        number: int,
        paths: dict[str, Path],
        traffic: str,
        strategies: tuple[str, ...],
        engine: str = "simulator",
    ) -> Comparison:
        lot = self.name if engine == "simulator" else self.driven_name
        name = f"{lot}/{traffic}/{number}/{''.join(paths)}"
        return Comparison(name, self.scenario(number, paths, traffic), strategies, engine=engine)

    def scenario(self, number: int, paths: dict[str, Path], traffic: str) -> str:
        """The scenario of a draw with this kind of traffic."""
        congestion, keys_of_traffic = TRAFFIC[traffic]
        tables = (
            _PATH.format(
                name=name,
                rate=path.rate,
                delay=path.delay,
                loss=path.loss,
                jitter=f"jitter = {{ most_ms = {path.jitter} }}\n" if path.jitter else "",
            )
            for name, path in paths.items()
        )
        return _TEMPLATE.format(
            number=number,
            seed=self.seed,
            name=f"{self.name}-{number}-{traffic}",
            title=" beside ".join(path.words for path in paths.values()),
            duration_s=self.duration_s,
            congestion=congestion,
            paths="".join(tables),
            prefer=", ".join(f'"{name}"' for name in paths),
            traffic=keys_of_traffic,
            singles="".join(_SINGLE.format(path=name) for name in paths),
        )


def _path(random: Random) -> Path:
    rate = float(f"{2 * 100 ** random.random():.3g}")
    delay = random.randint(2, 80)
    loss = random.choice((0.0, random.uniform(0.0, 0.02)))
    jitter = random.choice((0, 0, 0, random.randint(1, 20)))
    return Path(rate, delay, round(loss, 4), jitter)
