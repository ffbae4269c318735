"""The rules of a race: who is dropped, who wins, and what a race may cost. Knows no tensors.

Several copies of a run ("arms") make steps on the same minibatches with different settings. Their
losses are compared minibatch by minibatch, which takes most of the noise away.
"""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from annealtune.annealing.acceptance import metropolis

# An arm is dropped when it is this many standard errors worse than the leader ...
_CLEARLY = 4.0
# ... over at least this many minibatches, ...
_LEAST_WINDOW = 4
# ... but this many arms stay to the end: on a plateau the first to leave is not always the best.
_STAY = 2
# A single difference counts at most this many times the median one, so that an arm that explodes
# is not saved by its own deviation.
_OUTLIER = 3.0

# Minibatches of one race: a share of the run, within bounds.
_SHARE, _SHORTEST, _LONGEST = 0.004, 24, 200
# Extra steps of all races together: 12 % of short runs, 6 % of long ones, no less in between.
_SHORT_RUN, _LONG_RUN, _ENOUGH = 0.12, 0.06, 120
# The length that is assumed if the user gives none.
_ANYTIME = 1000
# How far a rate above the centre is believed, in logarithms: half-way in runs of up to 1,200 steps,
# less and less in longer ones.
_MOST_BELIEF, _BELIEVED_STEPS = 0.5, 600
# A larger loss is a broken one: sums of such losses overflow.
_LARGEST_LOSS = 1e300
# A race over fewer minibatches says nothing.
LEAST_MINIBATCHES = 8


def can_be_summed(loss: float) -> bool:
    """Tell whether a loss can be added up: it is finite, and so is the sum of all of a race.

    Example:
        >>> [can_be_summed(loss) for loss in (-1e30, math.nan, 1.7e308)]
        [True, False, False]
    """
    return abs(loss) <= _LARGEST_LOSS  # not true of NaN


class Difference(NamedTuple):
    """The paired difference of two arms: its mean and the standard error of it."""

    mean: float
    error: float

    @property
    def is_clear(self) -> bool:
        """Whether the first arm is clearly worse."""
        return self.mean > 0 and self.mean > _CLEARLY * self.error


def paired_difference(values: Sequence[float], others: Sequence[float]) -> Difference:
    """Compare two arms on the same minibatches; positive is worse.

    Args:
        values: of one arm, at least one.
        others: of the other arm, on the same minibatches.

    Example:
        >>> paired_difference([3.0, 4.0, 6.0], [2.0, 2.0, 3.0])
        Difference(mean=2.0, error=0.5773502691896258)
    """
    differences = [value - other for value, other in zip(values, others, strict=True)]
    bound = _OUTLIER * statistics.median(map(abs, differences))
    clipped = [max(-bound, min(bound, difference)) for difference in differences]
    mean = math.fsum(clipped) / len(clipped)
    if len(clipped) == 1:
        return Difference(mean, 0.0)
    return Difference(mean, statistics.stdev(clipped) / math.sqrt(len(clipped)))


@dataclasses.dataclass(frozen=True)
class Allowance:
    """What a race may cost.

    Attributes:
        minibatches: how many it lasts at the most.
        extra_steps: how many steps it may make in addition to one per minibatch.
    """

    minibatches: int
    extra_steps: int

    def fits(self, arms: int) -> bool:
        """Whether this many arms can race for long enough to say something."""
        least = LEAST_MINIBATCHES
        return self.minibatches >= least and self.extra_steps >= (arms - 1) * least


def allowance(total_steps: int | None, spent: int = 0) -> Allowance:
    """Return what the next race may cost in a run of this length.

    All races together make at most 6 % extra steps in a run of 2,000 steps or more, 12 % in a run
    of up to 1,000 and 120 steps in between.

    Args:
        total_steps: planned length of the run; None is unknown.
        spent: extra steps of the races before.

    Example:
        >>> allowance(2000)
        Allowance(minibatches=24, extra_steps=120)
        >>> allowance(50).fits(3)
        False
    """
    length = _ANYTIME if total_steps is None else total_steps
    extra = math.floor(min(_SHORT_RUN * length, max(_LONG_RUN * length, _ENOUGH)))
    minibatches = min(max(round(_SHARE * length), _SHORTEST), _LONGEST, length // 4)
    return Allowance(minibatches, max(extra - spent, 0))


def upward_belief(total_steps: int | None, *, is_relative: bool = False) -> float:
    """Return how far a winner above the centre is believed, as an exponent of its ratio to it.

    A short race favours large rates, and the more so the longer the run is that follows.

    Args:
        total_steps: planned length of the run; None is unknown.
        is_relative: whether the centre comes from the relative size of the first updates. Then the
            centre is uncertain too, and the winner is believed more.

    Example:
        >>> [upward_belief(length) for length in (300, 1200, 2000, 3000, 30_000)]
        [0.5, 0.5, 0.3, 0.2, 0.02]
    """
    length = _ANYTIME if total_steps is None else total_steps
    belief = min(_BELIEVED_STEPS / length, _MOST_BELIEF)
    return (1 + belief) / 2 if is_relative else belief


class Outcome(NamedTuple):
    """Who won a race, and why."""

    winner: int
    reason: str


class Standings:
    """The losses of the arms of one race, and what follows from them.

    Arms are known by their numbers. A loss that is not finite breaks its arm, unless no
    arm has a finite one: then the minibatch is to blame and does not count.

    Args:
        arms: the number of arms.

    Example:
        >>> standings = Standings(2)
        >>> for loss in (2.0, 1.6, 1.3, 1.1):
        ...     standings.add({0: loss, 1: loss + 0.5})
        >>> standings.leader
        0
        >>> standings.verdict(incumbent=1, smaller=[], rng=random.Random(0)).winner
        0
    """

    def __init__(self, arms: int) -> None:
        self.losses: list[list[float]] = [[] for _ in range(arms)]
        self.live = list(range(arms))
        self.dropped: dict[int, str] = {}
        self.minibatches = 0
        self.spoilt = 0  # minibatches in a row on which no arm had a finite loss

    def add(self, losses: Mapping[int, float]) -> None:
        """Take in the losses of all live arms on one minibatch."""
        finite = {arm for arm, loss in losses.items() if can_be_summed(loss)}
        if not finite:
            self.spoilt += 1
            return
        longer = [
            [*known, losses[arm]] if arm in finite else known
            for arm, known in enumerate(self.losses)
        ]
        # All at once: the losses of the arms stay paired wherever a run is interrupted.
        self.losses, self.minibatches, self.spoilt = longer, self.minibatches + 1, 0
        for arm in losses.keys() - finite:
            self.drop(arm, f"loss {losses[arm]} at minibatch {self.minibatches}")

    def drop(self, arm: int, reason: str) -> None:
        """Take an arm out of the race."""
        live = [other for other in self.live if other != arm]
        self.live, self.dropped = live, {**self.dropped, arm: reason}

    def drop_losers(self) -> None:
        """Drop the arms that are clearly worse than the leader, the worst first; two stay."""
        if self.minibatches < _LEAST_WINDOW:
            return
        leader = self.leader
        for arm in sorted(self.live, key=self.score, reverse=True):
            if len(self.live) <= _STAY:
                return
            difference = self.difference(arm, leader)
            if arm != leader and difference.is_clear:
                self.drop(arm, f"clearly worse at minibatch {self.minibatches}")

    @property
    def leader(self) -> int:
        """The live arm with the lowest score; of equals the first."""
        return min(self.live, key=self.score)

    def score(self, arm: int) -> float:
        """Return the mean loss of an arm over the second half of the race."""
        losses = self.losses[arm][-self._window() :]
        return math.fsum(losses) / len(losses) if losses else math.inf

    def difference(self, arm: int, other: int) -> Difference:
        """Return how much worse an arm is than another over the second half of the race."""
        window = self._window()
        return paired_difference(self.losses[arm][-window:], self.losses[other][-window:])

    def verdict(
        self,
        incumbent: int,
        smaller: Sequence[int],
        rng: random.Random,
        judged: Mapping[int, Sequence[float]] | None = None,
    ) -> Outcome:
        r"""Draw the winner: from the leader towards caution, by the Metropolis rule.

        The leader gives way to the incumbent with probability :math:`e^{-d/s}`, where d is how much
        worse the incumbent is in the mean of the paired losses, and the temperature s the standard
        error of that mean: if the difference is clear the leader wins, if not the incumbent usually
        does. If the incumbent has been dropped or loses this draw, the next smaller rate gets the
        same chance.

        Args:
            incumbent: the arm that holds what the run has now.
            smaller: all arms in falling order of their rate; empty if they do not differ in their
                rate.
            rng: draws one number for each arm that gets this chance.
            judged: values of a black-box objective for each live arm, instead of the losses.
        """

        def scored(arm: int) -> float:
            return self.score(arm) if judged is None else statistics.fmean(judged[arm])

        def worse(arm: int) -> Difference:
            if judged is None:
                return self.difference(arm, leader)
            return paired_difference(judged[arm], judged[leader])

        if len(self.live) == 1:
            return Outcome(self.live[0], "the only one left")
        leader = min(self.live, key=lambda arm: (scored(arm), arm != incumbent))
        if leader == incumbent:
            return Outcome(leader, "the incumbent, and the best")
        below = smaller[list(smaller).index(leader) + 1 :] if leader in smaller else ()
        next_below = [arm for arm in below if arm in self.live and arm != incumbent][:1]
        for arm in (incumbent, *next_below):
            if arm in self.live:
                difference = worse(arm)
                if metropolis(0.0, *difference, draw=rng.random()).accepted:
                    name = "the incumbent" if arm == incumbent else "a smaller rate"
                    return Outcome(arm, f"{name}, level with the best")
        return Outcome(leader, "the best")

    def steadier(self, outcome: Outcome, incumbent: int, falling: Sequence[int]) -> Outcome:
        """Keep the incumbent where a smaller rate has won that is not clearly better.

        On a plateau all arms are level, and noise would send the rate down, race after race, to
        where nothing is learnt at all.

        Args:
            outcome: as it was drawn.
            incumbent: the arm that holds what the run has now.
            falling: all arms in falling order of their rates.

        Example:
            >>> standings = Standings(2)
            >>> for loss in (2.0, 1.9, 1.8, 1.7):
            ...     standings.add({0: loss + 0.1 * (loss < 1.8), 1: loss})
            >>> standings.steadier(Outcome(1, "the best"), 0, [0, 1]).winner
            0
        """
        is_smaller = falling.index(outcome.winner) > falling.index(incumbent)
        if not is_smaller or incumbent not in self.live:
            return outcome
        if self.difference(incumbent, outcome.winner).is_clear:
            return outcome
        return Outcome(incumbent, "the incumbent, as no smaller rate is clearly better")

    def safer(self, outcome: Outcome, falling: Sequence[int]) -> Outcome:
        r"""Let a smaller rate win where one that is too large does more harm than two too small.

        That is where :math:`d_{+1} > d_{-1} + d_{-2}`: d is how much worse than the winner the next
        larger rate is and the next two smaller ones are, in the mean over the second half of the
        minibatches that both have; if only one smaller rate exists it counts twice. This happens
        near a cliff, and in a trained net, which gains little at any rate and is damaged by a large
        one.

        Args:
            outcome: the winner as it was drawn.
            falling: all arms in falling order of their rates, which are evenly spaced.

        Example:
            >>> standings = Standings(3)
            >>> for loss in (2.0, 1.9, 1.8, 1.7):
            ...     standings.add({0: loss + 1.0, 1: loss, 2: loss + 0.1})
            >>> standings.safer(Outcome(1, "the best"), [0, 1, 2]).winner
            2
        """
        place, last = falling.index(outcome.winner), len(falling) - 1
        if not 0 < place < last:
            return outcome
        larger, smaller, smallest = (falling[min(place + n, last)] for n in (-1, 1, 2))
        harm, *cost = (self._excess(arm, outcome.winner) for arm in (larger, smaller, smallest))
        if harm > sum(cost):
            return Outcome(smaller, "a larger rate would do more harm than a smaller one")
        return outcome

    def _excess(self, arm: int, other: int) -> float:
        count = min(len(self.losses[arm]), len(self.losses[other]))
        first = count - max(_LEAST_WINDOW, count // 2)
        pairs = zip(self.losses[arm], self.losses[other], strict=False)
        found = [own - others for own, others in pairs][max(first, 0) :]
        return statistics.fmean(found) if found else math.nan

    def _window(self) -> int:
        return max(_LEAST_WINDOW, self.minibatches // 2)

    def state_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "losses": [list(losses) for losses in self.losses],
            "live": list(self.live),
            "dropped": dict(self.dropped),
            "minibatches": self.minibatches,
            "spoilt": self.spoilt,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self.losses = [list(losses) for losses in state["losses"]]
        self.live = list(state["live"])
        self.dropped = dict(state["dropped"])
        self.minibatches = state["minibatches"]
        self.spoilt = state["spoilt"]
