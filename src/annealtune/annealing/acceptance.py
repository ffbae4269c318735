"""Which moves are kept: the Metropolis rule, defined at every edge."""

from __future__ import annotations

import math
from typing import NamedTuple


class Verdict(NamedTuple):
    """The outcome of one accept test.

    Attributes:
        worsening: value at the new point minus value at the current one; positive is worse.
        accept_probability: the probability with which such a move is kept, clipped to 1.
        accepted: whether this one was kept.
    """

    worsening: float
    accept_probability: float
    accepted: bool

    @classmethod
    def of(cls, value: float, new_value: float, *, accepted: bool) -> Verdict:
        """Return the outcome of a rule without chance; a new value that is not finite is rejected.

        Example:
            >>> Verdict.of(1.0, 1.5, accepted=True)
            Verdict(worsening=0.5, accept_probability=1.0, accepted=True)
        """
        accepted = accepted and math.isfinite(new_value)
        return cls(new_value - value, float(accepted), accepted)


def accept_probability(worsening: float, temperature: float) -> float:
    r"""Probability of keeping a move: :math:`\min(1, e^{-worsening/T})`.

    Improving and equal moves have probability 1. At ``temperature == 0`` every worsening move has
    probability 0, at ``temperature == math.inf`` every finite one has probability 1. A worsening
    of NaN or ``+inf`` has probability 0.

    Args:
        worsening: value at the new point minus value at the current one.
        temperature: the current temperature, not negative.

    Example:
        >>> round(accept_probability(0.5, temperature=0.5), 4)
        0.3679
        >>> accept_probability(-3.0, temperature=0.0)
        1.0

    Reference:
        Fischetti and Stringher (2019), Section 2, equation 1.
    """
    if worsening <= 0:
        return 1.0
    if not worsening < math.inf or temperature == 0:  # "not <" is also true of NaN
        return 0.0
    return math.exp(-worsening / temperature)


def metropolis(value: float, new_value: float, temperature: float, draw: float) -> Verdict:
    """Keep or undo a move: accept iff the new value is finite and ``draw < accept_probability``.

    A new value that is not finite is rejected, ``-inf`` too: it is a broken point, not a good one.

    Args:
        value: objective at the current point; ``+inf`` (infeasible) accepts any finite new value.
        new_value: objective at the new point.
        temperature: the current temperature, not negative.
        draw: a uniform random number from [0, 1).

    Example:
        >>> metropolis(1.0, 1.5, temperature=0.5, draw=0.3).accepted
        True
        >>> metropolis(1.0, 1.5, temperature=0.5, draw=0.4).accepted
        False

    Reference:
        Fischetti and Stringher (2019), Algorithm 1, lines 4-10, and Algorithm 2, lines 10-16.
    """
    worsening = new_value - value
    if not math.isfinite(new_value):
        return Verdict(worsening, 0.0, accepted=False)
    probability = accept_probability(worsening, temperature)
    return Verdict(worsening, probability, accepted=draw < probability)
