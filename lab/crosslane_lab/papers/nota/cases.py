"""The simulated cases: the files of scenarios/nota with other deadlines, congestion control, loss or jitter."""

import re
from dataclasses import dataclass
from pathlib import Path

from crosslane_lab.runs.runner import Comparison, scenario

ROADS = ("highway", "rural", "city")
BULK_S, STREAM_S = (60.0, 50.0, 40.0), (1.0, 0.9, 0.8)
LIMITS_S = (10.0, 9.0, 8.0, 7.5, 7.0, 6.5, 6.0, 5.5, 5.0)
"""Deadlines of the symmetric and the asymmetric case: the thesis's 10, 9, 7.5, 6 and 5 s, and some in between."""
SWEPT_S = (10.0, 7.5)
"""Deadlines at which the deadline sensitivity α is swept."""
ALPHAS = tuple(tenths / 10 for tenths in range(5, 24))
COMPARED = ("kernel", "kernel-tuned", "single", "mp-dpa", "mp-dpa-08", "deadline-mptcp", "deadline")
CONGESTIONS = ("bbr", "cubic")
NAMES = {"narrow": "3.8 + 3.0", "symmetric": "8 + 8", "asymmetric": "4 + 12", "triangular": "stream"}
"""Their names in the page: the rates in Mbit/s."""
STATIC_S = {"narrow": (10.0, 9.0, 8.0), "symmetric": (10.0, 9.0, 7.5), "asymmetric": (10.0, 9.0, 7.5)}
"""Deadlines of the static cases in the thesis."""
EXTRA_CASES = (("symmetric", 10.0), ("asymmetric", 9.0), ("narrow", 9.0))
"""Cases repeated with impairments that the thesis omits."""
IMPAIRMENTS = ("loss", "jitter")

_EDITS = {
    "loss": {"loss": "0.01"},
    "jitter": {},
    "autotuned": {"send_buffer_bytes": "0"},
    "upstream": {"scheduler": '"default"'},
    "": {},
}


@dataclass(frozen=True)
class Case:
    """One file of scenarios/nota, changed. `variant`: `loss` (1 %), `jitter` (20 ms), `autotuned` (the send buffer
    is the kernel's choice), `upstream` (the packet scheduler of upstream Linux), or empty."""

    base: str
    deadline_s: float
    congestion: str = "bbr"
    variant: str = ""

    @property
    def name(self) -> str:
        """Name of the case and of its run folder."""
        deadline = f"{self.deadline_s:g}s".replace(".", "-")
        return "-".join(filter(None, (self.base, deadline, self.congestion, self.variant)))

    @property
    def is_road(self) -> bool:
        """Whether it uses the traces of chapter 6.7."""
        return self.base.split("-")[0] in ROADS

    @property
    def strategies(self) -> tuple[str, ...]:
        """The strategies compared; α is fixed on the roads, and swept as in the thesis."""
        if self.variant == "autotuned":
            return "kernel", "mp-dpa-08"
        if self.is_road:
            excluded = ("mp-dpa", "kernel-tuned") if self.base.endswith("-stream") else ("mp-dpa",)
            return tuple(strategy for strategy in COMPARED if strategy not in excluded)
        return COMPARED + tuple(mp_dpa(alpha) for alpha in ALPHAS if self.swept and alpha not in (0.8, 1.0))

    @property
    def swept(self) -> bool:
        """Whether every α is simulated."""
        return self.base in ("symmetric", "asymmetric") and self.deadline_s in SWEPT_S and not self.variant

    @property
    def seeds(self) -> str:
        """More seeds for random cases; otherwise the seed only shifts the start of the first object."""
        return "1..10" if self.variant in IMPAIRMENTS else "1..3" if self.is_road else "1..5"


def mp_dpa(alpha: float) -> str:
    """The strategy name of MP-DPA with this α."""
    return "mp-dpa" if alpha == 1 else f"mp-dpa-{round(alpha * 10):02}"


def plan() -> list[Case]:
    """All cases, without repetition."""
    static = [("narrow", d) for d in STATIC_S["narrow"]]
    static += [(base, d) for base in ("symmetric", "asymmetric") for d in LIMITS_S]
    static += [("triangular", d) for d in STREAM_S]
    cases = [Case(base, d, congestion) for congestion in CONGESTIONS for base, d in static]
    cases += [Case(base, d, "bbr", "upstream") for base, deadlines in STATIC_S.items() for d in deadlines]
    for road in ROADS:
        for kind, deadlines in (("bulk", BULK_S), ("stream", STREAM_S)):
            cases += [Case(f"{road}-{kind}", d, "bbr", variant) for d in deadlines for variant in ("", "autotuned")]
    cases += [Case(base, d, c, variant) for variant in IMPAIRMENTS for base, d in EXTRA_CASES for c in CONGESTIONS]
    return cases


def comparison(case: Case, scenarios: Path, quick: bool = False) -> Comparison:
    """The runs of a case; raises `LabError` if a key to change is missing in its file."""
    keys = {"deadline_s": f"{case.deadline_s:g}", "congestion": f'"{case.congestion}"', **_EDITS[case.variant]}
    blocks = (_strategy(alpha) for alpha in ALPHAS if mp_dpa(alpha) in case.strategies and alpha not in (0.8, 1.0))
    file = scenarios / "nota" / f"{case.base}.toml"
    text = scenario(file, {**keys, "name": f'"{case.name}"'}, "".join(blocks))
    if case.variant == "jitter":
        for path in "ab":
            trace = (scenarios.parent / "data" / f"nota-jitter-{path}.csv").resolve()
            text = re.sub(r"^(delay_ms = .*)\n(?!trace)", rf'\1\ntrace = "{trace}"\n', text, count=1, flags=re.M)
    return Comparison(case.name, text, case.strategies, "1" if quick else case.seeds)


def _strategy(alpha: float) -> str:
    return f'\n[[strategy]]\nname = "{mp_dpa(alpha)}"\nbase = "mp-dpa"\nalpha = {alpha:g}\n'
