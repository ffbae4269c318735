"""The rule that a smaller rate wins where a larger one does more harm, against fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest

from annealtune.annealing.race import Outcome, Standings

DRAWN = "as it was drawn"


def mean_excess(own, others):
    """Mean difference over the later half of what both have, which is at least four; exactly."""
    both = min(len(own), len(others))
    later = [
        Fraction(own[n]) - Fraction(others[n])
        for n in range(both)
        if n >= both - max(both // 2, 4)  # all of fewer than four
    ]
    return sum(later) / len(later) if later else None


def by_hand(losses, winner, falling):
    """Who wins by the text of the rule: a step down where d(+1) > d(-1) + d(-2)."""
    place = falling.index(winner)
    neighbours = {n: falling[place + n] for n in (-1, 1, 2) if 0 <= place + n < len(falling)}
    if -1 not in neighbours or 1 not in neighbours:
        return winner
    neighbours.setdefault(2, neighbours[1])  # the only smaller one counts twice
    excess = {n: mean_excess(losses[arm], losses[winner]) for n, arm in neighbours.items()}
    if None in excess.values():
        return winner
    return neighbours[1] if excess[-1] > excess[1] + excess[2] else winner


def random_race(seed):
    """Standings of two to six arms, some dropped early, some broken at once; and their order."""
    rng = np.random.default_rng(seed)
    arms, minibatches = int(rng.integers(2, 7)), int(rng.integers(1, 30))
    leave = rng.integers(1, 2 * minibatches + 2, arms)
    leave[rng.integers(arms)] = 2 * minibatches + 2  # one stays
    broken_at_once = rng.random(arms) < 0.08
    broken_at_once[leave.argmax()] = False
    means = rng.normal(2.0, 0.5, arms)
    standings = Standings(arms)
    for number in range(minibatches):
        row = means + rng.normal(0.0, 1.0) + rng.normal(0.0, 0.5, arms)
        row[broken_at_once] = math.nan
        standings.add({arm: row[arm] for arm in standings.live})
        for arm in [arm for arm in standings.live if leave[arm] <= number]:
            standings.drop(arm, "by the test")
    return standings, [int(arm) for arm in rng.permutation(arms)]


def test_it_is_the_rule_that_is_worked_out_by_hand():
    moved = kept = shorter = without = 0
    for seed in range(1500):
        standings, falling = random_race(seed)
        lengths = {len(losses) for losses in standings.losses}
        shorter += len(lengths) > 1
        without += 0 in lengths
        for winner in falling:
            outcome = standings.safer(Outcome(winner, DRAWN), falling)
            assert outcome.winner == by_hand(standings.losses, winner, falling), (seed, winner)
            is_same = outcome.winner == winner
            assert (outcome.reason == DRAWN) == is_same
            assert is_same or "harm" in outcome.reason
            kept, moved = kept + is_same, moved + (not is_same)
    assert min(moved, kept, shorter, without) > 200  # each of them was shown


def filled(*losses):
    """Standings of arms with histories of any length."""
    standings = Standings(len(losses))
    for number in range(max(map(len, losses))):
        for arm in [arm for arm in standings.live if len(losses[arm]) <= number]:
            standings.drop(arm, "by the test")
        standings.add({arm: losses[arm][number] for arm in standings.live})
    return standings


@pytest.mark.parametrize("winner", [0, 3])
def test_the_highest_and_the_lowest_rate_stay(winner):
    standings = filled(*([loss] * 10 for loss in (9.0, 1.0, 1.0, 1.0)))

    assert standings.safer(Outcome(1, DRAWN), [0, 1, 2, 3]).winner == 2
    assert standings.safer(Outcome(winner, DRAWN), [0, 1, 2, 3]) == (winner, DRAWN)


@pytest.mark.parametrize(("harm", "winner"), [(2.875, 1), (3.0, 1), (3.125, 2)])
def test_two_smaller_rates_are_weighed_against_one_larger(harm, winner):
    """They cost 1 and 2 more than the winner; what is level changes nothing."""
    standings = filled(*([4.0 + more] * 10 for more in (harm, 0.0, 1.0, 2.0)))

    assert standings.safer(Outcome(1, DRAWN), [0, 1, 2, 3]).winner == winner


@pytest.mark.parametrize(("harm", "winner"), [(2.0, 1), (2.125, 2)])
def test_the_only_smaller_rate_counts_twice(harm, winner):
    standings = filled(*([4.0 + more] * 10 for more in (harm, 0.0, 1.0)))

    assert standings.safer(Outcome(1, DRAWN), [0, 1, 2]).winner == winner


def test_rates_count_not_the_numbers_of_the_arms():
    standings = filled([1.0] * 10, [1.0] * 10, [5.0] * 10)

    assert standings.safer(Outcome(1, DRAWN), [2, 1, 0]).winner == 0
    assert standings.safer(Outcome(1, DRAWN), [0, 1, 2]).winner == 1


def test_a_smaller_rate_that_is_better_speaks_for_itself():
    standings = filled([4.5] * 10, [4.0] * 10, [3.0] * 10, [4.0] * 10)

    assert standings.safer(Outcome(1, DRAWN), [0, 1, 2, 3]).winner == 2


def test_it_is_one_step_down_and_no_more():
    standings = filled(*([loss] * 10 for loss in (8.0, 4.0, 2.0, 1.0, 0.5)))

    assert standings.safer(Outcome(1, DRAWN), [0, 1, 2, 3, 4]).winner == 2


def test_arms_are_compared_where_both_were_there():
    """The larger rate left after eight minibatches, when the winner was no better yet."""
    early, late = [3.0] * 8, [1.0] * 12

    level = filled(early, early + late, early + late, early + late)
    worse = filled([3.0] * 4 + [3.5] * 4, early + late, early + late, early + late)

    assert level.safer(Outcome(1, DRAWN), [0, 1, 2, 3]) == (1, DRAWN)
    assert worse.safer(Outcome(1, DRAWN), [0, 1, 2, 3]).winner == 2


@pytest.mark.parametrize("missing", [0, 2, 3])
def test_an_arm_without_any_loss_changes_nothing(missing):
    losses = [[9.0] * 10, [1.0] * 10, [1.0] * 10, [1.0] * 10]
    losses[missing] = [math.nan] * 10
    standings = filled(*losses)

    assert standings.losses[missing] == []
    assert standings.safer(Outcome(1, DRAWN), [0, 1, 2, 3]) == (1, DRAWN)


@pytest.mark.parametrize(("factor", "shift"), [(2.0**40, 0.0), (2.0**-40, 0.0), (0.5, 1024.0)])
def test_the_unit_and_the_zero_of_the_loss_change_nothing(factor, shift):
    def outcomes(factor, shift):
        for seed in range(300):
            standings, falling = random_race(seed)
            # Multiples of 2**-20, so that the shift is exact.
            rounded = [
                [round(loss * 2**20) / 2**20 * factor + shift for loss in losses]
                for losses in standings.losses
            ]
            standings.load_state_dict({**standings.state_dict(), "losses": rounded})
            for winner in falling:
                yield standings.safer(Outcome(winner, DRAWN), falling)

    assert list(outcomes(factor, shift)) == list(outcomes(1.0, 0.0))
