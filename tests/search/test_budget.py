"""When a search stops, and what it says about it."""

import itertools
import math

import pytest

from annealtune.search import Annealer, budget


class Clock:
    """A clock that advances by a second whenever it is read."""

    def __init__(self):
        self.ticks = itertools.count()

    def monotonic(self):
        return float(next(self.ticks))


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(budget, "time", Clock())


def test_by_iterations(tour):
    result = Annealer(tour).run(iterations=25)
    assert (result.iterations, result.stopped_by) == (25, "iterations")


def test_iterations_may_be_given_by_position(tour):
    assert Annealer(tour).run(25).iterations == 25


def test_by_evaluations_the_initial_one_included(tour):
    result = Annealer(tour).run(evaluations=25)
    assert tour.evaluations == 25
    assert (result.evaluations, result.iterations, result.stopped_by) == (25, 24, "evaluations")


def test_one_evaluation_is_spent_on_the_initial_solution(tour):
    result = Annealer(tour).run(evaluations=1)
    assert (result.iterations, tour.evaluations) == (0, 1)


@pytest.mark.usefixtures("clock")
def test_by_seconds(tour):
    result = Annealer(tour).run(seconds=10)
    # Read at 0 to start, then before every iteration: at 1, 2, ... 9; at 10 time is over.
    assert (result.iterations, result.stopped_by) == (9, "seconds")


@pytest.mark.usefixtures("clock")
def test_no_time_is_enough_for_the_initial_solution(tour):
    assert Annealer(tour).run(seconds=0).iterations == 0


def test_by_real_time(tour):
    result = Annealer(tour).run(seconds=0.05)
    assert result.stopped_by == "seconds"
    assert result.iterations > 10


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("limits", "iterations", "reason"),
    [
        ({"iterations": 5, "evaluations": 50, "seconds": 50}, 5, "iterations"),
        ({"iterations": 50, "evaluations": 5, "seconds": 50}, 4, "evaluations"),
        ({"iterations": 50, "evaluations": 50, "seconds": 5}, 4, "seconds"),
        ({"iterations": 4, "evaluations": 5}, 4, "iterations"),
        ({"iterations": 5, "evaluations": 5}, 4, "evaluations"),
    ],
)
def test_the_first_limit_that_is_reached_stops(tour, limits, iterations, reason):
    result = Annealer(tour).run(**limits)
    assert (result.iterations, result.stopped_by) == (iterations, reason)


def test_limits_count_from_the_call_and_counts_from_the_beginning(tour):
    annealer = Annealer(tour)
    assert annealer.run(iterations=10).iterations == 10
    assert annealer.run(iterations=10).iterations == 20
    result = annealer.run(evaluations=10)
    assert (result.iterations, result.evaluations) == (30, 31)
    assert tour.evaluations == 31


@pytest.mark.usefixtures("clock")
def test_time_counts_from_the_call(tour):
    annealer = Annealer(tour)
    annealer.run(seconds=10)
    assert annealer.run(seconds=10).iterations == 18


def test_by_the_callback(tour):
    result = Annealer(tour, callback=lambda info: info.iteration == 7).run(iterations=100)
    assert (result.iterations, result.stopped_by) == (7, "callback")


def test_the_callback_comes_before_the_limits(tour):
    result = Annealer(tour, callback=lambda info: info.iteration == 7).run(iterations=7)
    assert result.stopped_by == "callback"


def test_a_callback_that_returns_nothing_stops_nothing(tour):
    seen = []
    result = Annealer(tour, callback=seen.append).run(iterations=20)
    assert (len(seen), result.stopped_by) == (20, "iterations")


def test_after_a_stop_by_the_callback_the_search_goes_on(tour):
    stopped = Annealer(tour, temperature=0.5, callback=lambda info: info.iteration == 7)
    stopped.run(iterations=100)
    result = stopped.run(iterations=93)
    assert result == Annealer(tour, temperature=0.5).run(iterations=100)


@pytest.mark.parametrize(
    ("limits", "error", "parts"),
    [
        ({}, ValueError, ["Annealer.run()", "when to stop", "none of them"]),
        ({"iterations": -1}, ValueError, ["Annealer.run(iterations=...)", "at least 0", "-1"]),
        ({"iterations": 1.5}, TypeError, ["Annealer.run(iterations=...)", "whole number", "1.5"]),
        ({"iterations": "9"}, TypeError, ["Annealer.run(iterations=...)", "whole number", "'9'"]),
        ({"iterations": True}, TypeError, ["Annealer.run(iterations=...)", "whole", "True"]),
        ({"evaluations": 0}, ValueError, ["Annealer.run(evaluations=...)", "at least 1", "0"]),
        ({"evaluations": 1e5}, TypeError, ["Annealer.run(evaluations=...)", "whole", "100000.0"]),
        ({"seconds": -0.5}, ValueError, ["Annealer.run(seconds=...)", "not negative", "-0.5"]),
        ({"seconds": math.nan}, ValueError, ["Annealer.run(seconds=...)", "not negative", "nan"]),
        ({"seconds": math.inf}, ValueError, ["Annealer.run(seconds=...)", "finite", "inf"]),
        ({"seconds": "60"}, TypeError, ["Annealer.run(seconds=...)", "a number", "'60'"]),
    ],
)
def test_bad_limits_are_refused_before_anything_is_evaluated(tour, limits, error, parts):
    with pytest.raises(error) as caught:
        Annealer(tour).run(**limits)
    for part in parts:
        assert part in str(caught.value)
    assert tour.evaluations == 0
