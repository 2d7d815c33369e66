"""Drives drawn at random, past an access point and under a cell: a seed gives the same drives on every machine.

Three quarters of the drives are at rest or at walking pace, as in Liao et al. 2020. Each lasts 60 s, as their
sessions.
"""

from dataclasses import dataclass
from random import Random

DURATION_S = 60
BUFFERS_KB = (64, 0)
"""Send buffers, in kB; 0: the kernel's autotuning."""
CLASSES = {"static": (0, 0), "walking": (3, 6), "city": (20, 50), "traffic": (50, 90)}
"""Speeds of each class, in km/h."""
TRAFFICS = {
    "bulk-up": ("bulk", "up"),
    "bulk-down": ("bulk", "down"),
    "files-up": ("uploads", "up"),
    "files-down": ("uploads", "down"),
}
"""Kind and direction of the traffic, by name."""
FILES_MB = (0.01, 10)
"""Least and greatest size of a file; the paper states none. Each follows when the last one is acknowledged."""
_DRAWN = ("static",) * 4 + ("walking",) * 2 + ("city", "traffic")

_TEMPLATE = """\
# Drive {number} of seed {seed}, made by `crosslane-lab learn collect`.

name = "{name}"
title = "{title}"
duration_s = {duration}
scheduler = "{scheduler}"

[vehicle]
route = {{ from_m = [{start:.1f}, 0], to_m = [{end:.1f}, 0], speed_kmh = {speed} }}

[[wifi]]
name = "wifi"
delay_ms = {wifi_delay}

[wifi.model]
position_m = [0, {offset}]
band = "{band}"

[[cellular]]
name = "cellular"
rat = "{rat}"
delay_ms = {cell_delay}

[cellular.model]
cells_m = [[{cell_x}, {cell_y}]]
share = {share}
load = {load}

[service]
prefer = ["wifi", "cellular"]

[traffic]
kind = "{traffic}"
over = "wifi"                  # the connection of every strategy begins there
direction = "{direction}"
{files}send_buffer_bytes = {buffer}
{strategies}"""

_STRATEGY = """
[[strategy]]
name = "{name}"
base = "{base}"
tree = "{tree}"
trials = 0                     # an order that is to be measured has no trials of the other one
"""
_IN_TUNNEL = """
[[strategy]]
name = "{name}"
base = "tunnel"
mode = "cheapest-first"
steer = "{base}"
tree = "{tree}"
trials = 0
"""


@dataclass(frozen=True)
class Drive:
    """A drive: speed in km/h, distances in m, one-way delays in ms, share and load of the cell (0 to 1)."""

    seed: int
    number: int
    kind: str
    speed: float
    start: float
    offset: int
    band: str
    wifi_delay: int
    rat: str
    cell: tuple[int, int]
    cell_delay: int
    share: float
    load: float
    duration_s: int = DURATION_S

    def scenario(
        self,
        buffer_kb: int,
        scheduler: str,
        trees: dict[str, tuple[str, str]],
        traffic: str = "bulk-up",
        in_tunnel: bool = False,
    ) -> str:
        """The scenario, with a strategy by base and tree for each name in `trees`, through the tunnel or not."""
        name = f"learn-{self.seed}-{self.number}-{traffic}-{buffer_kb}-{scheduler}"
        kind, direction = TRAFFICS[traffic]
        least, most = FILES_MB
        length = max(self.speed / 3.6 * self.duration_s, 1)
        template = _IN_TUNNEL if in_tunnel else _STRATEGY
        strategies = (template.format(name=name, base=base, tree=tree) for name, (base, tree) in trees.items())
        return _TEMPLATE.format(
            number=self.number,
            seed=self.seed,
            name=name,
            title=f"{self.kind}, Wi-Fi at {self.band} GHz beside {self.rat}",
            duration=self.duration_s,
            scheduler=scheduler,
            start=self.start,
            end=self.start + length,
            speed=max(self.speed, 0.01),
            wifi_delay=self.wifi_delay,
            offset=self.offset,
            band=self.band,
            rat=self.rat,
            cell_delay=self.cell_delay,
            cell_x=self.cell[0],
            cell_y=self.cell[1],
            share=self.share,
            load=self.load,
            traffic=kind,
            direction=direction,
            files=f"size_mb = [{least}, {most}]\npause_s = [0, 0]\n" if kind == "uploads" else "",
            buffer=buffer_kb * 1000,
            strategies="".join(strategies),
        )


def draw(seed: int, count: int, duration_s: int = DURATION_S) -> list[Drive]:
    """The drives of a seed; more drives have the same beginning."""
    return [_drive(seed, number, duration_s) for number in range(count)]


def _drive(seed: int, number: int, duration_s: int) -> Drive:
    random = Random(f"learn {seed} {number}")
    kind = random.choice(_DRAWN)
    speed = round(random.uniform(*CLASSES[kind]), 1)
    length = speed / 3.6 * duration_s
    near = random.uniform(5, 160)
    start = near if kind == "static" else -length * random.uniform(0.1, 0.9)
    rat = random.choice(("lte", "nr"))
    far = 900 if rat == "lte" else 350
    return Drive(
        seed=seed,
        number=number,
        kind=kind,
        speed=speed,
        start=start,
        offset=random.randint(3, 20),
        band=random.choice(("2.4", "5")),
        wifi_delay=random.randint(2, 15),
        rat=rat,
        cell=(random.randint(-far // 2, far // 2), random.randint(50, far)),
        cell_delay=random.randint(12, 45) if rat == "lte" else random.randint(5, 25),
        share=round(random.uniform(0.1, 0.5), 2),
        load=round(random.uniform(0.1, 0.8), 2),
        duration_s=duration_s,
    )
