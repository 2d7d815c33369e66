"""Pairs of paths drawn at random (docs/results/pairs.md), in lots of 40: a lot is its seed.

Each path has a rate of 2 to 200 Mbit/s (uniform in its logarithm) and a one-way delay of 2 to 80 ms. Half of the
paths lose packets, up to 2 % of them; a quarter have jitter that reorders, up to 20 ms.
"""

from dataclasses import dataclass
from random import Random

import polars as pl

from crosslane_lab.papers.frame import Options, Results
from crosslane_lab.runs.runner import Comparison

PAIRS = 40
"""Pairs of a lot."""

LOTS = tuple(str(lot) for lot in range(1, 101))
"""Lots that can be named; the first is the default."""

TRAFFIC = {
    "bulk-cubic": ("cubic", 'kind = "bulk"'),
    "bulk-bbr": ("bbr", 'kind = "bulk"'),
    "messages": ("cubic", 'kind = "messages"\nsize_bytes = 1250\nevery_ms = 10'),
}
"""Kinds of traffic, with the congestion control; the messages are 1 Mbit/s."""

SINGLE = ("single-a", "single-b")
STRATEGIES = {
    "bulk-cubic": (*SINGLE, "kernel", "kernel-tuned", "tunnel", "oracle"),
    "bulk-bbr": (*SINGLE, "kernel", "kernel-tuned", "tunnel", "oracle"),
    "messages": (*SINGLE, "kernel", "kernel-tuned", "tunnel", "tunnel-redundant", "oracle"),
}

QUICK_EVERY = 5
"""With `--quick`, every fifth pair."""

_TEMPLATE = """\
# Pair {number} of lot {lot} (docs/results/pairs.md), made by `crosslane-lab reproduce pairs {lot}`.

name = "{name}"
title = "{title}"
duration_s = 20
congestion = "{congestion}"

[vehicle]
route = {{ from_m = [0, 0], to_m = [1, 0], speed_kmh = 1 }}    # these links do not depend on the position
{paths}
[service]
prefer = ["a", "b"]

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


def _path(random: Random) -> Path:
    rate = float(f"{2 * 100 ** random.random():.3g}")
    delay = random.randint(2, 80)
    loss = random.choice((0.0, random.uniform(0.0, 0.02)))
    jitter = random.choice((0, 0, 0, random.randint(1, 20)))
    return Path(rate, delay, round(loss, 4), jitter)


def pairs(lot: int) -> list[tuple[Path, Path]]:
    """The pairs of a lot, the same on every machine."""
    random = Random(lot)
    return [(_path(random), _path(random)) for _ in range(PAIRS)]


def scenario(lot: int, number: int, pair: tuple[Path, Path], traffic: str) -> str:
    """The scenario of a pair with this kind of traffic."""
    jitter = [f"jitter = {{ most_ms = {path.jitter} }}\n" if path.jitter else "" for path in pair]
    congestion, keys_of_traffic = TRAFFIC[traffic]
    path_tables = (
        _PATH.format(name=name, rate=path.rate, delay=path.delay, loss=path.loss, jitter=keys)
        for name, path, keys in zip("ab", pair, jitter, strict=True)
    )
    return _TEMPLATE.format(
        lot=lot,
        number=number,
        name=f"pairs-{lot}-{number}-{traffic}",
        title=" beside ".join(path.words for path in pair),
        paths="".join(path_tables),
        congestion=congestion,
        traffic=keys_of_traffic,
        singles="".join(_SINGLE.format(path=path) for path in "ab"),
    )


def plan(options: Options) -> list[Comparison]:
    """Every pair of the lots with each kind of traffic."""
    engine = options.engine or "simulator"
    return [
        Comparison(
            f"{lot}/{traffic}/{number}",
            scenario(int(lot), number, pair, traffic),
            STRATEGIES[traffic],
            engine=engine,
        )
        for lot in options.figures or LOTS[:1]
        for traffic in TRAFFIC
        for number, pair in list(enumerate(pairs(int(lot))))[:: QUICK_EVERY if options.quick else 1]
    ]


def rows(results: Results) -> pl.DataFrame:
    """A row per pair, kind of traffic and strategy: goodput in Mbit/s or p99 delay in ms."""
    parts = pl.col("run").str.split("/")
    return results.frame.select(
        lot=parts.list.get(0).cast(pl.Int64),
        traffic=parts.list.get(1),
        pair=parts.list.get(2).cast(pl.Int64),
        strategy="strategy",
        goodput_mbit_s="goodput_mbit_s",
        p99_ms="delivery_delay_ms.p99",
        worst_ms="delivery_delay_ms.max",
    )
