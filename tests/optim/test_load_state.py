"""A state is loaded as a whole, or it is refused in our words and nothing is changed."""

import copy
import math
import random

import pytest
import torch
from torch.nn import functional as F

from annealtune import SGDSA, EmbeddedTuner, SelfTuner, StochasticSA, grid

MISSING = object()
VALUES = [
    MISSING,
    None,
    "x",
    b"z",
    -1,
    math.nan,
    10**30,
    True,
    [],
    {},
    {"a": 1},
    torch.zeros(2, 3),
]


def self_tuner(net):
    return SelfTuner(torch.optim.AdamW(net.parameters(), lr=0.01), net, total_steps=200)


def embedded(net):
    base = torch.optim.AdamW(net.parameters(), lr=0.01)
    return EmbeddedTuner(base, net, strategy="tabu", total_steps=50)


def sgd_sa(net):
    return SGDSA(net, grid(lr=[5.0, 0.1]), epochs=4)


def stochastic_sa(net):
    return StochasticSA(net, preset="paper-code", batch_size=16)


# Optimizers, the step at which the state is taken, and the one at which the receiver stands.
CASES = {
    "in a race": (self_tuner, 3, 2),
    "after a race": (self_tuner, 25, 20),
    "from a race": (self_tuner, 3, 20),
    "into a race": (self_tuner, 20, 3),
    "before a race": (self_tuner, 3, 0),
    "embedded": (embedded, 5, 3),
    "SGD-SA": (sgd_sa, 5, 3),
    "stochastic SA": (stochastic_sa, 5, 3),
}


def train(net, optimizer, batches):
    for x, y in batches:
        optimizer.step(lambda x=x, y=y: F.cross_entropy(net(x), y))


@pytest.fixture
def begun(make_net, make_batches):
    def begun(make, steps, seed=0):
        net = make_net(seed)
        optimizer = make(net)
        train(net, optimizer, make_batches(steps, seed=seed))
        for value in (1.0, 0.5):
            optimizer.validate(lambda value=value: value)
        return net, optimizer

    return begun


@pytest.fixture
def everything(bits):
    """What a load could change, bit for bit; what is no part of a state, by identity."""

    def everything(net, optimizer):
        return (
            bits(net.state_dict()),
            bits(optimizer.state_dict()),
            getattr(optimizer, "last_step", None),
            [id(group) for group in optimizer.param_groups],
            [id(value) for entry in optimizer.state.values() for value in entry.values()],
            torch.get_rng_state().tolist(),
        )

    return everything


@pytest.fixture
def refused(everything):
    """Expect a refusal in our words that changes nothing; return what it says."""

    def refused(net, optimizer, state):
        before = everything(net, optimizer)
        name = type(optimizer).__name__
        with pytest.raises((ValueError, TypeError), match=f"^{name}") as raised:
            optimizer.load_state_dict(state)
        assert everything(net, optimizer) == before
        return str(raised.value)

    return refused


def own(state):
    return state["param_groups"][0]["annealtune"]


def places(value, path=()):
    """Return the path of every entry; of a long list that of the first few."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list | tuple):
        for index in range(min(len(value), 4)):
            yield from places(value[index], (*path, index))


def damaged(state, path, value):
    """Return a state with another entry at one place; the rest of it is shared."""
    if not path:
        return value
    key, *rest = path
    entries = dict(state) if isinstance(state, dict) else dict(enumerate(state))
    entries[key] = damaged(entries[key], rest, value)
    if entries[key] is MISSING:
        del entries[key]
    return entries if isinstance(state, dict) else type(state)(entries.values())


def error_of(optimizer, state):
    """Load a state; return what is said against it, if anything is."""
    try:
        optimizer.load_state_dict(state)
    except (ValueError, TypeError) as error:
        return str(error)


def check_damages(begun, everything, make_batches, case, count=None):
    make, saved_at, loaded_at = CASES[case]
    state = begun(make, saved_at)[1].state_dict()
    spare = begun(make, loaded_at, seed=1)
    receiver = copy.deepcopy(spare)
    before = everything(*receiver)
    damages = [(path, value) for path in places(state) for value in VALUES]
    damages = [(path, value) for path, value in damages if path or value is not MISSING]
    if count is not None:
        damages = random.Random(case).sample(damages, count)
    refusals = 0
    for path, value in damages:
        said = error_of(receiver[1], damaged(copy.deepcopy(state), path, value))
        if said is None:
            receiver = copy.deepcopy(spare)
            before = everything(*receiver)
        else:
            assert said.startswith(type(receiver[1]).__name__), (path, value)
            assert everything(*receiver) == before, (path, value)
            refusals += 1
    assert refusals > len(damages) / 5
    after = make_batches(3, seed=2)
    for run in (receiver, spare):  # as if it had never been tried
        torch.manual_seed(3)
        train(*run, after)
    assert everything(*receiver)[:3] == everything(*spare)[:3]


@pytest.mark.parametrize("case", CASES)
def test_a_damage_anywhere(begun, everything, make_batches, case):
    check_damages(begun, everything, make_batches, case, count=40)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_damage_everywhere(begun, everything, make_batches, case):
    check_damages(begun, everything, make_batches, case)


@pytest.mark.parametrize("case", CASES)
def test_a_whole_state_is_loaded(begun, bits, case):
    make, saved_at, loaded_at = CASES[case]
    _, giver = begun(make, saved_at)
    _, optimizer = begun(make, loaded_at, seed=1)
    if make is self_tuner:
        assert (giver.is_racing, optimizer.is_racing) == (saved_at < 10, loaded_at < 10)
    state = giver.state_dict()
    optimizer.load_state_dict(copy.deepcopy(state))
    assert bits(optimizer.state_dict()) == bits(state)


MAKERS = [self_tuner, embedded, sgd_sa, stochastic_sa]


@pytest.mark.parametrize("receiver", MAKERS)
@pytest.mark.parametrize("giver", MAKERS)
def test_a_state_of_another_class(begun, refused, giver, receiver):
    if giver is receiver:
        return
    state = begun(giver, 4)[1].state_dict()
    refused(*begun(receiver, 3, seed=1), state)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_state_over_another_base(begun, refused, momentum):
    def over_sgd(net):
        base = torch.optim.SGD(net.parameters(), lr=0.1, momentum=momentum)
        return SelfTuner(base, net, total_steps=200)

    for giver, receiver in ((over_sgd, self_tuner), (self_tuner, over_sgd)):
        refused(*begun(receiver, 2, seed=1), begun(giver, 4)[1].state_dict())


def test_a_bare_state_of_another_base(begun, refused):
    net, tuner = begun(self_tuner, 2)
    state = torch.optim.SGD(net.parameters(), lr=0.1).state_dict()
    assert "betas" in refused(net, tuner, state)


@pytest.mark.parametrize("place", [("first.weight",), ("norm.running_var",), ()])
def test_trained_weights_that_are_damaged(begun, refused, bits, place):
    """The state that is taken between ``eval`` and ``train`` has them beside the average."""
    _, giver = begun(self_tuner, 25)
    giver.eval()
    state = giver.state_dict()
    assert own(state)["trained_weights"]
    path = ("param_groups", 0, "annealtune", "trained_weights", *place)
    net, tuner = begun(self_tuner, 22, seed=1)
    trained = bits(net.state_dict())
    # The last one has no values, and the right shape but for the first place.
    for value in (None, "x", torch.zeros(2, 3), torch.zeros(12, device="meta")):
        refused(net, tuner, damaged(state, path, value))
        tuner.eval()
        assert bits(net.state_dict()) != trained
        refused(net, tuner, damaged(state, path, value))
        tuner.train()  # is still to come
        assert bits(net.state_dict()) == trained
