"""Variable neighborhood search, worked out by hand."""

import math
import random

import pytest

from annealtune.annealing import Neighborhood, VariableNeighborhood, grid

INF, NAN = math.inf, math.nan
H = grid(lr=[0.3, 0.6, 0.1, 0.4, 0.5, 0.2])  # in any order

# Three levels, up to the rates 0.2, 0.4 and 0.6: the level, value, new value, kept.
TRACE = [
    (1, 5.0, 6.0, False),
    (2, 5.0, 6.0, False),  # a failure advances
    (3, 5.0, 6.0, False),
    (1, 5.0, 4.0, True),  # after the last comes the first
    (1, 4.0, 4.5, False),  # a success returns to the first
    (2, 4.0, 3.0, True),
    (1, 3.0, 3.0, True),  # kept, but no success
    (2, 3.0, NAN, False),
    (3, 3.0, 2.0, True),
    (1, 2.0, INF, False),
    (2, 2.0, -INF, False),  # a broken point is a failure
    (3, 2.0, 2.5, False),
    (1, 2.0, 1.5, True),
]
BOUNDS = {1: 0.2, 2: 0.4, 3: 0.6}


@pytest.mark.parametrize("cut", [None, 0, 1, 2, 8, 12])
def test_a_trace_worked_out_by_hand(through_json, cut):
    strategy, rng = VariableNeighborhood(levels=3), random.Random(0)
    for number, (level, value, new_value, accepted) in enumerate(TRACE):
        if number == cut:
            strategy = through_json(strategy, VariableNeighborhood(levels=3))
        assert strategy.level == level
        setting = strategy.pick(H, rng)
        assert setting["lr"] <= BOUNDS[level]
        verdict = strategy.decide(value, new_value, rng)
        assert verdict.accepted is accepted
        strategy.observe(setting, verdict)
        strategy.tick("step")
    assert strategy.level == 1


def reach(strategy, neighborhood, level):
    """All settings that are picked at a level."""
    strategy.load_state_dict({"neighborhood": level})
    rng = random.Random(0)
    return {strategy.pick(neighborhood, rng) for _ in range(60 * len(neighborhood))}


@pytest.mark.parametrize(
    ("values", "levels", "sizes"),
    [(8, 4, [2, 4, 6, 8]), (7, 4, [1, 3, 5, 7]), (4, 4, [1, 2, 3, 4]), (5, 2, [2, 5]), (3, 1, [3])],
)
def test_the_sets_are_nested_from_small_values_to_all(values, levels, sizes):
    neighborhood = grid(lr=[float(rate) for rate in range(values)], momentum=[0.0, 0.9])
    strategy = VariableNeighborhood(levels=levels)
    for level, size in enumerate(sizes, start=1):
        expected = {setting for setting in neighborhood if setting["lr"] < size}
        assert reach(strategy, neighborhood, level) == expected


def test_another_option_can_lead_from_conservative_to_risky():
    neighborhood = grid(lr=[0.1, 0.2], momentum=[0.9, 0.0])
    strategy = VariableNeighborhood(levels=2, order="momentum")
    inner = {setting for setting in neighborhood if setting["momentum"] == 0.0}
    assert reach(strategy, neighborhood, 1) == inner
    assert reach(strategy, neighborhood, 2) == set(neighborhood)


def test_the_sets_can_be_given():
    nested = [[{"lr": 0.3}], [{"lr": 0.3}, {"lr": 0.1}], H]
    strategy = VariableNeighborhood(nested=nested)
    assert strategy.levels == 3
    assert reach(strategy, H, 1) == {H[0]}
    assert reach(strategy, H, 2) == {H[0], H[2]}
    assert reach(strategy, H, 3) == set(H)


def test_a_strategy_that_is_given_another_neighborhood_divides_that_one():
    strategy, other = VariableNeighborhood(levels=2), grid(lr=[7.0, 8.0])
    assert reach(strategy, H, 1) == {H[0], H[2], H[5]}
    assert reach(strategy, other, 1) == {other[0]}


@pytest.mark.parametrize(
    ("arguments", "error", "parts"),
    [
        ({"levels": 0}, ValueError, ["VariableNeighborhood(levels=...)", "at least 1", "0"]),
        ({"levels": 2.0}, TypeError, ["VariableNeighborhood(levels=...)", "whole", "2.0"]),
        ({"order": 3}, TypeError, ["VariableNeighborhood(order=...)", "name of an option", "3"]),
        ({"nested": []}, ValueError, ["VariableNeighborhood(nested=...)", "not empty", "[]"]),
        ({"nested": [[], H]}, ValueError, ["VariableNeighborhood(nested=...)", "empty", "[[]"]),
        ({"nested": H}, TypeError, ["VariableNeighborhood(nested=...)", "list of", "Neighborhood"]),
        ({"nested": 3}, TypeError, ["VariableNeighborhood(nested=...)", "list of", "got 3"]),
        ({"nested": ["lr"]}, TypeError, ["VariableNeighborhood(nested=...)", "list of", "['lr']"]),
        (
            {"nested": [[{"lr": 0.1}], [{"lr": 0.2}, {"lr": 0.3}]]},
            ValueError,
            ["VariableNeighborhood(nested=...)", "contains the one before", "Setting(lr=0.1)"],
        ),
        (
            {"nested": [H], "levels": 2},
            ValueError,
            ["VariableNeighborhood(nested=...)", "given alone", "levels=2"],
        ),
    ],
)
def test_bad_input_names_class_argument_rule_and_value(arguments, error, parts):
    with pytest.raises(error) as caught:
        VariableNeighborhood(**arguments)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("strategy", "neighborhood", "parts"),
    [
        (VariableNeighborhood(levels=7), H, ["levels=...", "would be empty", "here 6", "got 7"]),
        (VariableNeighborhood(), grid(momentum=[0.1, 0.2]), ["order=...", "momentum", "got 'lr'"]),
        (
            VariableNeighborhood(levels=1, order="clip"),
            grid(clip=[None, 1.0]),
            ["order=...", "can be ordered", "'clip'", "1.0, None"],
        ),
        (
            VariableNeighborhood(nested=[[{"lr": 0.7}]]),
            H,
            ["nested=...", "settings of H", "Setting(lr=0.7)", "is not in"],
        ),
        (
            VariableNeighborhood(nested=[[{"lr": 0.7}]]),
            Neighborhood(H, dropped=Neighborhood([{"lr": 0.7}])),
            ["nested=...", "settings of H", "Setting(lr=0.7)", "the optimizer refuses"],
        ),
        (
            VariableNeighborhood(nested=[[{"lr": 0.1}]]),
            H,
            ["nested=...", "all of H", "without Setting(lr=0.3)"],
        ),
    ],
)
@pytest.mark.parametrize("method", ["check", "pick"])
def test_a_neighborhood_that_does_not_fit_is_refused(strategy, neighborhood, parts, method):
    arguments = (neighborhood,) if method == "check" else (neighborhood, random.Random(0))
    with pytest.raises(ValueError, match=r"VariableNeighborhood\(") as caught:
        getattr(strategy, method)(*arguments)
    for part in parts:
        assert part in str(caught.value)


def test_a_state_with_more_sets_is_refused():
    strategy = VariableNeighborhood(levels=2)
    with pytest.raises(ValueError, match="at most 2 nested sets, got one in set 3"):
        strategy.load_state_dict({"neighborhood": 3})
    assert strategy.level == 1
