"""What a problem must offer to be annealed, and to be bred."""

from __future__ import annotations

import random
from typing import Protocol, TypeVar, runtime_checkable

S = TypeVar("S")


@runtime_checkable
class Problem(Protocol[S]):
    """A set of solutions, a neighborhood and a function to be minimized.

    Any class with these three methods is a problem; nothing has to be inherited. A solution (the
    state ``S``) can be any object. Take all randomness from the generator that is passed in:
    then the same seed gives the same trajectory, and a saved search continues it exactly.

    Example:
        >>> class NearestInteger:
        ...     def initial(self, rng):
        ...         return rng.randrange(100)
        ...
        ...     def propose(self, state, rng):
        ...         return state + rng.choice([-1, 1])
        ...
        ...     def energy(self, state):
        ...         return abs(state - 41.7)
        >>> isinstance(NearestInteger(), Problem)
        True

    Reference:
        Fischetti and Stringher (2019), Section 2: S, N(s) and f.
    """

    def initial(self, rng: random.Random) -> S:
        """Return an initial solution (Algorithm 1, line 1)."""

    def propose(self, state: S, rng: random.Random) -> S:
        """Return a new tentative solution in the neighborhood of ``state`` (Algorithm 1, line 3).

        It must not modify ``state``: a rejected move leaves the search where it was, and the best
        solution so far is kept without a copy.
        """

    def energy(self, state: S) -> float:
        """Return the value to be minimized; ``math.inf`` marks a solution that is not feasible."""


@runtime_checkable
class Breedable(Problem[S], Protocol[S]):
    """A problem whose solutions can also be crossed: what `GeneticSearch` needs.

    ``propose`` is its mutation.
    """

    def crossover(self, first: S, second: S, rng: random.Random) -> S:
        """Return a new solution that inherits from both, without modifying either."""
