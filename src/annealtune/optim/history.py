"""What a run did, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from annealtune.optim.context import Part
from annealtune.optim.ranks import Ranks

_MOST_POINTS = 1024
_MOST_EVENTS = 256


class Point(NamedTuple):
    """The learning rate at a step and the mean loss of the steps before it."""

    step: int
    rate: float
    loss: float


class Event(NamedTuple):
    """Something that happened once, and of which the user was warned."""

    step: int
    text: str


class History(Part):
    """Rates and losses over time, and the events between them. Races are in `SelfTuner.races`.

    However long the run, at most 1,024 points are kept: when there are more, every second one goes
    and from then on half as many are added. Of the events the last 256 are kept.

    Args:
        ranks: of which the first speaks for all, if there are several.

    Attributes:
        points: in the order of their steps.
        events: in the order of their steps.
        unsaid: the warnings that the step under way is to give at its end.
    """

    def __init__(self, ranks: Ranks | None = None) -> None:
        self._ranks = ranks
        self.points: list[Point] = []
        self.events: list[Event] = []
        self.unsaid: list[str] = []
        self._stride = 1
        self._seen = 0
        self._said: set[str] = set()

    def add(self, step: int, rate: float, loss: float) -> None:
        """Add a point."""
        if self._seen % self._stride == 0:
            self.points.append(Point(step, rate, loss))
        self._seen += 1
        if len(self.points) > _MOST_POINTS:
            self.points = self.points[::2]
            self._stride *= 2

    def say(self, step: int, text: str, *, once: str | None = None) -> None:
        """Add an event of which the user is to be warned; what has a name is said once."""
        if once is not None:
            if once in self._said:
                return
            self._said.add(once)
        self.events = [*self.events, Event(step, text)][-_MOST_EVENTS:]
        if self._ranks is None or self._ranks.is_first:
            self.unsaid.append(f"SelfTuner: {text}")

    def state_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        points, events = list(map(tuple, self.points)), list(map(tuple, self.events))
        counts, said = [self._stride, self._seen], sorted(self._said)
        return {"history": {"points": points, "events": events, "counts": counts, "said": said}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        state = state["history"]
        self.points = [Point(*point) for point in state["points"]]
        self.events = [Event(*event) for event in state["events"]]
        self._stride, self._seen = state["counts"]
        self._said = set(state["said"])
