"""Stop on SIGINT, SIGTERM and SIGHUP after the current step instead of in the middle of it.

Before a run has begun there is nothing to save, and signals do what they always do.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


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
def stop_on_signals(*, at_once: bool = True) -> Iterator[StopRequest]:
    """Note the first signal; the second one ends the process at once, as it would have.

    Args:
        at_once: from now on; else from the moment on at which the run begins.
    """
    request = StopRequest()

    def note(signal_number: int, _: FrameType | None) -> None:
        request.signal_number = signal_number
        _answer_by(signal.SIG_DFL)

    request.when_begun.append(lambda: _answer_by(note))
    with handlers_restored():
        if at_once:
            request.begin()
        yield request


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
