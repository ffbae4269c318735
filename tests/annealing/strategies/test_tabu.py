"""Tabu search, worked out by hand."""

import collections
import json
import math
import random

import pytest

from annealtune.annealing import Comparing, Neighborhood, Setting, Tabu, Verdict, grid

INF, NAN = math.inf, math.nan
A, B, C, D = H = Neighborhood([{"lr": rate} for rate in (0.1, 0.2, 0.3, 0.4)])

# Tenure 2. The value, what each candidate leads to, the one to take, and whether it is kept; in
# the comment who is tabu for how many more steps, and the best gain before the step.
TRACE = [
    # nobody: the lowest value wins
    (10.0, {A: 8.0, B: 9.0, C: 9.5}, A, True),
    # A2, gain 2: A is tabu but gains 3, more than ever: aspiration
    (8.0, {A: 5.0, B: 7.5, D: 7.75}, A, True),
    # A2, gain 3: A gains 3 again, which is not more
    (5.0, {A: 2.0, B: 4.5, C: 4.75}, B, True),
    # A1 B2: both are tabu, so it goes uphill with C
    (4.5, {A: 4.0, B: 3.0, C: 6.0}, C, True),
    # B1 C2: D is broken, nobody admissible; the tabu of B ends first
    (6.0, {C: 4.0, B: 5.0, D: NAN}, B, True),
    # C1 B2
    (5.0, {B: 4.0, C: 4.5, A: 4.75}, A, True),
    # B1 A2: all are broken, whichever is taken is undone, and time passes
    (4.75, {C: NAN, A: INF, B: -INF}, C, False),
    # A1: C did not become tabu, for it was not moved with; it goes uphill with the better of two
    (4.75, {A: 4.5, C: 6.0, D: 5.0}, D, True),
    # D2
    (5.0, {D: 4.25, A: 4.5, B: 4.75}, A, True),
    # D1 A2: D gains 3.25
    (4.5, {D: 1.25, B: 4.0, A: 4.25}, D, True),
    # A1 D2, gain 3.25: A gains 3
    (4.25, {A: 1.25, B: 4.0}, B, True),
]


def step(strategy, value, measured):
    selected = strategy.select(value, measured)
    verdict = strategy.decide(value, measured[selected], random.Random(0))
    strategy.observe(selected, verdict)
    strategy.tick("step")
    return selected, verdict.accepted


@pytest.mark.parametrize("cut", [None, 0, 1, 2, 5, 7, 10])
def test_a_trace_worked_out_by_hand(through_json, cut):
    strategy = Tabu(tenure=2)
    for number, (value, measured, selected, accepted) in enumerate(TRACE):
        if number == cut:
            strategy = through_json(strategy, Tabu(tenure=2))
        assert step(strategy, value, measured) == (selected, accepted)
    assert strategy.state_dict() == {
        "tabu": [[{"lr": 0.4}, 1], [{"lr": 0.2}, 2]],
        "best_gain": 3.25,
    }


def moved_with(strategy, *settings):
    for setting in settings:
        strategy.observe(setting, Verdict.of(1.0, 1.0, accepted=True))
    return strategy


@pytest.mark.parametrize(
    ("members", "tenure"), [(1, 0), (2, 1), (3, 1), (5, 1), (6, 2), (8, 2), (9, 3), (14, 4)]
)
def test_the_default_tenure_is_a_third_of_the_neighborhood(members, tenure):
    strategy, neighborhood = Tabu(), grid(lr=[float(rate) for rate in range(members)])
    strategy.check(neighborhood)
    moved_with(strategy, neighborhood[0])
    expected = [[{"lr": 0.0}, tenure]] if tenure else []
    assert strategy.state_dict()["tabu"] == expected


def test_without_a_tenure_nothing_is_tabu():
    strategy = moved_with(Tabu(tenure=0), A)
    assert strategy.select(5.0, {A: 4.0, B: 4.5}) == A


def test_the_shortlist_is_drawn_uniformly_without_replacement_from_all_of_the_neighborhood():
    strategy, rng = moved_with(Tabu(tenure=2, candidates=3), A), random.Random(0)
    counts = collections.Counter()
    for _ in range(4000):
        shortlist = strategy.shortlist(H, rng)
        assert len(set(shortlist)) == 3
        counts.update(shortlist)
    # Each is on it with probability 3/4: 3000 with a deviation of 27, tabu or not.
    assert set(counts) == {A, B, C, D}
    assert all(abs(count - 3000) < 5 * 27 for count in counts.values())


def test_a_small_neighborhood_is_measured_as_a_whole():
    assert set(Tabu(candidates=9).shortlist(H, random.Random(0))) == set(H)


def test_one_candidate_is_a_uniform_draw_among_those_that_are_not_tabu():
    strategy, rng = moved_with(Tabu(tenure=2, candidates=1), A, C), random.Random(0)
    counts = collections.Counter(strategy.pick(H, rng) for _ in range(2000))
    assert set(counts) == {B, D}
    assert abs(counts[B] - 1000) < 5 * math.sqrt(2000 / 4)


def test_the_longest_tenure_leaves_one_to_pick():
    strategy, rng = Tabu(tenure=3, candidates=1), random.Random(3)
    picked = []
    for _ in range(12):
        picked.append(strategy.pick(H, rng))
        moved_with(strategy, picked[-1])
    assert picked[4:] == picked[:-4]  # so they take turns
    assert set(picked[:4]) == set(H)


def test_settings_with_tuples_stay_tabu_through_json(through_json):
    adam = Setting({"lr": 0.1, "betas": (0.9, 0.99)})
    other = Setting({"lr": 0.1, "betas": (0.8, 0.99)})
    resumed = through_json(moved_with(Tabu(tenure=1), adam), Tabu(tenure=1))
    assert resumed.select(5.0, {adam: 5.0, other: 6.0}) == other


def test_it_compares_and_writes_a_best_gain_that_is_not_known_yet():
    strategy = Tabu(candidates=2)
    assert isinstance(strategy, Comparing)
    assert json.loads(json.dumps(strategy.state_dict())) == {"tabu": [], "best_gain": -INF}


@pytest.mark.parametrize(
    ("arguments", "error", "parts"),
    [
        ({"tenure": -1}, ValueError, ["Tabu(tenure=...)", "at least 0", "-1"]),
        ({"tenure": 1.5}, TypeError, ["Tabu(tenure=...)", "whole number", "1.5"]),
        ({"candidates": 0}, ValueError, ["Tabu(candidates=...)", "at least 1", "0"]),
        ({"candidates": "3"}, TypeError, ["Tabu(candidates=...)", "whole number", "'3'"]),
    ],
)
def test_bad_input_names_class_argument_rule_and_value(arguments, error, parts):
    with pytest.raises(error) as caught:
        Tabu(**arguments)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("tenure", [4, 5])
@pytest.mark.parametrize("method", ["check", "pick", "shortlist"])
def test_a_tenure_that_would_leave_nothing_to_pick_is_refused(tenure, method):
    arguments = (H,) if method == "check" else (H, random.Random(0))
    with pytest.raises(ValueError, match=rf"Tabu\(tenure=...\) must be smaller .* 4, got {tenure}"):
        getattr(Tabu(tenure=tenure), method)(*arguments)
