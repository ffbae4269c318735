"""Tables for a page: cells that can be sorted, titles above them, rows that stay below."""

from typing import NamedTuple


class Cell(NamedTuple):
    """What stands in one place of a table."""

    text: str
    order: float | str = ""
    """What the cell is sorted by."""
    is_best: bool = False
    is_number: bool = True
    span: int = 1
    """How many columns it takes."""


class Table(NamedTuple):
    """A table for a page.

    Attributes:
        columns: titles.
        rows: the cells of each row.
        groups: titles above the columns and how many of them each spans; may be empty.
        footer: rows that stay below when the others are sorted.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    groups: tuple[tuple[str, int], ...] = ()
    footer: tuple[tuple[Cell, ...], ...] = ()

    @property
    def texts(self) -> tuple[bool, ...]:
        """Whether each column holds text; numbers stand to the right."""
        whole = [row for row in self.rows if len(row) == len(self.columns)]
        if not whole:
            return tuple(place != 1 for place in range(len(self.columns)))
        return tuple(not cell.is_number for cell in whole[0])


def text_cell(text: str) -> Cell:
    """Return a cell of text, sorted by it."""
    return Cell(text, text, is_number=False)


def number_cell(text: str, value: float | None, is_best: bool = False) -> Cell:
    """Return a cell of a number, sorted by its value; one that is not known comes last."""
    # Seven digits are more than any cell shows; sixteen made a tenth of a large page.
    return Cell(text, "" if value is None else float(f"{value:.7g}"), is_best)
