"""Random numbers by address: a seed, a purpose and a counter name one generator.

A generator made anew for each epoch or minibatch needs no state: the epoch and the position are
the state. That is what lets a run resume anywhere with the very same minibatches.
"""

from enum import IntEnum

import torch
from numpy.random import SeedSequence


class Purpose(IntEnum):
    """What random numbers are for; two purposes never share a stream. Never renumber."""

    ORDER = 0
    AUGMENTATION = 1
    SAMPLE = 2
    SUBSET = 3
    SPLIT = 4
    HELD_OUT_SPLIT = 5
    HELD_OUT_ORDER = 6


def generator(seed: int, purpose: Purpose, *counters: int) -> torch.Generator:
    """Return a fresh CPU generator that depends on nothing but the arguments.

    The counters are numbers such as the epoch and the position in it.

    Raises:
        ValueError: If a number is negative.

    Example:
        >>> first, again = (generator(0, Purpose.ORDER, 7) for _ in range(2))
        >>> first.initial_seed() == again.initial_seed()
        True
    """
    address = (seed, int(purpose), *counters)
    if min(address) < 0:
        raise ValueError(f"seed and counters must not be negative, got {seed} and {counters}")
    (word,) = SeedSequence(address).generate_state(1, "uint64")
    return torch.Generator().manual_seed(int(word))
