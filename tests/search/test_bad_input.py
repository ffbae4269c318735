"""Wrong arguments and wrong problems: the message names class, argument, rule and value."""

import math

import pytest

from annealtune.annealing import Automatic, Geometric, Reheating
from annealtune.search import Annealer

PER_STEP = Geometric(1.0, 0.9, per="step")
PER_EPOCH = Geometric(1.0, 0.9)


@pytest.mark.parametrize(
    ("arguments", "error", "parts"),
    [
        ({"temperature": -1}, ValueError, ["Annealer(temperature=...)", "not negative", "-1"]),
        ({"temperature": math.nan}, ValueError, ["Annealer(temperature=...)", "negative", "nan"]),
        ({"temperature": "hot"}, TypeError, ["Annealer(temperature=...)", "a number", "'hot'"]),
        ({"temperature": Geometric}, TypeError, ["Annealer(temperature=...)", "Geometric"]),
        ({"seed": -1}, ValueError, ["Annealer(seed=...)", "at least 0", "-1"]),
        ({"seed": None}, TypeError, ["Annealer(seed=...)", "whole number", "None"]),
        ({"seed": 0.5}, TypeError, ["Annealer(seed=...)", "whole number", "0.5"]),
        (
            {"iterations_per_epoch": 0},
            ValueError,
            ["Annealer(iterations_per_epoch=...)", "at least 1", "0"],
        ),
        (
            {"iterations_per_epoch": 2.0},
            TypeError,
            ["Annealer(iterations_per_epoch=...)", "whole number", "2.0"],
        ),
        ({"callback": 3}, TypeError, ["Annealer(callback=...)", "callable", "3"]),
        (
            {"temperature": PER_EPOCH},
            ValueError,
            ["Annealer(iterations_per_epoch=...)", "must be given", "None", "per='epoch'"],
        ),
        (
            {"temperature": Reheating(PER_EPOCH, every=1, times=1)},
            ValueError,
            ["Annealer(iterations_per_epoch=...)", "must be given", "None", "Reheating"],
        ),
        (
            {"temperature": Automatic(length=5)},
            ValueError,
            ["Annealer(iterations_per_epoch=...)", "must be given", "None", "Automatic"],
        ),
        (
            {"temperature": PER_STEP, "iterations_per_epoch": 10},
            ValueError,
            ["Annealer(iterations_per_epoch=...)", "left out", "10", "per='step'"],
        ),
    ],
)
def test_constructor(tour, arguments, error, parts):
    with pytest.raises(error) as caught:
        Annealer(tour, **arguments)
    for part in parts:
        assert part in str(caught.value)


class WithoutEnergy:
    def initial(self, rng):
        return 0

    def propose(self, state, rng):
        return 1


def test_a_problem_that_lacks_a_method():
    with pytest.raises(
        TypeError, match=r"Annealer\(problem=...\) must have .*WithoutEnergy.* energy"
    ):
        Annealer(WithoutEnergy())
    with pytest.raises(TypeError, match=r"got 3 without initial, propose, energy"):
        Annealer(3)


def test_a_problem_that_is_a_class(tour):
    with pytest.raises(
        TypeError, match=r"Annealer\(problem=...\) must be an object, got the class"
    ):
        Annealer(type(tour))


@pytest.mark.parametrize(
    ("energy", "error", "parts"),
    [
        (math.nan, ValueError, ["Annealer(problem=...)", "finite", "got nan"]),
        (-math.inf, ValueError, ["Annealer(problem=...)", "finite", "got -inf"]),
        ("1.5", TypeError, ["Annealer(problem=...)", "a number from energy", "'1.5'"]),
        (None, TypeError, ["Annealer(problem=...)", "a number from energy", "None"]),
        ([1.0, 2.0], TypeError, ["Annealer(problem=...)", "a number from energy", "[1.0, 2.0]"]),
        (1 + 2j, TypeError, ["Annealer(problem=...)", "a number from energy", "(1+2j)"]),
    ],
)
def test_a_first_energy_that_nothing_can_be_compared_with(table, energy, error, parts):
    with pytest.raises(error) as caught:
        Annealer(table(energy, 1.0)).run(1)
    for part in parts:
        assert part in str(caught.value)


class Refusing:
    """Has a ``__float__`` that fails, as arrays of several numbers do."""

    def __float__(self):
        raise TypeError("only arrays of one number")


@pytest.mark.parametrize("energy", ["1.5", None, [1.0], Refusing()])
def test_a_later_energy_that_is_no_number_leaves_the_search_where_it_was(table, energy):
    annealer = Annealer(table(3.0, 2.0, energy), temperature=0.0)
    with pytest.raises(TypeError, match="a number from energy"):
        annealer.run(10)
    result = annealer.run(0)
    assert (result.iterations, result.evaluations, result.state, result.energy) == (1, 2, 1, 2.0)


@pytest.mark.parametrize("method", ["initial", "propose"])
def test_a_method_that_returns_nothing(tour, method):
    setattr(tour, method, lambda *arguments: None)
    with pytest.raises(TypeError, match=f"a solution from {method}, got None.*in place"):
        Annealer(tour).run(1)


def test_epochs_cannot_be_planned_by_time_alone(tour):
    annealer = Annealer(tour, iterations_per_epoch=10)
    with pytest.raises(ValueError, match=r"iterations_per_epoch=...\) must be left out.*got 10"):
        annealer.run(seconds=1)
    assert annealer.run(iterations=20).iterations == 20
