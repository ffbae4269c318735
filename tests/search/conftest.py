"""Small problems with known answers."""

import math

import pytest


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
def scaled_tour():
    return Tour


@pytest.fixture
def table():
    return Table


@pytest.fixture
def record():
    """A callback that keeps what it is told, in its attribute ``infos``."""

    class Record:
        def __init__(self):
            self.infos = []

        def __call__(self, info):
            self.infos.append(info)

    return Record()
