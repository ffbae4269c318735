"""Algorithm 1: against a reference written by hand, and what it promises beside it."""

import itertools
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


@pytest.fixture
def record():
    """A callback that keeps what it is told, in its attribute ``infos``."""

    class Record:
        def __init__(self):
            self.infos = []

        def __call__(self, info):
            self.infos.append(info)

    return Record()


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


def test_counts(tour, record):
    annealer = Annealer(tour, temperature=1.0, seed=4, callback=record)
    annealer.run(100)
    result = annealer.run(200)
    assert result.iterations == 300
    assert tour.evaluations == 301
    assert result.accepted == sum(info.accepted for info in record.infos)
    assert result.improved == sum(info.worsening < 0 for info in record.infos)
    assert 0 < result.improved < result.accepted < 300
    assert result.acceptance_rate == result.accepted / 300
    assert [info.iteration for info in record.infos] == list(range(1, 301))


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


@pytest.mark.parametrize("scale", [1024.0, 2.0**-20])
def test_scaling_the_energy_changes_no_decision_of_the_planned_temperature(scale):
    plain, scaled = [], []
    for problem, trace in ((Tour(), plain), (Tour(scale), scaled)):
        Annealer(problem, callback=trace.append).run(800)
    assert [info.state for info in scaled] == [info.state for info in plain]
    assert [info.accepted for info in scaled] == [info.accepted for info in plain]
    assert len({info.accepted for info in plain}) == 2


def test_the_plan_covers_the_length_of_the_first_run(tour, record):
    annealer = Annealer(tour, callback=record)
    annealer.run(iterations=1000)
    unit = annealer._schedule.unit
    changes = [number for number, info in enumerate(record.infos) if info.worsening != 0]
    measured = changes[50 - 1]  # the plan spends a twentieth of the moves on measuring
    cooling = [info.temperature for info in record.infos[measured + 1 :]]
    assert cooling == sorted(cooling, reverse=True)
    assert len(set(cooling)) == len(cooling)
    assert cooling[0] == pytest.approx(0.4 * unit, rel=0.01)
    assert cooling[-2] < 1e-5 * unit
    assert cooling[-1] == 0.0


def test_after_the_plan_the_search_goes_on_greedily(tour, record):
    annealer = Annealer(tour, callback=record)
    annealer.run(iterations=500)
    annealer.run(iterations=50)
    assert {info.temperature for info in record.infos[-51:]} == {0.0}


def test_a_look_at_the_initial_solution_plans_nothing(tour):
    looked = Annealer(tour, seed=9)
    result = looked.run(iterations=0)
    assert (result.iterations, result.acceptance_rate) == (0, 0.0)
    assert looked.temperature == 0.0
    assert looked.run(iterations=400) == Annealer(tour, seed=9).run(iterations=400)


@pytest.mark.parametrize("temperature", [None, 0.0, 1.0, math.inf])
def test_infeasible_and_broken_solutions_are_never_kept(temperature, record):
    problem = Table(5.0, math.inf, math.nan, -math.inf)
    result = Annealer(problem, temperature=temperature, callback=record).run(40)
    assert {info.state for info in record.infos} == {0}
    assert result.accepted == sum(info.new_energy == 5.0 for info in record.infos) == 10
    assert result.best_energy == 5.0


@pytest.mark.parametrize("temperature", [None, 0.0, 1.0, math.inf])
def test_from_an_infeasible_start_the_first_finite_energy_is_accepted(temperature, record):
    problem = Table(math.inf, math.inf, 1e9, 1e9)
    result = Annealer(problem, temperature=temperature, callback=record).run(3)
    assert [info.accepted for info in record.infos] == [False, True, True]
    assert (result.best_state, result.best_energy, result.improved) == (2, 1e9, 1)


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


def test_the_callback_stops_the_search(tour):
    result = Annealer(tour, callback=lambda info: info.iteration == 7).run(iterations=100)
    assert result.iterations == 7


CONSTRUCTIONS = {
    "planned": {},
    "constant": {"temperature": 0.5},
    "geometric per step": {"temperature": Geometric(1.0, 0.99, per="step")},
    "geometric per epoch": {"temperature": Geometric(1.0, 0.7), "iterations_per_epoch": 30},
    "reheating": {"temperature": Reheating(Geometric(1.0, 0.97, per="step"), every=70, times=3)},
    "automatic": {"temperature": Automatic(probes=50)},
}


@pytest.mark.parametrize("arguments", CONSTRUCTIONS.values(), ids=CONSTRUCTIONS)
@pytest.mark.parametrize("cut", [0, 1, 90, 250])
def test_a_search_that_was_pickled_goes_on_the_very_same(arguments, cut):
    first, second = (Annealer(Tour(), seed=11, **arguments) for _ in range(2))
    first.run(iterations=400)
    if cut:
        second.callback = Stop(cut)
        second.run(iterations=400)  # the length that is planned for
        second = pickle.loads(pickle.dumps(second))
    assert second.run(iterations=400 - cut) == first.run(0)


class Stop:
    """Stops a search at an iteration, once."""

    def __init__(self, at):
        self.at = at

    def __call__(self, info):
        return info.iteration == self.at


def test_an_error_in_the_callback_loses_nothing(tour):
    def fail(info):
        if info.iteration == 37:
            raise KeyboardInterrupt

    annealer = Annealer(tour, temperature=0.5, callback=fail)
    with pytest.raises(KeyboardInterrupt):
        annealer.run(iterations=100)
    assert annealer.run(iterations=0).iterations == 37
    assert annealer.run(iterations=63) == Annealer(tour, temperature=0.5).run(iterations=100)


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
