"""Algorithm 1: against a reference written by hand, and what it promises beside it."""

import itertools
import math
import random
import statistics

import pytest

from annealtune.annealing import Automatic, Geometric, Reheating
from annealtune.search import Annealer, Problem, Result


def algorithm_1(problem, seed, temperature, cooling_factor, iterations, cool_every=1):
    """The paper's box, line by line; shares no code with the package."""
    rng = random.Random(seed)
    s = problem.initial(rng)
    trace = []
    for i in range(iterations):
        s_new = problem.propose(s, rng)
        worsening = problem.energy(s_new) - problem.energy(s)
        prob = math.exp(min(0.0, -worsening / temperature))
        accepted = rng.random() < prob
        if accepted:
            s = s_new
        trace.append((s, worsening, prob, accepted, temperature))
        if (i + 1) % cool_every == 0:
            temperature = cooling_factor * temperature
    return trace


def traced(record):
    return [
        (info.state, info.worsening, info.accept_probability, info.accepted, info.temperature)
        for info in record.infos
    ]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cooling_per_iteration_follows_the_paper_for_600_iterations(tour, record, seed):
    schedule = Geometric(1.0, 0.99, per="step")
    result = Annealer(tour, temperature=schedule, seed=seed, callback=record).run(600)
    expected = algorithm_1(tour, seed, 1.0, 0.99, 600)
    assert traced(record) == expected
    assert result.state == expected[-1][0]
    assert {accepted for *_, accepted, _ in expected} == {True, False}


def test_cooling_per_epoch_follows_the_paper_for_600_iterations(tour, record):
    schedule = Geometric(2.0, 0.8, per="epoch")
    annealer = Annealer(
        tour, temperature=schedule, seed=7, iterations_per_epoch=40, callback=record
    )
    annealer.run(600)
    assert traced(record) == algorithm_1(tour, 7, 2.0, 0.8, 600, cool_every=40)


def test_a_number_is_a_constant_temperature(tour, record):
    Annealer(tour, temperature=0.5, seed=3, callback=record).run(500)
    assert traced(record) == algorithm_1(tour, 3, 0.5, 1.0, 500)


def test_the_temperature_is_restored_as_often_as_told(table, record):
    schedule = Reheating(Geometric(8.0, 0.5, per="step"), every=3, times=2)
    Annealer(table(1.0, 2.0), temperature=schedule, callback=record).run(11)
    assert [info.temperature for info in record.infos] == [8, 4, 2, 8, 4, 2, 8, 4, 2, 1, 0.5]


def test_reheating_counts_epochs_where_the_schedule_does(table, record):
    schedule = Reheating(Geometric(8.0, 0.5), every=2, times=1)
    annealer = Annealer(
        table(1.0, 2.0), temperature=schedule, iterations_per_epoch=2, callback=record
    )
    annealer.run(10)
    assert [info.temperature for info in record.infos] == [8, 8, 4, 4, 8, 8, 4, 4, 2, 2]


def test_the_best_solution_is_kept_beside_the_very_last(tour, record):
    annealer = Annealer(tour, temperature=3.0, seed=1, callback=record)
    initial = annealer.run(0).energy
    result = annealer.run(400)
    assert result.best_energy == min(info.energy for info in record.infos)
    assert result.best_energy == tour.energy(result.best_state)
    assert result.state == record.infos[-1].state
    assert result.energy == tour.energy(result.state)
    assert result.best_energy < result.energy  # so warm, the last is not the best
    best = itertools.accumulate((info.energy for info in record.infos), min, initial=initial)
    assert [initial, *(info.best_energy for info in record.infos)] == list(best)


def test_the_initial_solution_can_be_the_best(table):
    result = Annealer(table(1.0, 2.0, 3.0), temperature=math.inf).run(2)
    assert (result.best_state, result.best_energy) == (0, 1.0)
    assert (result.state, result.energy) == (2, 3.0)


def test_counts(tour, record):
    result = Annealer(tour, temperature=1.0, seed=4, callback=record).run(300)
    assert result.iterations == 300
    assert result.evaluations == tour.evaluations == 301
    assert result.accepted == sum(info.accepted for info in record.infos)
    assert result.improved == sum(info.worsening < 0 for info in record.infos)
    assert 0 < result.improved < result.accepted < 300
    assert result.acceptance_rate == result.accepted / 300
    assert result.improvement_rate == result.improved / 300
    assert [info.iteration for info in record.infos] == list(range(1, 301))


def test_an_equal_move_is_accepted_and_no_improvement(table):
    result = Annealer(table(1.0, 1.0), temperature=0.0).run(10)
    assert (result.accepted, result.improved) == (10, 0)


def test_temperature_zero_never_worsens(tour, record):
    Annealer(tour, temperature=0.0, callback=record).run(500)
    energies = [info.energy for info in record.infos]
    assert energies == sorted(energies, reverse=True)


def test_the_planned_temperature_finds_the_known_answer(tour):
    for seed in range(5):
        result = Annealer(tour, seed=seed).run(iterations=5000)
        assert result.energy == result.best_energy == pytest.approx(tour.best, abs=1e-5)


def test_one_seed_is_one_trajectory(tour, record):
    results = [Annealer(tour, seed=seed).run(200) for seed in (5, 5, 6)]
    assert results[0] == results[1]
    assert results[0].state != results[2].state


def test_the_global_generator_is_neither_read_nor_moved(tour):
    random.seed(1)
    before = random.getstate()
    first = Annealer(tour, seed=5).run(200)
    assert random.getstate() == before
    random.seed(2)
    assert Annealer(tour, seed=5).run(200) == first


def test_a_schedule_given_to_two_annealers_serves_both(tour):
    schedule = Geometric(1.0, 0.99, per="step")
    assert Annealer(tour, temperature=schedule).run(300) == (
        Annealer(tour, temperature=schedule).run(300)
    )
    assert schedule.temperature == 1.0


@pytest.mark.parametrize("scale", [1024.0, 2.0**-20])
@pytest.mark.parametrize("limits", [{"iterations": 800}, {"seconds": 1000.0}])
def test_scaling_the_energy_changes_no_decision_of_the_planned_temperature(
    scaled_tour, scale, limits
):
    plain, scaled = [], []
    for problem, trace in ((scaled_tour(), plain), (scaled_tour(scale), scaled)):
        Annealer(problem, callback=until(1500, trace)).run(**limits)
    assert [info.state for info in scaled] == [info.state for info in plain]
    assert [info.accepted for info in scaled] == [info.accepted for info in plain]
    assert len({info.accepted for info in plain}) == 2


def until(iteration, trace):
    """A callback that fills a list and stops the search."""

    def callback(info):
        trace.append(info)
        return info.iteration == iteration

    return callback


def test_the_plan_covers_the_length_of_the_first_run(tour, record):
    annealer = Annealer(tour, callback=record)
    annealer.run(iterations=1000)
    unit = annealer.state_dict()["temperature"]["unit"]
    changes = [number for number, info in enumerate(record.infos) if info.worsening != 0]
    measured = changes[50 - 1]  # the plan spends a twentieth of the moves on measuring
    cooling = [info.temperature for info in record.infos[measured + 1 :]]
    assert cooling == sorted(cooling, reverse=True)
    assert len(set(cooling)) == len(cooling)
    assert cooling[0] == pytest.approx(0.4 * unit, rel=0.01)
    assert cooling[-2] < 1e-5 * unit
    assert cooling[-1] == 0.0


def test_the_plan_counts_evaluations_and_takes_the_shorter_limit(tour):
    expected = Annealer(tour, seed=2).run(iterations=499)
    by_evaluations = Annealer(tour, seed=2).run(iterations=5000, evaluations=500)
    assert by_evaluations.state == expected.state
    assert by_evaluations.evaluations == 500


def test_the_plan_can_cool_per_epoch(tour, record):
    Annealer(tour, iterations_per_epoch=100, callback=record).run(iterations=950)
    last_of_epoch = [info.temperature for info in record.infos[99::100]]
    first_of_epoch = [info.temperature for info in record.infos[100::100]]
    assert len(set(first_of_epoch)) == 9
    assert last_of_epoch[1:] == first_of_epoch[: len(last_of_epoch) - 1]
    assert first_of_epoch == sorted(first_of_epoch, reverse=True)
    assert first_of_epoch[-1] == 0.0


def test_after_the_plan_the_search_goes_on_greedily(tour, record):
    annealer = Annealer(tour, callback=record)
    annealer.run(iterations=500)
    annealer.run(iterations=50)
    assert {info.temperature for info in record.infos[-51:]} == {0.0}


def test_a_look_at_the_initial_solution_plans_nothing(tour):
    looked = Annealer(tour, seed=9)
    result = looked.run(iterations=0)
    assert (result.iterations, result.evaluations, result.acceptance_rate) == (0, 1, 0.0)
    assert looked.temperature == 0.0
    assert looked.run(iterations=400) == Annealer(tour, seed=9).run(iterations=400)


@pytest.mark.parametrize("iterations", [1, 2, 19, 20, 21])
def test_very_short_runs(tour, iterations):
    assert Annealer(tour).run(iterations).iterations == iterations


def test_a_short_run_spends_little_on_measuring(tour, record):
    annealer = Annealer(tour, callback=until(20, record.infos))
    annealer.run(iterations=40)
    assert annealer.state_dict()["temperature"]["unit"] > 0


@pytest.mark.parametrize("temperature", [None, 0.0, 1.0, math.inf])
def test_infeasible_and_broken_solutions_are_never_kept(table, temperature, record):
    problem = table(5.0, math.inf, math.nan, -math.inf)
    result = Annealer(problem, temperature=temperature, callback=record).run(40)
    assert {info.state for info in record.infos} == {0}
    assert result.accepted == sum(info.new_energy == 5.0 for info in record.infos) == 10
    assert result.best_energy == 5.0


@pytest.mark.parametrize("temperature", [None, 0.0, 1.0, math.inf])
def test_from_an_infeasible_start_the_first_finite_energy_is_accepted(table, temperature, record):
    problem = table(math.inf, math.inf, 1e9, 1e9)
    result = Annealer(problem, temperature=temperature, callback=record).run(3)
    assert [info.accepted for info in record.infos] == [False, True, True]
    assert (result.best_state, result.best_energy, result.improved) == (2, 1e9, 1)


def test_a_problem_without_feasible_solution_ends_where_it_began(table):
    result = Annealer(table(math.inf, math.inf)).run(20)
    assert (result.state, result.energy, result.best_energy) == (0, math.inf, math.inf)


class Number:
    """Stands for numpy's and torch's scalars: a number that is no float."""

    def __init__(self, value):
        self.value = value

    def __float__(self):
        return float(self.value)


@pytest.mark.parametrize("kind", [int, Number])
def test_energies_may_be_any_kind_of_number(table, kind):
    result = Annealer(table(kind(3), kind(1), kind(2)), temperature=0.0).run(5)
    assert result.best_energy == 1.0
    assert isinstance(result.best_energy, float)


def test_infos_and_results_are_immutable(tour, record):
    result = Annealer(tour, callback=record).run(1)
    with pytest.raises(AttributeError):
        result.energy = 0.0
    with pytest.raises(AttributeError):
        record.infos[0].energy = 0.0


def test_a_problem_needs_three_methods_and_no_base_class(tour):
    assert isinstance(tour, Problem)
    assert not isinstance(object(), Problem)
    assert isinstance(Annealer(tour).run(1), Result)


def test_an_automatic_schedule_that_is_given_is_used_as_it_is(tour, record):
    schedule = Automatic(length=100, per="step", probes=7, start=2.0, end=2.0)
    Annealer(tour, temperature=schedule, callback=record).run(1000)
    unit = statistics.median([abs(i.worsening) for i in record.infos if i.worsening != 0][:7])
    assert {info.temperature for info in record.infos[-900:]} == {2.0 * unit}


class InPlace:
    """The square of the sum of a list; a move changes the list that it is given."""

    def initial(self, rng):
        return [10.0, 5.0]

    def propose(self, state, rng):
        state[rng.randrange(2)] += rng.uniform(-1, 1)
        return state

    def energy(self, state):
        return sum(state) ** 2


def test_a_move_that_changes_the_solution_in_place_is_refused():
    with pytest.raises(TypeError, match=r"new solution from propose.*its energy was 225 and is"):
        Annealer(InPlace()).run(iterations=10)


class Idle(InPlace):
    """Now and then a move leads nowhere and returns what it was given."""

    def propose(self, state, rng):
        if rng.random() < 0.5:
            return state
        return [value + rng.uniform(-1, 1) for value in state]


def test_a_move_that_leads_nowhere_may_return_what_it_was_given():
    result = Annealer(Idle()).run(iterations=300)
    assert result.best_energy == sum(result.best_state) ** 2


class Noisy:
    """A number whose energy is drawn anew."""

    def initial(self, rng):
        return 3

    def propose(self, state, rng):
        return state

    def energy(self, state):
        self.drawn = getattr(self, "drawn", 0) + 1
        return state + self.drawn % 7


def test_what_cannot_be_changed_in_place_may_come_back_with_another_energy():
    assert Annealer(Noisy()).run(iterations=20).state == 3
