"""Tables and numbers in Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from math import floor, isfinite, log10

from crosslane_lab.runs.frame import Spread

_MARKS = {"l": "---", "r": "---:"}


def row(cells: Iterable[str]) -> str:
    """One row of a table."""
    return f"| {' | '.join(cells)} |"


def table(
    head: Sequence[str], rows: Iterable[Iterable[str]], align: str = "l", compact: bool = False
) -> Iterator[str]:
    """The lines of a table. `align` has an `l` or `r` for each of the first columns; the others are aligned right.

    `compact` is without spaces in the line below the head.
    """
    marks = [_MARKS[side] for side in align.ljust(len(head), "r")]
    yield row(head)
    yield f"|{'|'.join(marks)}|" if compact else row(marks)
    yield from map(row, rows)


_DIGITS = 3
_MOST_PLACES = 6


def number(value: float, unit: str = "") -> str:
    """A value with at most three significant digits, thin spaces between thousands, and its unit; – if infinite."""
    if unit == "%":
        value *= 100
    if not isfinite(value):
        return "–"
    places = _DIGITS - 1 - floor(log10(abs(value))) if value else 0
    digits = min(max(places, 0), _MOST_PLACES)
    if digits < _DIGITS and abs(round(value, digits)) >= 10 ** (_DIGITS - digits):
        digits = max(digits - 1, 0)
    text = f"{value:,.{digits}f}".replace(",", "\u202f").replace("-", "−")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"{text}\u00a0{unit}" if unit else text


def spread_text(stats: Spread, unit: str = "") -> str:
    """The median with its range, as `27 ms (24–31)`; for a single run only the median."""
    if stats.count == 1 or stats.low == stats.high:
        return number(stats.median, unit)
    bare = "%" if unit == "%" else ""
    low, high = (number(v, bare).removesuffix("\u00a0%") for v in (stats.low, stats.high))
    return f"{number(stats.median, unit)} ({low}–{high})"


def were(count: int) -> str:
    """The verb that agrees with a count: `1 run was`, `2 runs were`."""
    return "was" if count == 1 else "were"


def duration_ratio(ratio: float) -> str:
    """A ratio of two durations in words: `33 times as long`, `just as long`."""
    if 0.95 < ratio < 1.05:
        return "just as long"
    return f"{ratio:.0f} times as long" if ratio >= 9.95 else f"{ratio:.1f} times as long"
