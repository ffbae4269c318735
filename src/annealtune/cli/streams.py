"""Standard output and error that may go away without stopping what writes to them."""

import io
import os
import sys
from typing import Any


class _LastingFile(io.FileIO):
    """A descriptor that becomes the null device when writing to it fails.

    A terminal that is closed, a pipe that nobody reads and a full disk take the words away, not
    the training.
    """

    def write(self, content: Any) -> int:
        """Write, or leave it."""
        try:
            return super().write(content) or 0
        except OSError:
            _open_null(self.fileno())
            return memoryview(content).nbytes


def outlive_streams(*, output: bool) -> None:
    """Let the program go on when nobody can read its words any more.

    A stream that is closed from the beginning becomes the null device: else the next file that is
    opened would get its number, and be written to.

    Args:
        output: whether standard output may go away too; it may not where it is the result.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            _open_null(number)
    if sys.stdout is None or (output and _is_real(sys.stdout, 1)):
        sys.stdout = _lasting(1)
    elif isinstance(sys.stdout, io.TextIOWrapper):  # what it cannot encode is spelled out
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is None or _is_real(sys.stderr, 2):
        sys.stderr = _lasting(2)


def _lasting(number: int) -> io.TextIOWrapper:
    raw = _LastingFile(number, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8" if sys.flags.utf8_mode else None,
        errors="backslashreplace",
        line_buffering=True,
    )


def _is_real(stream: Any, number: int) -> bool:
    """Tell whether a stream is the process's own, not one that somebody collects words in."""
    try:
        return bool(stream.fileno() == number)
    except (OSError, ValueError):
        return False


def _open_null(number: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null != number:
        os.dup2(null, number)
        os.close(null)
