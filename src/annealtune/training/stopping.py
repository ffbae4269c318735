"""Stop on SIGINT, SIGTERM and SIGHUP after the current step instead of in the middle of it.

Before a run has begun there is nothing to save, and the process leaves at once, with a line.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
# Clears the line that the cursor is in, with the ^C in it, and shows the cursor.
_TIDY = "\r\x1b[2K\x1b[?25h"


class StopRequest:
    """Whether somebody asked the run to stop, and by which signal.

    Args:
        after_epoch: save and leave once this many epochs are complete; None trains to the end.
    """

    def __init__(self, after_epoch: int | None = None) -> None:
        self.after_epoch = after_epoch
        self.signal_number: int | None = None
        self.when_begun: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Is called by a run right before it writes something that is worth saving."""
        for act in self.when_begun:
            act()


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Note the first signal; the second one ends the process at once, as it would have."""
    with stop_once_begun() as request:
        request.begin()
        yield request


@contextmanager
def stop_once_begun() -> Iterator[StopRequest]:
    """Do the same from the moment on at which the run begins; until then change nothing."""
    request = StopRequest()

    def note(signal_number: int, _: FrameType | None) -> None:
        request.signal_number = signal_number
        _answer_by(signal.SIG_DFL)

    request.when_begun.append(lambda: _answer_by(note))
    with handlers_restored():
        yield request


@contextmanager
def leave_on_signals(words: str) -> Iterator[None]:
    """End the process at the first signal, at once, and say so in a line.

    Nothing is raised: in the middle of an import an exception can be taken for a failed one.

    Args:
        words: what has happened.
    """

    def leave(signal_number: int, _: FrameType | None) -> None:
        tidy = _TIDY if os.isatty(2) else ""
        line = f"{tidy}annealtune: {signal.Signals(signal_number).name}: {words}\n"
        with contextlib.suppress(OSError):  # nobody reads it any more
            os.write(2, line.encode())
        os._exit(128 + signal_number)

    with handlers_restored():
        _answer_by(leave)
        yield


@contextmanager
def handlers_restored() -> Iterator[None]:
    """Put back the handlers of these signals when the context ends."""
    previous = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _answer_by(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    """Set the handler of all signals; a hangup that nohup has switched off stays so."""
    for number in _SIGNALS:
        if number in (signal.SIGINT, signal.SIGTERM) or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
