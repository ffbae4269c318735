"""The genetic search: known answers, what a generation is, and the very same search resumed."""

import copy
import itertools
import json
import math
import pickle
import random

import pytest

from annealtune.search import Annealer, Breedable, GeneticSearch, budget


class OneMax:
    """As many ones as possible in a row of bits; counts what it is asked for."""

    bits = 30

    def __init__(self):
        self.evaluations = 0
        self.crossed = 0

    def initial(self, rng):
        return [rng.randrange(2) for _ in range(self.bits)]

    def propose(self, state, rng):
        place = rng.randrange(self.bits)
        return [*state[:place], 1 - state[place], *state[place + 1 :]]

    def crossover(self, first, second, rng):
        self.crossed += 1
        return [rng.choice(pair) for pair in zip(first, second, strict=True)]

    def energy(self, state):
        self.evaluations += 1
        return self.bits - sum(state)


class Quadratic:
    """The lowest point of a bowl; half of the plane is not feasible."""

    lowest = (1.0, -2.0)

    def initial(self, rng):
        return [rng.gauss(0, 5), rng.gauss(0, 5)]

    def propose(self, state, rng):
        return [coordinate + rng.gauss(0, 0.1) for coordinate in state]

    def crossover(self, first, second, rng):
        share = rng.random()
        return [share * a + (1 - share) * b for a, b in zip(first, second, strict=True)]

    def energy(self, state):
        if state[0] < 0:
            return math.nan
        return sum((x - low) ** 2 for x, low in zip(state, self.lowest, strict=True))


class Table:
    """Its solutions are numbers, one further at every mutation; the energies are given."""

    def __init__(self, *energies):
        self.energies = energies

    def initial(self, rng):
        return 0

    def propose(self, state, rng):
        return state + 1

    def crossover(self, first, second, rng):
        return min(first, second)

    def energy(self, state):
        return self.energies[min(state, len(self.energies) - 1)]


@pytest.mark.parametrize("seed", range(3))
def test_it_finds_all_ones(seed):
    problem = OneMax()
    result = GeneticSearch(problem, seed=seed).run(iterations=80)
    assert result.best_state == [1] * 30
    assert result.best_energy == 0.0
    assert problem.crossed > 80 * 20  # most children have two parents


@pytest.mark.parametrize("seed", range(3))
def test_it_finds_the_lowest_point_though_half_of_the_plane_is_not_feasible(seed):
    result = GeneticSearch(Quadratic(), seed=seed).run(iterations=60)
    assert result.best_state == pytest.approx(Quadratic.lowest, abs=0.1)
    assert result.best_energy < 0.01


def test_selection_is_what_finds_it():
    # A tournament of one, without an elite, selects nothing: the ones stay where chance puts them.
    aimless = GeneticSearch(OneMax(), tournament=1, elite=0).run(iterations=80)
    assert aimless.best_energy > 3


def test_a_problem_that_can_be_bred_can_be_annealed():
    assert isinstance(OneMax(), Breedable)
    assert Annealer(OneMax(), seed=0).run(2000).best_energy == 0.0


def test_a_generation_without_selection_worked_out_by_hand():
    # Everybody starts at 0 and every child is one further than its parents, so the generations
    # have the energies 5, 7, 4, 4, 6; with no elite the search follows them up, too.
    infos = []
    search = GeneticSearch(Table(5, 7, 4, 4, 6), population=3, elite=0, callback=infos.append)
    result = search.run(iterations=4)
    assert [info.energy for info in infos] == [7, 4, 4, 6]
    assert [info.worsening for info in infos] == [2, -3, 0, 2]
    assert [info.best_energy for info in infos] == [5, 4, 4, 4]
    assert [info.iteration for info in infos] == [1, 2, 3, 4]
    assert all(info.accepted and math.isnan(info.temperature) for info in infos)
    assert (result.state, result.energy, result.best_state, result.best_energy) == (4, 6, 2, 4)
    assert (result.iterations, result.evaluations) == (4, 3 + 4 * 3)
    assert (result.accepted, result.improved) == (4, 1)


@pytest.mark.parametrize("elite", [1, 4])
def test_the_elite_survives_and_is_not_evaluated_again(elite):
    problem, energies = OneMax(), []
    search = GeneticSearch(
        problem, population=10, elite=elite, seed=1, callback=lambda i: energies.append(i.energy)
    )
    result = search.run(iterations=30)
    assert energies == sorted(energies, reverse=True)
    assert result.energy == result.best_energy == energies[-1]
    assert result.evaluations == problem.evaluations == 10 + 30 * (10 - elite)


def test_the_members_of_the_elite_are_the_best_of_the_generation_before():
    search = GeneticSearch(OneMax(), population=8, elite=3, seed=2)
    search.run(iterations=5)
    before = sorted(energy for energy, _ in search.state_dict()["members"])
    search.run(iterations=1)
    assert [energy for energy, _ in search.state_dict()["members"][:3]] == before[:3]


def test_without_crossover_a_child_has_one_parent():
    problem = OneMax()
    GeneticSearch(problem, crossover=0.0).run(iterations=5)
    assert problem.crossed == 0


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_an_energy_that_is_not_finite_loses_every_tournament(broken):
    class Mostly(OneMax):
        def energy(self, state):
            return broken if state[0] else super().energy(state)

    search = GeneticSearch(Mostly(), seed=0)
    result = search.run(iterations=80)
    assert result.best_state == [0] + [1] * 29
    assert result.best_energy == 1.0
    kept = [energy for energy, _ in search.state_dict()["members"]]
    assert all(energy >= 1.0 for energy in kept)  # neither NaN nor -inf


def test_a_problem_without_feasible_solution_goes_on_looking():
    infos = []
    problem = Table(math.inf, math.nan, math.inf, 8)
    search = GeneticSearch(problem, population=3, elite=0, callback=infos.append)
    result = search.run(iterations=3)
    assert [info.accepted for info in infos] == [False, False, True]
    assert (result.best_energy, result.accepted, result.improved) == (8, 1, 1)


@pytest.mark.parametrize("cut", [1, 7, 19])
@pytest.mark.parametrize("problem", [OneMax, Quadratic])
def test_resumed_through_json_text_from_the_middle_of_a_run(problem, cut):
    whole, saved, rest = [], [], []

    def save(info):
        whole.append(repr(info))  # NaN is not NaN
        if info.iteration == cut:
            saved.append(json.dumps(first.state_dict()))

    first = GeneticSearch(problem(), population=12, elite=2, seed=11, callback=save)
    expected = first.run(iterations=20)
    second = GeneticSearch(
        problem(), population=12, elite=2, seed=99, callback=lambda i: rest.append(repr(i))
    )
    second.load_state_dict(json.loads(saved[0]))
    assert second.run(iterations=20 - cut) == expected
    assert rest == whole[cut:]
    assert json.dumps(second.state_dict()) == json.dumps(first.state_dict())


def test_saved_before_the_first_run():
    state = json.loads(json.dumps(GeneticSearch(OneMax(), seed=3).state_dict()))
    resumed = GeneticSearch(OneMax(), seed=4)
    resumed.load_state_dict(state)
    assert resumed.run(10) == GeneticSearch(OneMax(), seed=3).run(10)


def test_two_runs_are_one():
    parts = GeneticSearch(OneMax(), seed=3)
    parts.run(4)
    assert parts.run(6) == GeneticSearch(OneMax(), seed=3).run(10)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_continue_on_their_own(duplicate):
    search = GeneticSearch(Quadratic())
    search.run(iterations=5)
    twin = duplicate(search)
    assert twin.run(iterations=5) == search.run(iterations=5)


def test_one_seed_is_one_search_and_the_global_generator_is_not_touched():
    random.seed(1)
    before = random.getstate()
    results = [GeneticSearch(Quadratic(), seed=seed).run(10) for seed in (5, 5, 6)]
    assert random.getstate() == before
    assert results[0] == results[1] != results[2]


def test_an_error_in_a_method_leaves_the_search_where_it_was():
    class Failing(OneMax):
        def energy(self, state):
            if self.evaluations == 50:
                raise KeyboardInterrupt
            return super().energy(state)

    search = GeneticSearch(Failing(), population=10, elite=0)
    with pytest.raises(KeyboardInterrupt):
        search.run(iterations=10)
    result = search.run(iterations=0)
    assert (result.iterations, result.evaluations) == (4, 50)


class Clock:
    """A clock that advances by a second whenever it is read."""

    def __init__(self):
        self.ticks = itertools.count()

    def monotonic(self):
        return float(next(self.ticks))


@pytest.mark.parametrize(
    ("limits", "iterations", "reason"),
    [
        ({"iterations": 3}, 3, "iterations"),
        ({"evaluations": 10}, 0, "evaluations"),  # the first population
        ({"evaluations": 27}, 1, "evaluations"),  # 10 + 9; another 9 would be 28
        ({"evaluations": 28}, 2, "evaluations"),
        ({"seconds": 5}, 4, "seconds"),
        ({"iterations": 2, "evaluations": 1000, "seconds": 50}, 2, "iterations"),
        ({"iterations": 0}, 0, "iterations"),
    ],
)
def test_the_first_limit_that_is_reached_stops(monkeypatch, limits, iterations, reason):
    monkeypatch.setattr(budget, "time", Clock())
    problem = OneMax()
    result = GeneticSearch(problem, population=10).run(**limits)
    assert (result.iterations, result.stopped_by) == (iterations, reason)
    assert result.evaluations == problem.evaluations == 10 + 9 * iterations


def test_evaluations_count_from_the_call():
    search = GeneticSearch(OneMax(), population=10)
    search.run(evaluations=10)
    assert search.run(evaluations=9).iterations == 1
    assert search.run(evaluations=8).iterations == 1


def test_the_callback_can_stop_it():
    search = GeneticSearch(OneMax(), callback=lambda info: info.iteration == 3)
    result = search.run(iterations=10)
    assert (result.iterations, result.stopped_by) == (3, "callback")


@pytest.mark.parametrize(
    ("arguments", "error", "parts"),
    [
        ({"population": 1}, ValueError, ["GeneticSearch(population=...)", "at least 2", "1"]),
        ({"population": 8.0}, TypeError, ["GeneticSearch(population=...)", "whole number", "8.0"]),
        ({"tournament": 0}, ValueError, ["GeneticSearch(tournament=...)", "at least 1", "0"]),
        ({"crossover": -0.5}, ValueError, ["GeneticSearch(crossover=...)", "between", "-0.5"]),
        ({"elite": -1}, ValueError, ["GeneticSearch(elite=...)", "at least 0", "-1"]),
        ({"elite": 32}, ValueError, ["GeneticSearch(elite=...)", "smaller", "32", "got 32"]),
        ({"seed": -1}, ValueError, ["GeneticSearch(seed=...)", "at least 0", "-1"]),
        ({"callback": 3}, TypeError, ["GeneticSearch(callback=...)", "callable", "3"]),
    ],
)
def test_bad_input_names_class_argument_rule_and_value(arguments, error, parts):
    with pytest.raises(error) as caught:
        GeneticSearch(OneMax(), **arguments)
    for part in parts:
        assert part in str(caught.value)


def test_a_problem_that_cannot_be_crossed(tour):
    with pytest.raises(
        TypeError,
        match=r"GeneticSearch\(problem=...\) must have .* and crossover, .* without cross",
    ):
        GeneticSearch(tour)
    with pytest.raises(TypeError, match=r"GeneticSearch\(problem=...\) must be an object"):
        GeneticSearch(OneMax)


@pytest.mark.parametrize("method", ["initial", "propose", "crossover"])
def test_a_method_that_returns_nothing(method):
    problem = OneMax()
    setattr(problem, method, lambda *arguments: None)
    with pytest.raises(TypeError, match=rf"GeneticSearch\(.* from {method}, got None.*in place"):
        GeneticSearch(problem).run(1)


def test_an_energy_that_is_no_number():
    with pytest.raises(TypeError, match=r"GeneticSearch\(problem=...\) .* energy, got 'low'"):
        GeneticSearch(Table("low")).run(1)


@pytest.mark.parametrize(
    ("limits", "error", "parts"),
    [
        ({}, ValueError, ["GeneticSearch.run()", "when to stop"]),
        ({"iterations": -1}, ValueError, ["GeneticSearch.run(iterations=...)", "at least 0", "-1"]),
        ({"evaluations": 31}, ValueError, ["GeneticSearch.run(evaluations=...)", "least 32", "31"]),
        ({"seconds": math.inf}, ValueError, ["GeneticSearch.run(seconds=...)", "finite", "inf"]),
    ],
)
def test_bad_limits_are_refused_before_anything_is_evaluated(limits, error, parts):
    problem = OneMax()
    with pytest.raises(error) as caught:
        GeneticSearch(problem).run(**limits)
    for part in parts:
        assert part in str(caught.value)
    assert problem.evaluations == 0


@pytest.mark.parametrize(
    ("spoil", "parts"),
    [
        (lambda state: None, ["what state_dict returned", "None"]),
        (lambda state: {"rng": 1}, ["members", "['rng']"]),
        (
            lambda state: {**state, "members": state["members"][:5]},
            ["population of 32", "got one of 5"],
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(spoil, parts):
    source = GeneticSearch(OneMax())
    source.run(3)
    target = GeneticSearch(OneMax(), seed=5)
    with pytest.raises(ValueError, match=r"GeneticSearch.load_state_dict") as caught:
        target.load_state_dict(spoil(source.state_dict()))
    for part in parts:
        assert part in str(caught.value)
    assert target.run(5) == GeneticSearch(OneMax(), seed=5).run(5)
