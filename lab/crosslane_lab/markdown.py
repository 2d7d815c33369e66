"""Tables in Markdown."""

from collections.abc import Iterable, Iterator, Sequence

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
