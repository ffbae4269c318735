"""Algorithm 1: against a reference written by hand, and what it promises beside it."""

import math
import pickle
import random
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import annealtune
from annealtune.annealing import Automatic, Geometric, Reheating
from annealtune.search import Annealer


class Tour:
    """Twelve cities on a circle, visited in any order; the best length is that of the polygon."""

    cities = 12
    best = 12 * 2 * math.sin(math.pi / 12)

    def __init__(self, scale=1.0):
        self.scale = scale
        self.evaluations = 0

    def initial(self, rng):
        return rng.sample(range(self.cities), self.cities)

    def propose(self, state, rng):
        first, last = sorted(rng.sample(range(self.cities + 1), 2))
        return state[:first] + state[first:last][::-1] + state[last:]

    def energy(self, state):
        self.evaluations += 1
        # Multiples of 2**-20: scaled by a power of two, every sum and difference stays exact.
        length = sum(
            2 * abs(math.sin(math.pi * (a - b) / self.cities))
            for a, b in zip(state, state[1:] + state[:1], strict=True)
        )
        return round(length * 2**20) / 2**20 * self.scale


class Table:
    """Walks up a list of energies, one entry a proposal, whatever was accepted."""

    def __init__(self, *energies):
        self.energies = energies
        self.proposed = 0

    def initial(self, rng):
        return 0

    def propose(self, state, rng):
        self.proposed += 1
        return self.proposed % len(self.energies)

    def energy(self, state):
        return self.energies[state]


@pytest.fixture
def tour():
    return Tour()


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
        trace.append((s, accepted, temperature))
        if (i + 1) % cool_every == 0:
            temperature = cooling_factor * temperature
    return trace


def traced(annealer, iterations):
    """Try single moves; return where each led to, whether it was kept, and its temperature."""
    before, trace = annealer.run(0), []
    for _ in range(iterations):
        temperature, after = annealer.temperature, annealer.run(1)
        trace.append((after.state, after.accepted > before.accepted, temperature))
        assert after.improved - before.improved == (after.energy < before.energy)
        assert after.best_energy == min(before.best_energy, after.energy)
        assert after.iterations == before.iterations + 1
        before = after
    return trace


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cooling_per_iteration_follows_the_paper_for_600_iterations(tour, seed):
    schedule = Geometric(1.0, 0.99, per="step")
    found = traced(Annealer(tour, temperature=schedule, seed=seed), 600)
    assert found == algorithm_1(tour, seed, 1.0, 0.99, 600)
    assert {accepted for _, accepted, _ in found} == {True, False}


def test_cooling_per_epoch_follows_the_paper_for_600_iterations(tour):
    schedule = Geometric(2.0, 0.8, per="epoch")
    annealer = Annealer(tour, temperature=schedule, seed=7, iterations_per_epoch=40)
    assert traced(annealer, 600) == algorithm_1(tour, 7, 2.0, 0.8, 600, cool_every=40)


def test_the_best_solution_is_kept_beside_the_very_last(tour):
    result = Annealer(tour, temperature=3.0, seed=1).run(400)
    assert result.best_energy == tour.energy(result.best_state)
    assert result.energy == tour.energy(result.state)
    assert result.best_energy < result.energy  # so warm, the last is not the best


def test_counts(tour):
    annealer = Annealer(tour, temperature=1.0, seed=4)
    annealer.run(100)
    result = annealer.run(200)
    assert result.iterations == 300
    assert tour.evaluations == 301
    assert 0 < result.improved < result.accepted < 300
    assert result.acceptance_rate == result.accepted / 300


def test_the_planned_temperature_finds_the_known_answer(tour):
    for seed in range(5):
        result = Annealer(tour, seed=seed).run(iterations=5000)
        assert result.energy == result.best_energy == pytest.approx(tour.best, abs=1e-5)


def test_the_global_generator_is_neither_read_nor_moved(tour):
    random.seed(1)
    before = random.getstate()
    first = Annealer(tour, seed=5).run(200)
    assert random.getstate() == before
    random.seed(2)
    assert Annealer(tour, seed=5).run(200) == first
    assert Annealer(tour, seed=6).run(200) != first


class Watched(Tour):
    """Notes the temperature of every move, and where it starts."""

    def __init__(self, scale=1.0):
        super().__init__(scale)
        self.annealer, self.moves = Annealer(self), []

    def propose(self, state, rng):
        self.moves.append((self.annealer.temperature / self.scale, state))
        return super().propose(state, rng)


@pytest.mark.parametrize("scale", [1024.0, 2.0**-20])
def test_scaling_the_energy_changes_no_decision_of_the_planned_temperature(scale):
    plain, scaled = Watched(), Watched(scale)
    results = [each.annealer.run(800) for each in (plain, scaled)]
    assert plain.moves == scaled.moves
    assert 0 < results[0].accepted == results[1].accepted < 800


def test_the_plan_covers_the_length_of_the_first_run():
    tour = Watched()
    tour.annealer.run(iterations=1000)
    unit = tour.annealer._schedule.unit
    cooling = [temperature for temperature, _ in tour.moves[100:]]  # some 50 moves measure
    assert cooling == sorted(cooling, reverse=True)
    assert len(set(cooling)) == len(cooling)
    assert 0.3 * unit < cooling[0] < 0.4 * unit
    assert cooling[-2] < 1e-5 * unit
    assert cooling[-1] == 0.0
    tour.annealer.run(iterations=50)  # after the plan it goes on greedily
    assert {temperature for temperature, _ in tour.moves[-51:]} == {0.0}


def test_a_look_at_the_initial_solution_plans_nothing(tour):
    looked = Annealer(tour, seed=9)
    result = looked.run(iterations=0)
    assert (result.iterations, result.acceptance_rate) == (0, 0.0)
    assert looked.temperature == 0.0
    assert looked.run(iterations=400) == Annealer(tour, seed=9).run(iterations=400)


@pytest.mark.parametrize("temperature", [None, 0.0, 1.0, math.inf])
def test_infeasible_and_broken_solutions_are_never_kept(temperature):
    result = Annealer(Table(5.0, math.inf, math.nan, -math.inf), temperature=temperature).run(40)
    assert (result.state, result.best_energy, result.accepted) == (0, 5.0, 10)


@pytest.mark.parametrize("temperature", [None, 0.0, 1.0, math.inf])
def test_from_an_infeasible_start_the_first_finite_energy_is_accepted(temperature):
    result = Annealer(Table(math.inf, math.inf, 1e9, 1e9), temperature=temperature).run(3)
    assert (result.best_state, result.best_energy) == (2, 1e9)
    assert (result.accepted, result.improved) == (2, 1)


@pytest.mark.parametrize("kind", [int, Fraction])
def test_energies_may_be_any_kind_of_number(kind):
    result = Annealer(Table(kind(3), kind(1), kind(2)), temperature=0.0).run(5)
    assert result.best_energy == 1.0
    assert isinstance(result.best_energy, float)


class Listed:
    """The square of the sum of a list; a move may return the list that it is given."""

    def __init__(self, *, changed):
        self.changed = changed

    def initial(self, rng):
        return [10.0, 5.0]

    def propose(self, state, rng):
        if self.changed:
            state[rng.randrange(2)] += rng.uniform(-1, 1)
        return state if rng.random() < 0.5 else [value + rng.uniform(-1, 1) for value in state]

    def energy(self, state):
        return sum(state) ** 2


def test_a_move_that_changes_the_solution_in_place_is_refused():
    with pytest.raises(TypeError, match="from propose"):
        Annealer(Listed(changed=True)).run(iterations=10)
    result = Annealer(Listed(changed=False)).run(iterations=300)  # it may lead nowhere
    assert result.best_energy == sum(result.best_state) ** 2


CONSTRUCTIONS = {
    "planned": {},
    "constant": {"temperature": 0.5},
    "geometric per step": {"temperature": Geometric(1.0, 0.99, per="step")},
    "geometric per epoch": {"temperature": Geometric(1.0, 0.7), "iterations_per_epoch": 30},
    "reheating": {"temperature": Reheating(Geometric(1.0, 0.97, per="step"), every=70, times=3)},
    "automatic": {"temperature": Automatic(probes=50)},
}


class Failing(Tour):
    """Fails at an evaluation, once."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def energy(self, state):
        if self.evaluations == self.at:
            self.at = None
            raise KeyboardInterrupt
        return super().energy(state)


@pytest.mark.parametrize("arguments", CONSTRUCTIONS.values(), ids=CONSTRUCTIONS)
@pytest.mark.parametrize("cut", [1, 90, 250])
def test_what_was_interrupted_and_pickled_goes_on(arguments, cut):
    annealer = Annealer(Failing(cut + 1), seed=11, **arguments)
    with pytest.raises(KeyboardInterrupt):
        annealer.run(iterations=400)
    twin = pickle.loads(pickle.dumps(annealer))
    assert twin.run(0).iterations == annealer.run(0).iterations == cut
    assert twin.run(iterations=400 - cut) == annealer.run(iterations=400 - cut)
    assert twin.temperature == annealer.temperature


PER_STEP = Geometric(1.0, 0.9, per="step")
PER_EPOCH = Geometric(1.0, 0.9)


@pytest.mark.parametrize(
    ("arguments", "error", "argument"),
    [
        ({"temperature": -1}, ValueError, "(temperature=...)"),
        ({"temperature": "hot"}, TypeError, "(temperature=...)"),
        ({"seed": -1}, ValueError, "(seed=...)"),
        ({"seed": 0.5}, TypeError, "(seed=...)"),
        ({"iterations_per_epoch": 0}, ValueError, "(iterations_per_epoch=...)"),
        ({"temperature": PER_EPOCH}, ValueError, "(iterations_per_epoch=...)"),
        (
            {"temperature": PER_STEP, "iterations_per_epoch": 10},
            ValueError,
            "(iterations_per_epoch=...)",
        ),
        ({"iterations_per_epoch": 10}, ValueError, "(iterations_per_epoch=...)"),
    ],
)
def test_bad_arguments_are_named(tour, arguments, error, argument):
    with pytest.raises(error, match=re.escape(f"Annealer{argument}")):
        Annealer(tour, **arguments)


@pytest.mark.parametrize("energy", [math.nan, -math.inf])
def test_a_first_energy_that_nothing_can_be_compared_with(energy):
    with pytest.raises(ValueError, match=re.escape("Annealer(problem=...)")):
        Annealer(Table(energy, 1.0)).run(1)


def test_a_later_energy_that_is_no_number_leaves_the_search_where_it_was():
    annealer = Annealer(Table(3.0, 2.0, [1.5]), temperature=0.0)
    with pytest.raises(TypeError):
        annealer.run(10)
    result = annealer.run(0)
    assert (result.iterations, result.state, result.energy) == (1, 1, 2.0)


def test_the_search_needs_nothing_but_the_standard_library():
    code = (
        "import sys; before = set(sys.modules); import annealtune.search;"
        "roots = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(roots - set(sys.stdlib_module_names)))"
    )
    environment = {"PYTHONPATH": str(Path(annealtune.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['annealtune']"
