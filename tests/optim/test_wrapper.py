"""What torch.optim.Optimizer promises: groups, hooks, schedulers, scalers, accumulation."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler

from annealtune import SGDSA, EmbeddedTuner, StochasticSA, grid


@pytest.mark.parametrize("kind", ["sgd-sa", "adamw", "ssa"])
def test_a_group_added_in_mid_run_takes_part(kind, net, batch, bits):
    x, y = batch
    extra = nn.Parameter(torch.ones(3))
    if kind == "ssa":
        optimizer = StochasticSA(net, radius=0.1, temperature=math.inf)
    elif kind == "adamw":
        optimizer = EmbeddedTuner(torch.optim.AdamW(net.parameters()), net, temperature=math.inf)
    else:
        optimizer = SGDSA(net, grid(lr=[0.1, 0.2], momentum=[0.9]), temperature=math.inf)
    closure = lambda: F.cross_entropy(net(x) + extra, y)
    for _ in range(3):
        optimizer.step(closure)
    assert bits(extra) == bits(torch.ones(3))
    optimizer.add_param_group({"params": [extra]})
    for _ in range(3):
        before = bits(extra)
        optimizer.step(closure)
        assert bits(extra) != before
        if kind != "ssa":
            assert optimizer.param_groups[1]["lr"] == optimizer.last_step.setting["lr"]
    here = net.first.weight.detach().clone()  # and it is undone with the others
    before = bits([extra, optimizer.base.state_dict()])
    optimizer.step(lambda: closure() * (1 if torch.equal(net.first.weight, here) else math.nan))
    assert not optimizer.last_step.accepted
    assert bits([extra, optimizer.base.state_dict()]) == before


@pytest.mark.parametrize("cls", [SGDSA, StochasticSA])
def test_step_hooks_run_once_a_step_and_see_the_closure(cls, net, loss_of):
    optimizer = cls(net)
    seen = []
    optimizer.register_step_pre_hook(lambda opt, args, kwargs: seen.append((opt, args[1:])))
    optimizer.register_step_post_hook(lambda opt, args, kwargs: seen.append(opt.last_step))
    optimizer.step(loss_of)
    assert seen == [(optimizer, (loss_of,)), optimizer.last_step]


@pytest.mark.parametrize("cls", [SGDSA, StochasticSA])
def test_hooks_of_saving_and_loading(cls, net, loss_of):
    optimizer = cls(net)
    optimizer.step(loss_of)
    calls = []
    optimizer.register_state_dict_pre_hook(lambda opt: calls.append("before saving"))
    optimizer.register_state_dict_post_hook(lambda opt, state: {**state, "note": 1})
    optimizer.register_load_state_dict_pre_hook(
        lambda opt, state: calls.append(f"before loading, with note {state.pop('note')}") or state
    )
    optimizer.register_load_state_dict_post_hook(
        lambda opt: calls.append(f"after loading, at {opt.moves.total.tried}")
    )
    state = optimizer.state_dict()
    assert state["note"] == 1
    optimizer.load_state_dict(state)
    assert calls == ["before saving", "before loading, with note 1", "after loading, at 1"]
    assert state["note"] == 1


SCHEDULERS = {
    "step": lambda opt: lr_scheduler.StepLR(opt, 1),
    "one cycle": lambda opt: lr_scheduler.OneCycleLR(opt, 0.1, 10, cycle_momentum=False),
    "sequence": lambda opt: lr_scheduler.SequentialLR(
        opt, [lr_scheduler.LinearLR(opt), lr_scheduler.ExponentialLR(opt, 0.9)], [2]
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_beside_rates_in_the_neighborhood_is_refused(name, make_net, batch, bits):
    x, y = batch
    net = make_net()
    base = torch.optim.SGD(net.parameters(), lr=0.1)
    SCHEDULERS[name](base)
    with pytest.raises(ValueError, match="EmbeddedTuner"):
        EmbeddedTuner(base, net)

    net = make_net()
    tuner = SGDSA(net)
    tuner.step(lambda: F.cross_entropy(net(x), y))
    before = bits(list(net.parameters()))
    SCHEDULERS[name](tuner)
    with pytest.raises(ValueError, match=r"SGDSA.*neighborhood"):
        tuner.step(lambda: F.cross_entropy(net(x), y))
    assert bits(list(net.parameters())) == before


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("attached", ["to the base", "to the tuner"])
def test_a_scheduler_beside_other_options_does_what_it_does_alone(name, attached, make_net, batch):
    x, y = batch

    def rates(tuned):
        net = make_net()
        optimizer = base = torch.optim.SGD(net.parameters(), lr=0.1)
        if attached == "to the base":
            scheduler = SCHEDULERS[name](base)
        if tuned:
            momenta = grid(momentum=[0.0, 0.9])
            optimizer = EmbeddedTuner(base, net, neighborhood=momenta, temperature=0.0)
        if attached == "to the tuner":
            scheduler = SCHEDULERS[name](optimizer)
        found = []
        for _ in range(6):
            optimizer.zero_grad()
            if tuned:
                optimizer.step(lambda: F.cross_entropy(net(x), y))
            else:
                F.cross_entropy(net(x), y).backward()
                optimizer.step()
            found.append(optimizer.param_groups[0]["lr"])
            scheduler.step()
        return found

    assert rates(tuned=True) == rates(tuned=False)


def test_a_scheduler_that_leaves_no_mark_is_refused_once_it_acts(net, loss_of, bits):
    tuner = SGDSA(net, temperature=math.inf)
    scheduler = lr_scheduler.ReduceLROnPlateau(tuner, patience=0, factor=0.5)
    tuner.step(loss_of)
    scheduler.step(1.0)
    tuner.step(loss_of)
    scheduler.step(2.0)  # a plateau: it halves the rate that happened to be picked
    before = bits(list(net.parameters()))
    with pytest.raises(ValueError, match=r"SGDSA.*lr"):
        tuner.step(loss_of)
    assert bits(list(net.parameters())) == before


def test_a_scheduler_of_the_momentum_is_refused_beside_momenta(net, loss_of):
    base = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    tuner = EmbeddedTuner(base, net, neighborhood=grid(momentum=[0.0, 0.5]))
    lr_scheduler.OneCycleLR(tuner, 0.1, 10, cycle_momentum=True)
    with pytest.raises(ValueError, match=r"EmbeddedTuner.*momentum"):
        tuner.step(loss_of)


def test_a_step_that_the_scaler_skips_is_none(net, batch):
    x, y = batch
    tuner = SGDSA(net, grid(lr=[0.0]), temperature=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    compute_loss = tuner.record(lambda: F.cross_entropy(net(x), y), scaler=scaler)
    for step in range(12):
        tuner.zero_grad()
        scaler.scale(compute_loss() * (math.inf if step in (0, 1, 5, 9) else 1.0)).backward()
        scaler.unscale_(tuner)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(tuner)
        scaler.update()
    assert tuner.moves.total == (8, 0, 8)  # dropout was replayed right after every skip
    assert scaler.get_scale() == 2.0**6


def test_numpys_numbers_make_a_checkpoint_that_loads(net, loss_of, tmp_path):
    numpy = pytest.importorskip("numpy")
    neighborhood = grid(lr=numpy.logspace(-3, -1, 3), nesterov=[numpy.bool_(False)])
    tuner = SGDSA(net, neighborhood, seed=numpy.int64(3))
    tuner.step(loss_of)
    torch.save(tuner.state_dict(), tmp_path / "tuner.pt")
    tuner.load_state_dict(torch.load(tmp_path / "tuner.pt", weights_only=True))
    assert type(tuner.param_groups[0]["lr"]) is float
    assert type(tuner.param_groups[0]["nesterov"]) is bool


def test_a_base_whose_constructor_cannot_be_called_has_no_say(net, loss_of):
    class Particular(torch.optim.SGD):
        def __init__(self, params, secret, **options):
            super().__init__(params, **options)

    base = Particular(net.parameters(), secret=1, lr=0.1)
    neighborhood = grid(lr=[0.1, 0.2], nesterov=[False])
    tuner = EmbeddedTuner(base, net, neighborhood=neighborhood)
    assert tuner.neighborhood == neighborhood
    tuner.step(loss_of)
