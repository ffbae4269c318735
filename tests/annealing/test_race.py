"""The rules of a race against numpy, scipy and plain arithmetic."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from annealtune.annealing import Setting
from annealtune.annealing.race import (
    RaceInfo,
    Standings,
    allowance,
    paired_difference,
)

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

    def test_one_explosion_counts_no_more_than_a_few_usual_differences(self):
        usual = [1.0] * 20
        exploded = paired_difference([*usual, 1e30], [0.0] * 21)
        assert 1.0 < exploded.mean < 2.0
        assert exploded.is_clear  # its own deviation does not save it

    def test_only_the_worse_arm_is_clearly_worse(self):
        low, high = [1.0, 1.1, 0.9, 1.0], [2.0, 2.1, 1.9, 2.0]
        assert paired_difference(high, low).is_clear
        assert not paired_difference(low, high).is_clear


class TestDropping:
    def test_the_clearly_worse_go_and_one_stays(self):
        standings = filled(*(around(mean, deviation=0.01) for mean in (1.0, 5.0, 3.0, 9.0)))
        standings.drop_losers()
        assert standings.live == [0]
        assert sorted(standings.dropped) == [1, 2, 3]
        assert all("clearly worse" in reason for reason in standings.dropped.values())

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
    def test_the_best_of_those_that_stayed_wins_by_whatever_little(self):
        level = around(1.0, deviation=0.5)
        standings = filled(level, level - 1e-9, level + 1e-9)
        for incumbent in range(3):
            assert standings.verdict(incumbent).winner == 1

    def test_a_tie_of_all_goes_to_the_incumbent_whatever_its_number(self):
        level = list(around(1.0, deviation=0.5))
        standings = filled(level, level, level)
        for incumbent in range(3):
            assert standings.verdict(incumbent).winner == incumbent

    @given(
        st.integers(2, 5).flatmap(
            lambda arms: st.lists(
                st.lists(
                    st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf]),
                    min_size=arms,
                    max_size=arms,
                ),
                min_size=1,
                max_size=40,
            )
        )
    )
    def test_whatever_the_losses_the_winner_is_a_live_arm(self, rows):
        standings = Standings(len(rows[0]))
        for row in rows:
            standings.add({arm: row[arm] for arm in standings.live})
            standings.drop_losers()
        assert standings.live
        for incumbent in range(len(rows[0])):
            winner = standings.verdict(incumbent).winner
            assert winner in standings.live
            assert winner not in standings.dropped
            assert standings.score(winner) == min(map(standings.score, standings.live))

    def test_an_objective_is_obeyed_instead_of_the_losses(self):
        standings = filled(around(1.0, deviation=0.01), around(5.0, deviation=0.01))
        outcome = standings.verdict(0, judged={0: 0.9, 1: 0.1})
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
                outcome = standings.verdict(1)
                yield outcome, list(standings.live), dict(standings.dropped)

        assert list(decisions(factor, shift)) == list(decisions(1.0, 0.0))


class TestCatchingUp:
    def test_an_arm_whose_gap_closes_stays(self):
        gaps = np.array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.45, 0.4, 0.2])
        for gap, stays in ((gaps, True), (gaps[::-1], False)):
            standings = filled(np.full(10, 1.0), 1.0 + gap)
            standings.drop_losers()
            assert (1 in standings.live) is stays

    def test_nobody_is_dropped_early(self):
        standings = filled(np.full(9, 1.0), np.full(9, 2.0))
        standings.drop_losers()
        assert standings.live == [0, 1]


class TestTrend:
    def test_noise_is_flat(self):
        assert filled(around(1.0, deviation=0.05, count=20)).trend(0) == 0

    @pytest.mark.parametrize(("end", "sign"), [(1.0, -1), (3.0, 1)])
    def test_a_loss_that_falls_or_rises_is_not(self, end, sign):
        losses = np.linspace(2.0, end, 20) + around(0.0, deviation=0.05, count=20)
        assert filled(losses).trend(0) == sign

    def test_a_loss_that_jumps_at_the_first_step_has_risen_although_it_falls_then(self):
        assert filled(np.array([1.0, *np.linspace(9.0, 5.0, 19)])).trend(0) == 1


class TestAllowance:
    def test_the_promised_shares_are_kept(self):
        for length in LENGTHS:
            extra = allowance(length).extra_steps
            assert extra <= max(min(0.12 * length, 32), min(0.04 * length, 100))
            assert allowance(length).minibatches == min(length // 4, 40)

    def test_all_races_together_stay_below_a_share_of_the_run(self):
        for length in LENGTHS:
            spent = allowance(length).patient
            for _ in range(20):  # and every one of them takes what it may
                spent += allowance(length, spent).patient
            assert spent <= max(min(0.12 * length, 240), 0.06 * length)

    def test_an_unknown_length_allows_a_race(self):
        assert allowance(None).fits(4)
        assert allowance(None) == allowance(1000)


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
    assert RaceInfo.from_dict(json.loads(json.dumps(info.to_dict()))) == info
    assert info.losses == ((2.0, 1.5), (2.5,))
    assert len(info.table().splitlines()) == 3  # one line for the race, one for each arm


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
    assert second.verdict(0) == whole.verdict(0)
    assert first.minibatches == 20  # untouched by the other
