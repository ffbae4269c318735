"""A saved search continues the very same trajectory."""

import copy
import json
import pickle

import pytest

from annealtune.annealing import Automatic, Constant, Geometric, Reheating
from annealtune.search import Annealer

CONSTRUCTIONS = {
    "planned": {},
    "planned per epoch": {"iterations_per_epoch": 30},
    "constant": {"temperature": 0.5},
    "geometric per step": {"temperature": Geometric(1.0, 0.99, per="step")},
    "geometric per epoch": {"temperature": Geometric(1.0, 0.7), "iterations_per_epoch": 30},
    "reheating": {"temperature": Reheating(Geometric(1.0, 0.97, per="step"), every=70, times=3)},
    "automatic": {"temperature": Automatic(probes=50)},
}


@pytest.mark.parametrize("arguments", CONSTRUCTIONS.values(), ids=CONSTRUCTIONS)
@pytest.mark.parametrize("cut", [1, 10, 89, 90, 250, 399])
def test_resumed_through_json_text_from_the_middle_of_a_run(scaled_tour, arguments, cut):
    whole, saved, rest = [], [], []

    def save(info):
        whole.append(info)
        if info.iteration == cut:
            saved.append(json.dumps(first.state_dict()))

    first = Annealer(scaled_tour(), seed=11, callback=save, **arguments)
    expected = first.run(iterations=400)
    # Another seed, so that everything must come from the saved state.
    second = Annealer(scaled_tour(), seed=99, callback=rest.append, **arguments)
    second.load_state_dict(json.loads(saved[0]))
    assert second.run(iterations=400 - cut) == expected
    assert rest == whole[cut:]
    assert json.dumps(second.state_dict()) == json.dumps(first.state_dict())


def test_a_search_by_time_is_resumed_at_its_temperature(tour):
    first = Annealer(tour, callback=lambda info: info.iteration in (1500, 1600))
    first.run(seconds=1000)
    second = Annealer(tour, callback=lambda info: info.iteration == 1600)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.temperature == first.temperature < float("inf")
    assert second.run(seconds=1000) == first.run(seconds=1000)


@pytest.mark.parametrize("arguments", CONSTRUCTIONS.values(), ids=CONSTRUCTIONS)
def test_saved_before_the_first_run(tour, arguments):
    state = json.loads(json.dumps(Annealer(tour, seed=3, **arguments).state_dict()))
    resumed = Annealer(tour, seed=4, **arguments)
    resumed.load_state_dict(state)
    assert resumed.run(100) == Annealer(tour, seed=3, **arguments).run(100)


def test_loading_an_unbegun_state_begins_again(tour):
    fresh = Annealer(tour, seed=3).state_dict()
    used = Annealer(tour, seed=4)
    used.run(50)
    used.load_state_dict(fresh)
    assert used.run(100) == Annealer(tour, seed=3).run(100)


def test_two_runs_are_one_where_the_temperature_is_given(tour):
    schedule = Geometric(1.0, 0.99, per="step")
    parts = Annealer(tour, temperature=schedule)
    parts.run(123)
    assert parts.run(277) == Annealer(tour, temperature=schedule).run(400)


def test_a_saved_state_does_not_follow_the_search(tour):
    annealer = Annealer(tour)
    annealer.run(iterations=30)
    state = annealer.state_dict()
    text = json.dumps(state)
    annealer.run(iterations=30)
    assert json.dumps(state) == text


def test_a_loaded_state_can_be_loaded_again(tour):
    annealer = Annealer(tour)
    annealer.run(iterations=30)
    state = annealer.state_dict()
    results = []
    for _ in range(2):
        annealer.load_state_dict(state)
        results.append(annealer.run(iterations=50))
    assert results[0] == results[1]


def test_an_error_in_the_callback_loses_nothing(tour):
    def fail(info):
        if info.iteration == 37:
            raise KeyboardInterrupt

    annealer = Annealer(tour, temperature=0.5, callback=fail)
    with pytest.raises(KeyboardInterrupt):
        annealer.run(iterations=100)
    assert annealer.run(iterations=0).iterations == 37
    assert annealer.run(iterations=63) == Annealer(tour, temperature=0.5).run(iterations=100)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))])
def test_copies_continue_on_their_own(duplicate):
    annealer = Annealer(Parabola())
    annealer.run(iterations=50)
    twin = duplicate(annealer)
    assert twin.run(iterations=50) == annealer.run(iterations=50)


class Parabola:
    def initial(self, rng):
        return rng.gauss(0, 1)

    def propose(self, state, rng):
        return state + rng.gauss(0, 0.1)

    def energy(self, state):
        return state * state


def test_the_second_half_of_a_pair_of_normal_numbers_is_saved():
    # random.gauss makes two numbers at once and keeps one of them for the next call.
    first = Annealer(Parabola(), temperature=0.1)
    first.run(iterations=20)  # 21 numbers: one is left
    second = Annealer(Parabola(), temperature=0.1)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.run(iterations=20) == first.run(iterations=20)


@pytest.mark.parametrize(
    ("arguments", "spoil", "parts"),
    [
        ({}, lambda state: None, ["Annealer.load_state_dict(state=...)", "state_dict", "None"]),
        ({}, lambda state: {"rng": 1}, ["Annealer.load_state_dict(state=...)", "walk", "['rng']"]),
        (
            {"temperature": 1.0},
            lambda state: state,
            ["Annealer.load_state_dict(state=...)", "same kind", "'Constant'", "got 'planned'"],
        ),
        (
            {"temperature": Geometric(1.0, 0.9, per="step")},
            lambda state: {**state, "schedule": "Constant"},
            ["Annealer.load_state_dict(state=...)", "'Geometric'", "got 'Constant'"],
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(tour, arguments, spoil, parts):
    source = Annealer(tour)
    source.run(10)
    target = Annealer(tour, seed=5, **arguments)
    with pytest.raises(ValueError, match="load_state_dict") as caught:
        target.load_state_dict(spoil(source.state_dict()))
    for part in parts:
        assert part in str(caught.value)
    assert target.run(50) == Annealer(tour, seed=5, **arguments).run(50)


def test_a_constant_infinite_temperature_survives_json(tour):
    first = Annealer(tour, temperature=Constant(float("inf")))
    first.run(10)
    second = Annealer(tour, temperature=Constant(float("inf")))
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.run(10) == first.run(10)
