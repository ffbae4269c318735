"""Strategies driven by values that are written down, and generators that are."""

import json
import random

import pytest


class ScriptedRandom(random.Random):
    """Returns the given numbers, one after the other, and knows how many are left."""

    def __init__(self, *numbers):
        super().__init__(0)
        self.numbers = list(numbers)

    def random(self):
        return self.numbers.pop(0)


@pytest.fixture
def scripted():
    return ScriptedRandom


@pytest.fixture
def through_json():
    """Carry what one strategy remembers over to another, by way of JSON text."""

    def carry(strategy, twin):
        twin.load_state_dict(json.loads(json.dumps(strategy.state_dict())))
        return twin

    return carry


@pytest.fixture
def decide_all(through_json):
    """Make all moves; before move number ``cut``, continue with a restored strategy."""

    def run(make, moves, cut=None):
        strategy, rng = make(), random.Random(0)
        verdicts = []
        for number, (value, new_value) in enumerate(moves):
            if number == cut:
                strategy = through_json(strategy, make())
            verdicts.append(strategy.decide(value, new_value, rng))
            strategy.tick("step")
        return verdicts

    return run
