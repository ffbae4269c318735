"""Great deluge: a uniform pick, and every value below a sinking level is kept."""

from __future__ import annotations

import math
import random
from typing import Any

from annealtune.annealing.acceptance import Verdict
from annealtune.annealing.arguments import share
from annealtune.annealing.strategies.protocol import PlainStrategy


class GreatDeluge(PlainStrategy):
    r"""Keep a move iff it stays below a level, which every kept move lets sink a little.

    .. math:: new \le level \quad\text{or}\quad new \le value, \qquad
        level = level - rain \cdot \max(level - new, 0)

    The level starts at the first finite value. Shifting or scaling all values changes no decision.

    From the literature (Dueck maximizes, over a rising level): the rule and a rain of about one per
    cent of the distance between level and value; from the extended version (Burke et al.): a move
    that does not worsen is kept above the level too. Our choice: the rain is proportional to the
    distance of the moment, where Dueck fixes it beforehand from an estimate of the average one; and
    the level never rises, also where a value above it was kept. A decision draws a number that it
    does not need, so that one seed makes it try the same settings as simulated annealing.

    Args:
        rain: the part of its distance to the value by which the level sinks, between 0 and 1.

    Raises:
        TypeError: if the rain is not a number.
        ValueError: if it is outside [0, 1].

    Example:
        >>> strategy = GreatDeluge(rain=0.5)
        >>> moves = [(8.0, 4.0), (4.0, 6.0), (6.0, 7.0)]
        >>> [strategy.decide(*move, random.Random(0)).accepted for move in moves]
        [True, True, False]
        >>> strategy.level
        6.0

    Reference:
        Dueck (1993), New optimization heuristics: the great deluge algorithm and the
        record-to-record travel, Journal of Computational Physics 104, 86-92; Burke, Bykov, Newall
        and Petrovic (2004), A time-predefined local search approach to exam timetabling problems,
        IIE Transactions 36, 509-528.
    """

    def __init__(self, rain: float = 0.01) -> None:
        self.rain = share("GreatDeluge(rain=...)", rain)
        self.level = math.inf  # not known yet

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Keep the move iff it stays below the level or does not worsen."""
        rng.random()  # keeps the draws of later picks in step
        if math.isinf(self.level):
            self.level = value
        accepted = new_value <= self.level or new_value <= value
        verdict = Verdict.of(value, new_value, accepted=accepted)
        # From an infeasible start the level is infinite, and no part of that can be taken off.
        if verdict.accepted and math.isfinite(self.level):
            self.level -= self.rain * max(self.level - new_value, 0.0)
        return verdict

    def state_dict(self) -> dict[str, Any]:
        """Return the level."""
        return {"level": self.level}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self.level = state["level"]

    def __repr__(self) -> str:
        return f"GreatDeluge(rain={self.rain!r})"
