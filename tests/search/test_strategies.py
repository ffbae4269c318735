"""Other accept tests in the annealer: against references written by hand, and what is refused."""

import json
import math
import random

import pytest

from annealtune.annealing import (
    Automatic,
    Genetic,
    Geometric,
    GreatDeluge,
    HillClimbing,
    LateAcceptance,
    PlainStrategy,
    RandomWalk,
    SimulatedAnnealing,
    Tabu,
    ThresholdAccepting,
    VariableNeighborhood,
    Verdict,
)
from annealtune.search import Annealer

COOLING = Geometric(1.0, 0.99, per="step")


def reference(problem, seed, accepts, iterations=500):
    """Algorithm 1 with another accept test; shares no code with the package."""
    rng = random.Random(seed)
    s = problem.initial(rng)
    energies = [problem.energy(s)]
    trace = []
    for i in range(iterations):
        s_new = problem.propose(s, rng)
        energy, new_energy = energies[-1], problem.energy(s_new)
        rng.random()  # one number an accept test, needed or not
        accepted = accepts(i, energies, new_energy)
        if accepted:
            s, energy = s_new, new_energy
        energies.append(energy)
        trace.append((s, accepted))
    return trace


def below_threshold(i, energies, new_energy):
    return new_energy - energies[-1] <= 0.99**i


def late(i, energies, new_energy):
    return new_energy <= max(energies[max(0, i + 1 - 20)], energies[-1])


def never_worse(i, energies, new_energy):
    return new_energy <= energies[-1]


def always(i, energies, new_energy):
    return True


class SinkingLevel:
    level = None

    def __call__(self, i, energies, new_energy):
        if self.level is None:
            self.level = energies[0]
        accepted = new_energy <= self.level or new_energy <= energies[-1]
        if accepted and new_energy < self.level:
            self.level -= 0.125 * (self.level - new_energy)
        return accepted


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("strategy", "accepts", "outcomes"),
    [
        (ThresholdAccepting(Geometric(1.0, 0.99, per="step")), below_threshold, {True, False}),
        (LateAcceptance(length=20), late, {True, False}),
        (GreatDeluge(rain=0.125), SinkingLevel, {True, False}),
        (HillClimbing(), never_worse, {True, False}),
        (RandomWalk(), always, {True}),
    ],
    ids=lambda part: type(part).__name__,
)
def test_it_follows_a_reference_for_500_iterations(tour, record, seed, strategy, accepts, outcomes):
    accepts = accepts() if isinstance(accepts, type) else accepts
    Annealer(tour, strategy=strategy, seed=seed, callback=record).run(500)
    expected = reference(tour, seed, accepts)
    assert [(info.state, info.accepted) for info in record.infos] == expected
    assert {accepted for _, accepted in expected} == outcomes


def test_simulated_annealing_given_as_a_strategy_is_the_same_as_its_temperature(tour):
    given = Annealer(tour, strategy=SimulatedAnnealing(COOLING))
    named = Annealer(tour, temperature=COOLING)
    assert given.run(300) == named.run(300)
    assert given.state_dict() == named.state_dict()


class Patient(PlainStrategy):
    """A user's own: keeps every move that is not worse, and every third that is."""

    def __init__(self):
        self.worse = 0
        self.epochs = 0

    def decide(self, value, new_value, rng):
        self.worse += new_value > value
        return Verdict.of(value, new_value, accepted=new_value <= value or self.worse % 3 == 0)

    def tick(self, clock):
        self.epochs += clock == "epoch"

    def state_dict(self):
        return {"worse": self.worse, "epochs": self.epochs}

    def load_state_dict(self, state):
        self.worse, self.epochs = state["worse"], state["epochs"]


def test_a_strategy_of_the_users_own_hears_both_clocks(table, record):
    annealer = Annealer(
        table(5.0, 6.0), strategy=Patient(), iterations_per_epoch=4, callback=record
    )
    annealer.run(9)
    # Every other proposal is worse until the third of these is kept, at iteration 5.
    assert [info.accepted for info in record.infos[:5]] == [False, True, False, True, True]
    assert annealer.state_dict()["temperature"]["epochs"] == 2
    assert math.isnan(record.infos[0].temperature)
    assert math.isnan(annealer.temperature)


STRATEGIES = {
    "simulated annealing": {"strategy": SimulatedAnnealing(Automatic(probes=20))},
    "threshold accepting": {"strategy": ThresholdAccepting(COOLING)},
    "threshold per epoch": {
        "strategy": ThresholdAccepting(Geometric(1.0, 0.8)),
        "iterations_per_epoch": 30,
    },
    "late acceptance": {"strategy": LateAcceptance(length=30)},
    "great deluge": {"strategy": GreatDeluge()},
    "hill climbing": {"strategy": HillClimbing()},
    "random walk": {"strategy": RandomWalk()},
    "a user's own": {"strategy": Patient(), "iterations_per_epoch": 7},
}
EVERY = pytest.mark.parametrize("arguments", STRATEGIES.values(), ids=STRATEGIES)


@EVERY
@pytest.mark.parametrize("cut", [1, 90, 299])
def test_resumed_through_json_text_from_the_middle_of_a_run(tour, arguments, cut):
    whole, saved, rest = [], [], []

    def save(info):
        whole.append(repr(info))  # NaN is not NaN
        if info.iteration == cut:
            saved.append(json.dumps(first.state_dict()))

    first = Annealer(tour, seed=11, callback=save, **arguments)
    expected = first.run(iterations=300)
    second = Annealer(tour, seed=99, callback=lambda i: rest.append(repr(i)), **arguments)
    second.load_state_dict(json.loads(saved[0]))
    assert second.run(iterations=300 - cut) == expected
    assert rest == whole[cut:]
    assert json.dumps(second.state_dict()) == json.dumps(first.state_dict())


@EVERY
def test_a_strategy_given_to_two_annealers_serves_both(tour, arguments):
    results = [Annealer(tour, **arguments).run(200) for _ in range(2)]
    assert results[0] == results[1]


def test_a_state_keeps_its_form(tour):
    annealer = Annealer(tour, temperature=0.5)
    annealer.run(1)
    state = annealer.state_dict()
    assert set(state) == {"walk", "rng", "schedule", "plan", "temperature"}
    assert (state["schedule"], state["plan"]) == ("Constant", None)
    assert state["temperature"] == {"temperature": 0.5}


@pytest.mark.parametrize(
    ("source", "target", "parts"),
    [
        (HillClimbing(), RandomWalk(), ["'RandomWalk'", "got 'HillClimbing'"]),
        (SimulatedAnnealing(1.0), ThresholdAccepting(1.0), ["ThresholdAccepting with Constant"]),
        (
            ThresholdAccepting(1.0),
            ThresholdAccepting(COOLING),
            ["ThresholdAccepting with Geometric", "got 'ThresholdAccepting with Constant'"],
        ),
    ],
)
def test_a_state_of_another_strategy_is_refused_and_changes_nothing(tour, source, target, parts):
    other = Annealer(tour, strategy=source)
    other.run(10)
    annealer = Annealer(tour, strategy=target, seed=5)
    with pytest.raises(ValueError, match="same kind of strategy and temperature") as caught:
        annealer.load_state_dict(other.state_dict())
    for part in parts:
        assert part in str(caught.value)
    assert annealer.run(50) == Annealer(tour, strategy=target, seed=5).run(50)


@pytest.mark.parametrize("strategy", [Tabu(), VariableNeighborhood(), Genetic(0.5)])
def test_a_strategy_that_chooses_among_settings_is_refused_with_the_reason(tour, strategy):
    with pytest.raises(TypeError, match=r"Annealer\(strategy=...\) must decide") as caught:
        Annealer(tour, strategy=strategy)
    for part in ("proposes its own", "no H", repr(strategy), "GeneticSearch"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "error", "parts"),
    [
        (
            {"strategy": HillClimbing(), "temperature": 0.5},
            ValueError,
            ["Annealer(strategy=..., temperature=...)", "one of the two", "0.5"],
        ),
        ({"strategy": 7}, TypeError, ["Annealer(strategy=...)", "a Strategy", "7"]),
        ({"strategy": HillClimbing}, TypeError, ["Annealer(strategy=...)", "HillClimbing"]),
        (
            {"strategy": ThresholdAccepting(Geometric(1.0, 0.9))},
            ValueError,
            ["Annealer(iterations_per_epoch=...)", "must be given", "Geometric"],
        ),
        (
            {"strategy": ThresholdAccepting(COOLING), "iterations_per_epoch": 5},
            ValueError,
            ["Annealer(iterations_per_epoch=...)", "left out", "5"],
        ),
    ],
)
def test_bad_input_names_class_argument_rule_and_value(tour, arguments, error, parts):
    with pytest.raises(error) as caught:
        Annealer(tour, **arguments)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "strategy", [LateAcceptance(length=200), ThresholdAccepting(COOLING)], ids=repr
)
def test_they_find_the_known_answer(tour, strategy):
    for seed in range(3):
        result = Annealer(tour, strategy=strategy, seed=seed).run(5000)
        assert result.best_energy == pytest.approx(tour.best, abs=1e-5)


def test_a_name_is_the_strategy_with_its_defaults(tour):
    named = Annealer(tour, strategy="late-acceptance", seed=2).run(iterations=300)
    built = Annealer(tour, strategy=LateAcceptance(), seed=2).run(iterations=300)
    assert (named.best_energy, named.energy) == (built.best_energy, built.energy)


def test_a_strategy_that_learns_from_its_moves_hears_of_every_one(tour):
    class Learner(HillClimbing):
        def __init__(self):
            self.heard = []

        def observe(self, setting, verdict):
            self.heard.append(verdict)

    annealer = Annealer(tour, strategy=Learner(), seed=0, callback=lambda info: seen.append(info))
    seen = []
    annealer.run(iterations=50)
    heard = annealer._strategy.heard
    assert [verdict.accepted for verdict in heard] == [info.accepted for info in seen]
    assert {verdict.accepted for verdict in heard} == {True, False}


@pytest.mark.parametrize(
    ("name", "error", "part"),
    [
        ("late-acceptence", ValueError, "did you mean 'late-acceptance'"),
        ("threshold-accepting", ValueError, "ThresholdAccepting(temperature)"),
        ("tabu", TypeError, "a problem proposes its own"),
    ],
)
def test_names_that_do_not_serve(tour, name, error, part):
    with pytest.raises(error) as caught:
        Annealer(tour, strategy=name)
    assert part in str(caught.value)
