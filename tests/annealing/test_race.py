"""The rules of a race against numpy, scipy, the binomial distribution and plain arithmetic."""

import json
import math
import random

import numpy as np
import pytest
from scipy import stats

from annealtune.annealing import Setting
from annealtune.annealing.race import (
    LEAST_MINIBATCHES,
    Standings,
    allowance,
    paired_difference,
    upward_belief,
)
from annealtune.annealing.race_info import RaceInfo, numbered

# Lengths of runs, from far too short for a race to very long.
LENGTHS = [*range(1, 400), *range(400, 6000, 37), 20_000, 1_000_000]


def filled(*losses):
    """Standings after every arm has had its losses."""
    standings = Standings(len(losses))
    for row in zip(*losses, strict=True):
        standings.add({arm: row[arm] for arm in standings.live})
    return standings


def around(mean, *, deviation, count=40, seed=0):
    """Losses with exactly this mean and this sample deviation, none of them an outlier."""
    draws = np.random.default_rng(seed).uniform(-1.0, 1.0, count)
    draws = (draws - draws.mean()) / draws.std(ddof=1)
    return mean + deviation * draws


class TestPairedDifference:
    def test_agrees_with_scipy_where_nothing_is_an_outlier(self):
        rng = np.random.default_rng(1)
        ours, theirs = rng.uniform(3.0, 4.0, 25), rng.uniform(1.0, 2.0, 25)

        difference = paired_difference(list(ours), list(theirs))

        expected = stats.ttest_rel(ours, theirs)
        assert difference.mean == pytest.approx((ours - theirs).mean())
        assert difference.error == pytest.approx(stats.sem(ours - theirs))
        assert difference.mean / difference.error == pytest.approx(expected.statistic)

    def test_noise_that_both_arms_share_cancels(self):
        rng = np.random.default_rng(2)
        noise = rng.normal(0.0, 100.0, 30)
        apart = rng.uniform(0.9, 1.1, 30)

        difference = paired_difference(list(noise + apart), list(noise))

        assert difference.mean == pytest.approx(apart.mean())
        assert difference.error < 0.03
        assert difference.is_clear

    def test_one_explosion_counts_no_more_than_a_few_usual_differences(self):
        usual = [1.0] * 20

        exploded = paired_difference([*usual, 1e30], [0.0] * 21)

        assert 1.0 < exploded.mean < 2.0
        assert exploded.is_clear  # its own deviation does not save it

    def test_one_pair_has_no_error(self):
        assert paired_difference([2.5], [1.0]) == (1.5, 0.0)

    def test_equal_arms_are_not_clearly_apart(self):
        same = paired_difference([1.0, 5.0, 2.0], [1.0, 5.0, 2.0])

        assert same == (0.0, 0.0)
        assert not same.is_clear

    def test_only_the_worse_arm_is_clearly_worse(self):
        low, high = [1.0, 1.1, 0.9, 1.0], [2.0, 2.1, 1.9, 2.0]

        assert paired_difference(high, low).is_clear
        assert not paired_difference(low, high).is_clear


class TestDropping:
    def test_the_clearly_worse_go_and_two_stay(self):
        standings = filled(*(around(mean, deviation=0.01) for mean in (1.0, 5.0, 3.0, 9.0)))

        standings.drop_losers()

        assert sorted(standings.live) == [0, 2]  # the best and the second best
        assert sorted(standings.dropped) == [1, 3]
        assert all("clearly worse" in reason for reason in standings.dropped.values())

    def test_level_arms_stay(self):
        standings = filled(*(around(1.0, deviation=1.0, seed=seed) for seed in range(5)))

        standings.drop_losers()

        assert standings.live == [0, 1, 2, 3, 4]

    def test_nobody_goes_after_a_single_minibatch(self):
        standings = filled([1.0], [100.0], [1000.0])

        standings.drop_losers()

        assert standings.live == [0, 1, 2]

    def test_the_second_half_alone_counts(self):
        early, late = around(100.0, deviation=1.0, count=30), around(1.0, deviation=0.1, count=30)
        slow, level = [*early, *late], around(3.0, deviation=0.1, count=60)
        standings = filled(slow, level, level + 1.0)

        assert standings.leader == 0
        assert standings.score(0) == pytest.approx(late.mean())

    def test_a_loss_that_is_not_finite_breaks_its_arm(self):
        for broken in (math.nan, math.inf, -math.inf):
            standings = filled([1.0, 1.0], [2.0, broken], [3.0, 3.0])

            assert standings.live == [0, 2]
            assert str(broken) in standings.dropped[1]
            assert standings.minibatches == 2

    def test_where_no_loss_is_finite_the_minibatch_is_to_blame(self):
        standings = filled([1.0, math.nan, 1.0], [2.0, math.inf, 2.0])

        assert standings.live == [0, 1]
        assert standings.minibatches == 2  # it does not count
        assert standings.spoilt == 0  # and another one followed
        assert standings.losses == [[1.0, 1.0], [2.0, 2.0]]


class TestVerdict:
    def test_the_incumbent_wins_with_the_probability_of_metropolis(self):
        draws = 2500
        for distance in (0.2, 0.7, 1.5, 3.0):
            # A difference of d standard errors in the window: its losses are made so.
            apart = around(0.0, deviation=1.0, count=20)
            shift = distance / math.sqrt(20)
            ours = np.concatenate([np.zeros(20), apart + shift])
            clipped = paired_difference(list(apart + shift), [0.0] * 20)
            assert clipped.mean == pytest.approx(shift)  # nothing was an outlier
            standings = filled(ours, np.zeros(40))

            won = sum(
                standings.verdict(0, [], random.Random(seed)).winner == 0 for seed in range(draws)
            )

            probability = math.exp(-distance)
            low, high = stats.binom.interval(1 - 1e-6, draws, probability)
            assert low <= won <= high, (distance, won / draws, probability)

    def test_a_clear_difference_decides(self):
        standings = filled(around(2.0, deviation=0.01), around(1.0, deviation=0.01, seed=1))

        winners = {standings.verdict(0, [], random.Random(s)).winner for s in range(2000)}

        assert winners == {1}

    def test_a_tie_goes_to_the_incumbent_whatever_its_number(self):
        level = list(around(1.0, deviation=0.5))
        standings = filled(level, level, level)

        for incumbent in range(3):
            for seed in range(50):
                outcome = standings.verdict(incumbent, [], random.Random(seed))
                assert outcome.winner == incumbent
                assert "incumbent" in outcome.reason

    def test_a_tie_never_goes_to_a_larger_rate(self):
        level = list(around(1.0, deviation=0.5))
        standings = filled(level, level, level)  # in rising order of their rates

        for incumbent in range(3):
            for seed in range(50):
                winner = standings.verdict(incumbent, [2, 1, 0], random.Random(seed)).winner
                assert winner in (incumbent, incumbent - 1)

    def test_where_the_incumbent_is_gone_the_next_smaller_rate_is_asked(self):
        draws, distance = 2000, 0.7
        apart = around(distance / math.sqrt(20), deviation=1.0, count=20)
        level = np.full(40, 5.0)
        middle = level + np.concatenate([np.zeros(20), apart])
        # Arms 0, 1, 2 in rising order of the rate; arm 2 leads, arm 3, the incumbent, broke.
        standings = filled(level + 100.0, middle, level, np.full(40, math.nan))

        winners = [
            standings.verdict(3, [3, 2, 1, 0], random.Random(seed)).winner for seed in range(draws)
        ]

        low, high = stats.binom.interval(1 - 1e-6, draws, math.exp(-distance))
        assert low <= winners.count(1) <= high
        assert winners.count(2) == draws - winners.count(1)

    def test_the_last_one_left_wins(self):
        standings = filled([1.0, math.nan], [2.0, 2.0])

        outcome = standings.verdict(0, [0, 1], random.Random(0))

        assert outcome.winner == 1
        assert "only one" in outcome.reason

    def test_an_objective_is_obeyed_instead_of_the_losses(self):
        standings = filled(around(1.0, deviation=0.01), around(5.0, deviation=0.01))

        outcome = standings.verdict(0, [], random.Random(0), judged={0: [0.9], 1: [0.1]})

        assert outcome.winner == 1

    @pytest.mark.parametrize(("factor", "shift"), [(2.0**40, 0.0), (2.0**-40, 0.0), (1.0, 1024.0)])
    def test_the_unit_and_the_zero_of_the_loss_change_nothing(self, factor, shift):
        def decisions(factor, shift):
            for seed in range(60):
                rng = np.random.default_rng(seed)
                # Multiples of 2**-20, so that the shift is exact.
                rows = np.round(rng.normal([1.0, 1.2, 1.1, 3.0], 0.3, (30, 4)) * 2**20) / 2**20
                standings = Standings(4)
                for row in rows * factor + shift:
                    standings.add({arm: row[arm] for arm in standings.live})
                    standings.drop_losers()
                outcome = standings.verdict(1, [3, 2, 1, 0], random.Random(seed))
                yield outcome, list(standings.live), dict(standings.dropped)

        assert list(decisions(factor, shift)) == list(decisions(1.0, 0.0))


class TestAllowance:
    def test_longer_runs_may_spend_no_less(self):
        extra = [allowance(length).extra_steps for length in LENGTHS]
        minibatches = [allowance(length).minibatches for length in LENGTHS]

        assert extra == sorted(extra)
        assert minibatches == sorted(minibatches)

    def test_the_promised_shares_are_kept(self):
        for length in LENGTHS:
            share = 0.06 if length >= 2000 else 0.12
            assert allowance(length).extra_steps <= share * length
            assert allowance(length).minibatches <= length / 4

    def test_what_was_spent_is_spent(self):
        for length in (100, 500, 2000, 20_000):
            whole = allowance(length)
            assert allowance(length, spent=7).extra_steps == max(whole.extra_steps - 7, 0)
            assert allowance(length, spent=10 * length).extra_steps == 0
            assert not allowance(length, spent=whole.extra_steps).fits(2)

    def test_arms_fit_if_each_can_make_the_least_number_of_steps(self):
        for length in LENGTHS:
            for arms in (2, 3, 5, 9):
                room = allowance(length)
                expected = (
                    room.minibatches >= LEAST_MINIBATCHES
                    and room.extra_steps / (arms - 1) >= LEAST_MINIBATCHES
                )
                assert room.fits(arms) == expected

    def test_a_race_does_not_grow_with_runs_of_up_to_6000_steps(self):
        lasts = {length: allowance(length).minibatches for length in range(96, 51_000)}

        assert {lasts[length] for length in range(96, 6001)} == {24}
        assert [lasts[length] for length in (10_000, 25_000, 50_000)] == [40, 100, 200]
        assert allowance(10**7).minibatches == 200

    def test_an_unknown_length_allows_a_race(self):
        assert allowance(None).fits(5)
        assert allowance(None) == allowance(1000)


class TestUpwardBelief:
    def test_half_way_up_to_1200_steps_and_ever_less_beyond(self):
        assert {upward_belief(length) for length in range(1, 1201)} == {0.5}
        for length in range(1201, 100_000, 97):
            assert upward_belief(length) * length == pytest.approx(600)

    def test_an_unknown_length_is_1000_steps(self):
        assert upward_belief(None) == upward_belief(1000) == 0.5
        assert upward_belief(None, is_relative=True) == 0.75

    def test_a_relative_centre_is_doubted_as_much_as_the_winner(self):
        """A winner of 16 times the centre, believed: half-way from there to what AdamW makes."""
        for length in LENGTHS:
            otherwise = 16 ** upward_belief(length)
            believed = 16 ** upward_belief(length, is_relative=True)
            assert believed == pytest.approx(math.sqrt(otherwise * 16))


def test_a_race_survives_plain_data():
    plain = {
        "step": 3,
        "minibatches": 30,
        "settings": [{"lr": 0.1}, {"lr": 0.4}],
        "scores": [1.5, 2.5],
        "dropped": {1: "clearly worse at minibatch 7"},
        "winner": 0,
        "reason": "the best",
        "rate": 0.1,
        "extra_steps": 12,
        "restarted": True,
        "number": 2,
        "second": 1,
        "losses": [[2.0, 1.5], [2.5]],
    }

    info = RaceInfo.from_dict(plain)

    assert info.to_dict() == plain
    assert RaceInfo.from_dict(info.to_dict()) == info
    assert json.loads(json.dumps(info.to_dict()))["scores"] == [1.5, 2.5]
    assert info.losses == ((2.0, 1.5), (2.5,))
    assert str(info) == "race 2: 2 arms, 30 steps, 0.1 won, 0.4 second, restart at 0.1"
    first, winner, loser = info.table().splitlines()
    assert first == f"{info} (from step 3)"
    assert " ".join(winner.split()) == "0.1 score 1.5 won: the best"
    assert " ".join(loser.split()) == "0.4 score 2.5 clearly worse at minibatch 7"


def test_races_of_version_0_1_are_numbered_and_have_no_losses():
    old = {
        "step": 0,
        "minibatches": 24,
        "settings": [{"lr": 0.001}, {"lr": 0.004}],
        "scores": [None, 2.5],
        "dropped": {"0": "loss nan at minibatch 1"},
        "winner": 1,
        "reason": "the only one left",
        "rate": 0.004,
        "extra_steps": 12,
        "restarted": False,
    }
    first, second = numbered([old, {**old, "step": 24}])
    assert (first.number, second.number) == (1, 2)
    assert first.losses == ()
    assert str(second) == "race 2: 2 arms, 24 steps, 4e-3 won"


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ([{"lr": 0.1}, {"lr": 0.00375}], ["0.1", "3.75e-3"]),
        ([{"lr": 0.1, "momentum": 0.0}, {"lr": 0.1, "momentum": 0.9}], ["momentum=0", None]),
        (
            [{"lr": 1e-4, "nesterov": True}, {"lr": 0.1, "nesterov": False}],
            ["lr=1e-4 nesterov=True", None],
        ),
    ],
)
def test_an_arm_is_named_by_what_tells_it_apart(settings, names):
    info = RaceInfo(0, 8, tuple(map(Setting, settings)), (1.0, 2.0), {}, 0, "x", 0.1, 8, False)
    for arm, name in enumerate(names):
        assert name is None or info.name(arm) == name


def test_standings_go_on_from_plain_data():
    rng = np.random.default_rng(3)
    rows = rng.normal([1.0, 1.1, 1.5], 0.2, (40, 3))
    whole, first = Standings(3), Standings(3)
    for row in rows[:20]:
        whole.add({arm: row[arm] for arm in whole.live})
        first.add({arm: row[arm] for arm in first.live})
    second = Standings(3)
    second.load_state_dict(first.state_dict())

    for standings in (whole, second):
        for row in rows[20:]:
            standings.add({arm: row[arm] for arm in standings.live})
            standings.drop_losers()

    assert second.state_dict() == whole.state_dict()
    assert second.verdict(0, [], random.Random(5)) == whole.verdict(0, [], random.Random(5))
    assert first.minibatches == 20  # untouched by the other


def test_an_incumbent_that_leads_stays_also_where_a_smaller_rate_is_level():
    standings = Standings(3)
    for loss in (2.0, 1.5, 1.2, 1.0):
        standings.add(dict.fromkeys(range(3), loss))
    for seed in range(20):
        outcome = standings.verdict(1, [2, 1, 0], random.Random(seed))
        assert outcome.winner == 1
