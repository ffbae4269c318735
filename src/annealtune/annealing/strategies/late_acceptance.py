"""Late acceptance: a uniform pick, and a move must beat the value of some steps ago."""

from __future__ import annotations

import collections
import random
from typing import Any

from annealtune.annealing.acceptance import Verdict
from annealtune.annealing.arguments import count
from annealtune.annealing.strategies.protocol import PlainStrategy


class LateAcceptance(PlainStrategy):
    r"""Keep a move iff it is no worse than the current value or than the one L steps ago.

    .. math:: new \le value_{k-L} \quad\text{or}\quad new \le value_k

    where :math:`value_{k-L}` is the value after the step made L steps ago, or the very first
    value if there is none yet. Shifting or scaling all values changes no decision.

    From the literature: the rule, its one parameter and the first filling of the memory. Our
    choice: every value is remembered as it was, as in the first version of the method. The latest
    version only lets remembered values fall; if each value comes from a different minibatch, such a
    memory would end up holding the easiest minibatches. A decision draws a number that it does not
    need, so that one seed makes it try the same settings as simulated annealing.

    Args:
        length: how many steps the memory reaches back, L; 1 is hill climbing if the value
            does not change between two steps.

    Raises:
        TypeError: if the length is not a whole number.
        ValueError: if it is smaller than 1.

    Example:
        >>> strategy = LateAcceptance(length=2)
        >>> moves = [(5.0, 3.0), (3.0, 4.0), (4.0, 4.5), (4.0, 4.0)]
        >>> [strategy.decide(*move, random.Random(0)).accepted for move in moves]
        [True, True, False, True]

    Reference:
        Burke and Bykov (2017), The late acceptance hill-climbing heuristic, European Journal of
        Operational Research 258, 70-78; the first version in the proceedings of PATAT 2008.
    """

    def __init__(self, length: int = 50) -> None:
        self.length = count("LateAcceptance(length=...)", length, least=1)
        self._values: collections.deque[float] = collections.deque(maxlen=self.length)

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Keep the move iff it is no worse than now or than L steps ago."""
        rng.random()  # keeps the draws of later picks in step
        if not self._values:  # it stays the oldest for L steps
            self._values.append(value)
        accepted = new_value <= self._values[0] or new_value <= value
        verdict = Verdict.of(value, new_value, accepted=accepted)
        self._values.append(new_value if verdict.accepted else value)
        return verdict

    def state_dict(self) -> dict[str, Any]:
        """Return the remembered values, the oldest first."""
        return {"values": list(self._values)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._values = collections.deque(state["values"], maxlen=self.length)

    def __repr__(self) -> str:
        return f"LateAcceptance(length={self.length!r})"
