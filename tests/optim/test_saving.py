"""To save or copy a run changes nothing of it; a state of another run is refused."""

import copy
import pickle

import pytest
import torch
from torch.nn import functional as F

from annealtune import SGDSA, grid
from annealtune.annealing import STRATEGIES

H = grid(lr=[30.0, 0.3, 0.1, 0.03, 0.01], momentum=[0.0, 0.9])


def train(net, tuner, batches, between=lambda tuner: None):
    moves = []
    for number, (x, y) in enumerate(batches):
        tuner.step(lambda x=x, y=y: F.cross_entropy(net(x), y))
        moves.append(tuner.last_step)
        if number % 8 == 7:
            tuner.cool()
        between(tuner)
    return moves


def save_in_every_way(tuner):
    tuner.state_dict()
    copy.deepcopy(tuner)
    pickle.dumps(tuner)
    tuner.load_state_dict(tuner.state_dict())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_moment_of_a_checkpoint_changes_nothing(strategy, make_net, make_batches, bits):
    runs = []
    for between in (lambda tuner: None, save_in_every_way):
        net = make_net()
        tuner = SGDSA(net, H, strategy=strategy, average=True, epochs=4)
        torch.manual_seed(3)
        moves = train(net, tuner, make_batches(24), between)
        runs.append((moves, bits(net.state_dict()), bits(tuner.state_dict())))
    assert runs[0] == runs[1]


OTHERS = {
    "larger": grid(lr=[30.0, 0.3, 0.1, 0.03, 0.01, 0.003], momentum=[0.0, 0.9]),
    "smaller": grid(lr=[30.0, 0.3, 0.1, 0.03], momentum=[0.0, 0.9]),
    "other rates": grid(lr=[30.0, 0.3, 0.1, 0.03, 0.02], momentum=[0.0, 0.9]),
    "another order": grid(lr=[0.01, 0.03, 0.1, 0.3, 30.0], momentum=[0.0, 0.9]),
    "another option": grid(lr=[30.0, 0.3, 0.1, 0.03, 0.01], weight_decay=[0.0, 0.9]),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_state_of_another_h_is_refused_as_a_whole(strategy, other, make_net, make_batches, bits):
    net = make_net()
    tuner = SGDSA(net, H, strategy=strategy)
    train(net, tuner, make_batches(3))
    receiver = SGDSA(make_net(), other, strategy=strategy)
    before = bits(receiver.state_dict())
    with pytest.raises(ValueError, match=r"SGDSA.load_state_dict: .* the same H.*got 10, among"):
        receiver.load_state_dict(tuner.state_dict())
    assert bits(receiver.state_dict()) == before


def test_weights_that_are_loaded_between_two_steps_stay(make_net, make_batches, bits):
    net, other = make_net(), make_net(seed=1)
    tuner = SGDSA(net, grid(lr=[1e30]), temperature=0.0)  # every step is undone
    for x, y in make_batches(4):
        net.load_state_dict(other.state_dict())
        tuner.step(lambda x=x, y=y: F.cross_entropy(net(x), y))
        assert not tuner.last_step.accepted
        assert bits(list(net.parameters())) == bits(list(other.parameters()))
