"""A line on the terminal while something slow is loaded, which leaves no trace."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_ERASE = "\x1b[2K"


class WaitingLine:
    """The line; nothing in pipes and logs. A later one takes the place of an earlier one."""

    def __init__(self, words: str) -> None:
        self._is_shown = sys.stderr.isatty()
        if self._is_shown:
            # The cursor stands at its beginning: whatever is written next takes its place.
            sys.stderr.write(f"{_ERASE}annealtune: {words} ...\r")
            sys.stderr.flush()

    def erase(self) -> None:
        """Clear the line, if it is still there."""
        if self._is_shown:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()
        self._is_shown = False


@contextmanager
def waiting(words: str) -> Iterator[WaitingLine]:
    """Show a line until it is erased, or the context ends."""
    line = WaitingLine(words)
    try:
        yield line
    finally:
        line.erase()
