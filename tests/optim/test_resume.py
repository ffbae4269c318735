"""Save at step 50 by any route, resume in new objects: the same next 50 steps, to the last bit."""

import copy
import io
import math
import pickle
import random

import pytest
import torch
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.nn import functional as F

from annealtune import SGDSA, EmbeddedTuner, StochasticSA, grid
from annealtune.annealing import SimulatedAnnealing
from annealtune.temperatures import Geometric, Reheating


class Gaussian(SimulatedAnnealing):
    """A strategy that draws from a generator what the generator keeps in store."""

    def pick(self, neighborhood, rng):
        return neighborhood[int(abs(rng.gauss(0, 1)) * 10) % len(neighborhood)]


STRATEGIES = ["simulated-annealing", "tabu", "variable-neighborhood", "genetic"]
RATES = grid(lr=[30.0, 1.0, 0.1])


def adamw(net):
    base = torch.optim.AdamW(net.parameters(), lr=0.01, amsgrad=True)
    return EmbeddedTuner(
        base, net, neighborhood=grid(lr=[3.0, 0.01], weight_decay=[0.0, 0.1]), epochs=10
    )


def momentum_in_the_neighborhood(net):
    return SGDSA(net, grid(lr=[30.0, 0.1], momentum=[0.0, 0.9], nesterov=[False, True]))


def paper_code(net):
    return SGDSA(net, RATES, preset="paper-code", batch_size=16)


def reheating(net):
    schedule = Reheating(Geometric(0.1, 0.8, per="step"), every=7, times=9)
    return SGDSA(net, RATES, temperature=schedule, seed=-3)


def strategy_of_the_users_own(net):
    return SGDSA(net, RATES, strategy=Gaussian(0.01))


def stochastic_sa(net):
    return StochasticSA(net, epochs=12)


def stochastic_sa_as_published(net):
    return StochasticSA(net, preset="paper-code", batch_size=16)


KINDS = [
    adamw,
    momentum_in_the_neighborhood,
    paper_code,
    reheating,
    strategy_of_the_users_own,
    stochastic_sa,
    stochastic_sa_as_published,
]


def train(net, optimizer, batches, between=lambda optimizer: None):
    """Train and cool after every seventh step, counted by the optimizer itself."""
    moves = []
    for x, y in batches:
        optimizer.step(lambda x=x, y=y: F.cross_entropy(net(x).float(), y))
        moves.append(optimizer.last_step)
        if optimizer.moves.total.tried % 7 == 0:
            optimizer.cool()
        between(optimizer)
    return moves


def by_file(net, optimizer, make):
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    states = torch.load(file, weights_only=True)
    net, optimizer = make()
    net.load_state_dict(states["net"])
    optimizer.load_state_dict(states["optimizer"])
    return net, optimizer


def by_pickle(net, optimizer, make):
    return pickle.loads(pickle.dumps((net, optimizer)))


def by_deepcopy(net, optimizer, make):
    return copy.deepcopy((net, optimizer))


def by_distributed_checkpoint_of_a_file(net, optimizer, make):
    optimizer.zero_grad()
    file = io.BytesIO()
    torch.save(get_optimizer_state_dict(net, optimizer), file)
    file.seek(0)
    weights = copy.deepcopy(net.state_dict())
    net, optimizer = make()
    net.load_state_dict(weights)
    state = torch.load(file, weights_only=True)
    set_optimizer_state_dict(net, optimizer, optim_state_dict=state)
    return net, optimizer


ROUTES = [by_file, by_pickle, by_deepcopy, by_distributed_checkpoint_of_a_file]


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*[(kind, torch.float32) for kind in KINDS], (adamw, torch.bfloat16)],
)
def test_resumed_runs_go_on_as_if_nothing_had_happened(kind, dtype, make_net, make_batches, bits):
    batches = make_batches(CUT + 31, dtype=dtype)

    def make():
        net = make_net(dtype=dtype)
        return net, kind(net)

    net, optimizer = make()
    train(net, optimizer, batches[:CUT])
    random_state = torch.get_rng_state()
    copies = {route.__name__: route(net, optimizer, make) for route in ROUTES}
    for _, resumed in copies.values():
        assert resumed is not optimizer
        assert resumed.temperature == optimizer.temperature
        assert resumed.summary() == optimizer.summary()

    expected = train(net, optimizer, batches[CUT:])
    assert [info.step for info in expected] == list(range(CUT, len(batches)))
    if kind not in (paper_code, stochastic_sa_as_published):  # accept (almost) all
        assert {info.accepted for info in expected} == {True, False}

    for route, (resumed_net, resumed) in copies.items():
        torch.set_rng_state(random_state)
        assert train(resumed_net, resumed, batches[CUT:]) == expected, route
        assert bits(resumed_net.state_dict()) == bits(net.state_dict()), route
        assert bits(resumed.state_dict()) == bits(optimizer.state_dict()), route
        assert resumed.summary() == optimizer.summary(), route


def test_the_state_dict_is_that_of_the_base_and_one_key_more(net, loss_of):
    base = torch.optim.AdamW(net.parameters())
    tuner = EmbeddedTuner(base, net)
    tuner.step(loss_of)
    state, plain = tuner.state_dict(), base.state_dict()
    own = state["param_groups"][0].pop("annealtune")
    assert own["step"] == 1
    assert own["random"].dtype == torch.int64
    assert state["param_groups"] == plain["param_groups"]
    assert state["state"].keys() == plain["state"].keys()
    assert "annealtune" not in base.param_groups[0]


def test_a_state_dict_of_the_bare_base_leaves_the_annealing_alone(net, loss_of):
    base = torch.optim.SGD(net.parameters(), lr=0.7, momentum=0.9)
    state = base.state_dict()
    tuner = EmbeddedTuner(base, net, temperature=Geometric(1.0, 0.5))
    tuner.step(loss_of)
    tuner.cool()
    tuner.load_state_dict(state)
    assert tuner.param_groups[0]["lr"] == 0.7
    assert tuner.temperature == 0.5
    assert tuner.moves.total.tried == 1
    tuner.step(loss_of)
    assert tuner.last_step.step == 1


def test_initialising_for_a_distributed_checkpoint_is_no_step(make_net, bits):
    for kind in KINDS:
        net = make_net()
        optimizer = kind(net)
        before = bits(net.state_dict())
        get_optimizer_state_dict(net, optimizer)
        assert bits(net.state_dict()) == before
        assert optimizer.moves.total.tried == 0
        assert optimizer.last_step is None


def test_nothing_reads_or_seeds_a_global_generator(net, loss_of):
    random.seed(1)
    torch.manual_seed(1)
    states = random.getstate(), torch.get_rng_state()
    for kind in KINDS:
        optimizer = kind(net)
        optimizer.load_state_dict(optimizer.state_dict())
        copy.deepcopy(optimizer)
        assert random.getstate() == states[0]
        assert torch.equal(torch.get_rng_state(), states[1])
    tuner = reheating(net)
    loss_of()
    after_one_forward = torch.get_rng_state()
    torch.manual_seed(1)
    tuner.step(loss_of)
    assert torch.equal(torch.get_rng_state(), after_one_forward)
    assert random.getstate() == states[0]


CUT = 51  # odd: the generator of the user's own strategy has a number in store


def test_copies_stand_on_their_own(net, loss_of, batch):
    x, y = batch
    tuner = SGDSA(net, grid(lr=[0.1]), temperature=math.inf)
    tuner.step(loss_of)
    twin, twin_tuner = copy.deepcopy((net, tuner))
    assert twin_tuner.model is twin
    assert twin_tuner.param_groups[0]["params"][0] is twin.first.weight
    assert twin_tuner.param_groups is twin_tuner.base.param_groups
    alone = copy.deepcopy(tuner)  # brings its own model
    before = net.first.weight.clone()
    for other in (twin_tuner, alone):
        compute_loss = other.record(lambda other=other: F.cross_entropy(other.model(x), y))
        compute_loss().backward()
        other.step()
        assert not torch.equal(other.model.first.weight, before)
    assert torch.equal(net.first.weight, before)
    assert tuner.moves.total.tried == 1


H = grid(lr=[30.0, 0.3, 0.1, 0.03, 0.01], momentum=[0.0, 0.9])


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
        tuner = SGDSA(net, H, strategy=strategy, epochs=4)
        torch.manual_seed(3)
        moves = train(net, tuner, make_batches(24), between)
        runs.append((moves, bits(net.state_dict()), bits(tuner.state_dict())))
    assert runs[0] == runs[1]


OTHERS = {
    "larger": {"neighborhood": grid(lr=[30.0, 0.3, 0.1, 0.03, 0.01, 3.0], momentum=[0.0, 0.9])},
    "smaller": {"neighborhood": grid(lr=[30.0, 0.3, 0.1, 0.03], momentum=[0.0, 0.9])},
    "another order": {"neighborhood": grid(lr=[0.01, 0.03, 0.1, 0.3, 30.0], momentum=[0.0, 0.9])},
    "another temperature": {"temperature": 0.5},
    **{name: {"strategy": name} for name in STRATEGIES if name != "simulated-annealing"},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_state_of_another_kind_is_refused_as_a_whole(other, make_net, make_batches, bits):
    net = make_net()
    tuner = SGDSA(net, H)
    train(net, tuner, make_batches(3))
    receiver = SGDSA(make_net(), **{"neighborhood": H, **other})
    before = bits(receiver.state_dict())
    with pytest.raises(ValueError, match="load_state_dict"):
        receiver.load_state_dict(tuner.state_dict())
    assert bits(receiver.state_dict()) == before


@pytest.mark.parametrize("kind", [SGDSA, StochasticSA])
def test_a_state_of_another_method_is_refused_by_the_name_of_its_class(kind, make_net):
    other = {SGDSA: StochasticSA, StochasticSA: SGDSA}[kind]
    name = "EmbeddedTuner" if kind is SGDSA else "StochasticSA"
    with pytest.raises(ValueError, match=f"of {other.__name__} returned, got that of '{name}'"):
        other(make_net()).load_state_dict(kind(make_net()).state_dict())


def test_weights_that_are_loaded_between_two_steps_stay(make_net, make_batches, bits):
    net, other = make_net(), make_net(seed=1)
    tuner = SGDSA(net, grid(lr=[1e30]), temperature=0.0)  # every step is undone
    for x, y in make_batches(4):
        net.load_state_dict(other.state_dict())
        tuner.step(lambda x=x, y=y: F.cross_entropy(net(x), y))
        assert not tuner.last_step.accepted
        assert bits(list(net.parameters())) == bits(list(other.parameters()))
