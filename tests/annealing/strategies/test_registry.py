"""Strategies by name, as configurations and the command line ask for them."""

import inspect

import pytest

from annealtune.annealing import (
    STRATEGIES,
    Genetic,
    Geometric,
    PlainStrategy,
    SimulatedAnnealing,
    Verdict,
    make_strategy,
    strategies,
    takes_temperature,
)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_name_makes_its_class(name):
    made = make_strategy("Owner", name, {}, temperature=0.5)
    assert type(made) is STRATEGIES[name]


def test_every_strategy_of_the_package_has_a_name():
    public = [getattr(strategies, name) for name in strategies.__all__]
    classes = {thing for thing in public if inspect.isclass(thing)}
    runnable = {
        cls for cls in classes if issubclass(cls, PlainStrategy) and cls is not PlainStrategy
    }
    assert set(STRATEGIES.values()) == runnable


def test_the_names_are_those_of_the_classes_in_lower_case():
    for name, cls in STRATEGIES.items():
        assert name.replace("-", "") == cls.__name__.lower()


def test_the_temperature_goes_to_those_that_take_one():
    taking = [name for name, cls in STRATEGIES.items() if takes_temperature(cls)]
    assert taking == ["simulated-annealing", "threshold-accepting", "genetic"]
    for name in taking:
        schedule = Geometric(2.0, 0.5)
        assert make_strategy("Owner", name, {}, schedule).temperature == 2.0


def test_options_reach_the_constructor():
    made = make_strategy("Owner", "genetic", {"population": 5, "mutation": 0.5}, 0.0)
    assert isinstance(made, Genetic)
    assert (made.population, made.mutation) == (5, 0.5)


class Mine(PlainStrategy):
    def __init__(self, *, patience=3):
        self.patience = patience

    def decide(self, value, new_value, rng):
        return Verdict.of(value, new_value, accepted=True)


class Warm(SimulatedAnnealing):
    def __init__(self, temperature, **options):
        super().__init__(temperature)
        self.options = options


def test_a_class_of_the_users_own():
    made = make_strategy("Owner", Mine, {"patience": 7}, temperature=0.5)
    assert (type(made), made.patience) == (Mine, 7)
    warm = make_strategy("Owner", Warm, {"anything": 1}, temperature=0.5)
    assert (warm.temperature, warm.options) == (0.5, {"anything": 1})


@pytest.mark.parametrize(
    ("strategy", "options", "error", "parts"),
    [
        (
            "tabuu",
            {},
            ValueError,
            [
                "Owner(strategy=...)",
                "one of simulated-annealing, ",
                "'tabuu'; did you mean 'tabu'?",
            ],
        ),
        ("Hill_Climbing", {}, ValueError, ["'Hill_Climbing'; did you mean 'hill-climbing'?"]),
        ("zzz", {}, ValueError, ["Owner(strategy=...)", "late-acceptance", "got 'zzz'"]),
        (
            "tabu",
            {"tenur": 3},
            ValueError,
            ["Tabu", "tenure, candidates", "got 'tenur'; did you mean 'tenure'?"],
        ),
        (
            "hill-climbing",
            {"x": 3},
            ValueError,
            ["HillClimbing has no options: there must be none, got 'x'"],
        ),
        ("genetic", {"temperature": 3}, ValueError, ["Genetic", "trials", "got 'temperature'"]),
        (Warm, {"temperature": 3}, ValueError, ["Warm", "got 'temperature'"]),
        (Mine, {"patient": 3}, ValueError, ["Mine", "patience", "got 'patient'; did you mean"]),
        ("tabu", {"tenure": -1}, ValueError, ["Tabu(tenure=...)", "at least 0", "-1"]),
        (3, {}, TypeError, ["Owner(strategy=...)", "name of a strategy or a class", "got 3"]),
        (Mine(), {}, TypeError, ["Owner(strategy=...)", "name of a strategy or a class", "Mine()"]),
        (dict, {}, TypeError, ["Owner(strategy=...)", "a Strategy", "{} from dict"]),
    ],
)
def test_bad_input_says_what_there_is(strategy, options, error, parts):
    with pytest.raises(error) as caught:
        make_strategy("Owner", strategy, options, temperature=0.5)
    for part in parts:
        assert part in str(caught.value)
