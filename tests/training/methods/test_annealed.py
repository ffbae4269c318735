"""A method without a word in its block is Algorithm 2 all the same, over its default H."""

import pytest
import torch

from annealtune import SGDSA, EmbeddedTuner, grid
from annealtune.annealing import PAPER_RATES, SimulatedAnnealing

EPOCHS = 3


def adamw(model):
    rates = [1e-4, 10**-3.6666666666666667, 10**-3.3333333333333333, 1e-3]
    rates += [10**-2.6666666666666667, 10**-2.3333333333333333, 1e-2]
    neighborhood = grid(lr=[float(f"{rate:.12g}") for rate in rates])
    base = torch.optim.AdamW(model.parameters())
    return EmbeddedTuner(base, model=model, neighborhood=neighborhood, epochs=EPOCHS)


def sgd(model):
    return SGDSA(model, grid(lr=PAPER_RATES), epochs=EPOCHS)


@pytest.mark.parametrize(("method", "make"), [("adamw-sa", adamw), ("sgd-sa", sgd)])
def test_it_is_the_librarys_tuner(session, trained, by_hand, by_the_library, method, make):
    made = session(method=method, epochs=EPOCHS)
    tuner = made.method._optimizer
    assert isinstance(tuner.strategy, SimulatedAnnealing)
    assert not tuner.averages
    found = trained(made, epochs=EPOCHS)
    model, batches = by_hand()  # seeds torch's generator, as a session does
    expected = by_the_library(make(model), model, batches, epochs=EPOCHS)
    assert found == expected
    assert len({move.setting for move in expected}) > 3
