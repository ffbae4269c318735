"""Stop on SIGINT and SIGTERM after the current step instead of in the middle of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether somebody asked the run to stop, and by which signal.

    Args:
        after_epoch: save and leave once this many epochs are complete; None trains to the end.
    """

    def __init__(self, after_epoch: int | None = None) -> None:
        self.after_epoch = after_epoch
        self.signal_number: int | None = None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Note the first signal; the second one ends the process at once, as it would have."""
    request = StopRequest()

    def note(signal_number: int, _: FrameType | None) -> None:
        request.signal_number = signal_number
        for number in previous:
            signal.signal(number, signal.SIG_DFL)

    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in previous:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
