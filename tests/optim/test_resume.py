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

from annealtune import SGDSA, EmbeddedTuner, Geometric, Reheating, StochasticSA, grid
from annealtune.annealing import SimulatedAnnealing


class Gaussian(SimulatedAnnealing):
    """A strategy that draws from a generator what the generator keeps in store."""

    def pick(self, neighborhood, rng):
        return neighborhood[int(abs(rng.gauss(0, 1)) * 10) % len(neighborhood)]


RATES = grid(lr=[30.0, 1.0, 0.1])


def adamw(net):
    base = torch.optim.AdamW(net.parameters(), lr=0.01, amsgrad=True)
    return EmbeddedTuner(
        base, model=net, neighborhood=grid(lr=[3.0, 0.01], weight_decay=[0.0, 0.1]), epochs=10
    )


def plain_sgd(net):
    base = torch.optim.SGD(net.parameters(), lr=0.1)
    return EmbeddedTuner(base, model=net, neighborhood=RATES, total_steps=100)


def momentum_in_the_neighborhood(net):
    return SGDSA(net, grid(lr=[30.0, 0.1], momentum=[0.0, 0.9], nesterov=[False, True]))


def paper_text(net):
    return SGDSA(net, RATES, preset="paper-text", temperature=0.05)


def paper_code(net):
    return SGDSA(net, RATES, preset="paper-code", batch_size=16)


def reheating(net):
    schedule = Reheating(Geometric(0.1, 0.8, per="step"), every=7, times=9)
    return SGDSA(net, RATES, temperature=schedule, seed=-3)


def strategy_of_the_users_own(net):
    return SGDSA(net, RATES, strategy=Gaussian(0.01))


def averaged(net):
    return SGDSA(net, grid(lr=[99.0, 0.03, 0.01]), temperature=1.0, average=True)


def stochastic_sa(net):
    return StochasticSA(net, epochs=12)


def stochastic_sa_as_published(net):
    return StochasticSA(net, preset="paper-code", batch_size=16, scaling="rms")


KINDS = [
    adamw,
    plain_sgd,
    momentum_in_the_neighborhood,
    paper_text,
    paper_code,
    reheating,
    strategy_of_the_users_own,
    averaged,
    stochastic_sa,
    stochastic_sa_as_published,
]


def train(net, optimizer, batches):
    """Train and cool after every tenth step, counted by the optimizer itself."""
    moves = []
    for x, y in batches:
        optimizer.step(lambda x=x, y=y: F.cross_entropy(net(x).float(), y))
        moves.append(optimizer.last_step)
        if optimizer.moves.total.tried % 7 == 0:
            optimizer.cool()
    return moves


def by_state_dict(net, optimizer, make):
    states = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
    net, optimizer = make()
    net.load_state_dict(states[0])
    optimizer.load_state_dict(states[1])
    return net, optimizer


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


def by_distributed_checkpoint(net, optimizer, make):
    weights = copy.deepcopy(net.state_dict())
    state = copy.deepcopy(get_optimizer_state_dict(net, optimizer))
    net, optimizer = make()
    net.load_state_dict(weights)
    set_optimizer_state_dict(net, optimizer, optim_state_dict=state)
    return net, optimizer


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


ROUTES = [
    by_state_dict,
    by_file,
    by_pickle,
    by_deepcopy,
    by_distributed_checkpoint,
    by_distributed_checkpoint_of_a_file,
]


@pytest.mark.parametrize("kind", KINDS)
def test_resumed_runs_go_on_as_if_nothing_had_happened(kind, make_net, make_batches, bits):
    check_every_route(kind, make_net, make_batches, bits, torch.float32)


@pytest.mark.parametrize("kind", [adamw, momentum_in_the_neighborhood, averaged, stochastic_sa])
def test_also_those_of_half_precision(kind, make_net, make_batches, bits):
    check_every_route(kind, make_net, make_batches, bits, torch.bfloat16)


def check_every_route(kind, make_net, make_batches, bits, dtype):
    batches = make_batches(100, dtype=dtype)

    def make():
        net = make_net(dtype=dtype)
        return net, kind(net)

    net, optimizer = make()
    train(net, optimizer, batches[:50])
    random_state = torch.get_rng_state()
    copies = {route.__name__: route(net, optimizer, make) for route in ROUTES}
    for _, resumed in copies.values():
        assert resumed is not optimizer
        assert resumed.temperature == optimizer.temperature
        assert resumed.summary() == optimizer.summary()

    expected = train(net, optimizer, batches[50:])
    assert [info.step for info in expected] == list(range(50, 100))
    if kind not in (paper_code, stochastic_sa_as_published):  # accept (almost) all
        assert {info.accepted for info in expected} == {True, False}

    for route, (resumed_net, resumed) in copies.items():
        torch.set_rng_state(random_state)
        assert train(resumed_net, resumed, batches[50:]) == expected, route
        assert bits(resumed_net.state_dict()) == bits(net.state_dict()), route
        assert bits(resumed.state_dict()) == bits(optimizer.state_dict()), route
        assert resumed.summary() == optimizer.summary(), route


def test_the_state_dict_is_that_of_the_base_and_one_key_more(net, loss_of):
    base = torch.optim.AdamW(net.parameters())
    tuner = EmbeddedTuner(base, model=net)
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
    tuner = EmbeddedTuner(base, model=net, temperature=Geometric(1.0, 0.5))
    tuner.step(loss_of)
    tuner.cool()
    tuner.load_state_dict(state)
    assert tuner.param_groups[0]["lr"] == 0.7
    assert tuner.temperature == 0.5
    assert tuner.moves.total.tried == 1
    tuner.step(loss_of)
    assert tuner.last_step.step == 1


def test_the_caller_keeps_his_state_dict(net, loss_of, bits):
    tuner = SGDSA(net, grid(lr=[0.1], momentum=[0.9]))
    tuner.step(loss_of)
    state = tuner.state_dict()
    before = copy.deepcopy(state)
    tuner.register_load_state_dict_pre_hook(lambda opt, loaded: loaded.update(extra=1))
    tuner.load_state_dict(state)
    tuner.step(loss_of)
    assert state.keys() == before.keys()
    assert bits(state["param_groups"]) == bits(before["param_groups"])


def test_what_does_not_fit_is_refused_as_a_whole(make_net, batch, bits):
    x, y = batch

    def stepped(**options):
        net = make_net()
        tuner = SGDSA(net, grid(lr=[0.1], momentum=[0.9]), **options)
        tuner.step(lambda: F.cross_entropy(net(x), y))
        return tuner

    automatic, constant = stepped(), stepped(temperature=0.5, seed=4)
    before = bits(constant.state_dict())
    with pytest.raises(ValueError, match=r"SGDSA.load_state_dict.*Constant\(0.5\).*'temperature'"):
        constant.load_state_dict(automatic.state_dict())
    assert bits(constant.state_dict()) == before

    other = automatic.state_dict()
    other["param_groups"].append(dict(other["param_groups"][0]))
    before = bits(automatic.state_dict())
    with pytest.raises(ValueError, match="different number of parameter groups"):
        automatic.load_state_dict(other)
    assert bits(automatic.state_dict()) == before


def test_copying_or_saving_the_model_does_not_drag_the_tuner_along(net, loss_of, batch):
    x, _ = batch
    tuner = SGDSA(net)
    tuner.step(loss_of)
    copied = copy.deepcopy(net)
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    for twin in (copied, loaded):
        (recorder,) = twin._forward_pre_hooks.values()
        assert not [v for v in vars(recorder).values() if v]
        assert recorder not in net._forward_pre_hooks.values()
        twin(x)
    weights = sum(p.numel() * p.element_size() for p in net.parameters())
    assert len(file.getvalue()) < weights + 12_000


def test_a_copied_pair_is_connected_and_apart_from_the_original(net, batch, bits):
    x, y = batch
    tuner = SGDSA(net, grid(lr=[0.0]), temperature=0.0)
    twin, twin_tuner = copy.deepcopy((net, tuner))
    assert twin_tuner.model is twin
    assert twin_tuner.param_groups[0]["params"][0] is twin.first.weight
    assert twin_tuner.param_groups is twin_tuner.base.param_groups
    for _ in range(3):
        loss = F.cross_entropy(twin(x), y)
        loss.backward()
        twin_tuner.step(loss=loss, probe=lambda: F.cross_entropy(twin(x), y))
        assert twin_tuner.last_step.worsening == 0  # its forward is noted by its own hook
    assert tuner.last_step is None
    assert all(p.grad is None for p in net.parameters())


def test_a_copy_of_the_tuner_alone_brings_its_own_model(net, loss_of, batch):
    x, y = batch
    tuner = SGDSA(net, grid(lr=[0.1]), temperature=math.inf)
    twin = copy.deepcopy(tuner)
    assert twin.model is not net
    before = net.first.weight.clone()
    twin.step(lambda: F.cross_entropy(twin.model(x), y))
    assert torch.equal(net.first.weight, before)
    assert not torch.equal(twin.model.first.weight, before)


def test_initialising_for_a_distributed_checkpoint_is_no_step(make_net, bits):
    for kind in KINDS:
        net = make_net()
        optimizer = kind(net)
        before = bits(net.state_dict())
        get_optimizer_state_dict(net, optimizer)
        assert bits(net.state_dict()) == before
        assert optimizer.moves.total.tried == 0
        assert optimizer.last_step is None


def test_a_generator_with_a_number_in_store_is_resumed_with_it(make_net, batch):
    x, y = batch

    def steps(net, tuner, count):
        picked = []
        for _ in range(count):
            tuner.step(lambda: F.cross_entropy(net(x), y))
            picked.append(tuner.last_step.setting)
        return picked

    net, resumed_net = make_net(), make_net()
    tuner, resumed = strategy_of_the_users_own(net), strategy_of_the_users_own(resumed_net)
    steps(net, tuner, 3)  # normal numbers are made in pairs: one is left
    resumed.load_state_dict(tuner.state_dict())
    assert steps(net, tuner, 8) == steps(resumed_net, resumed, 8)


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
    tuner = paper_text(net)
    loss_of()
    after_one_forward = torch.get_rng_state()
    torch.manual_seed(1)
    tuner.step(loss_of)
    assert torch.equal(torch.get_rng_state(), after_one_forward)
    assert random.getstate() == states[0]
