"""A rejection leaves exactly what one plain forward and backward leaves, bit for bit.

Every case runs twice: a twin makes the forward and backward without an optimizer step; the tuner
makes a step whose tentative point is declared broken. Then the two are compared.
"""

import copy
import math

import pytest
import torch
from torch import nn

from annealtune import SGDSA, EmbeddedTuner, grid


class Oddities(nn.Module):
    """Tied, frozen, unused, empty, scalar, complex, transposed and non-contiguous parameters.

    Buffers are written in place, replaced, absent and expanded; dropout draws random numbers.
    """

    def __init__(self, dtype: torch.dtype, frozen: bool, cplx: bool) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 5, dtype=dtype)
        self.out = nn.Linear(5, 4, bias=False, dtype=dtype)
        self.out.weight = nn.Parameter(self.embed.weight.detach().t().clone())
        self.again = nn.Linear(4, 5, dtype=dtype)
        self.again.weight = self.embed.weight  # tied
        self.again.bias.requires_grad_(not frozen)
        self.conv = nn.Conv2d(2, 3, 3, dtype=dtype).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(3, dtype=dtype)
        self.scale = nn.Parameter(torch.tensor(0.7, dtype=dtype))
        self.empty = nn.Parameter(torch.zeros(0, 3, dtype=dtype))
        self.strided = nn.Parameter(torch.linspace(0, 1, 12, dtype=dtype)[::3])
        self.unused = nn.Parameter(torch.ones(2, dtype=dtype))
        kind = torch.complex128 if dtype == torch.float64 else torch.complex64
        self.wave = nn.Parameter(torch.tensor([1 + 1j, 2 - 1j], dtype=kind)) if cplx else None
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(4, dtype=dtype))
        self.register_buffer("mask", torch.ones(1, dtype=dtype).expand(4))
        self.register_buffer("nothing", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.dropout(self.embed(x) * self.again(x), 0.3, self.training)
        out = self.out(hidden) * self.scale + self.strided * self.mask
        image = torch.outer(x[0], x[1]).reshape(1, 1, 4, 4).expand(2, 2, 4, 4)
        out = out.sum() + self.norm(self.conv(image)).square().sum() + self.empty.sum()
        if self.wave is not None:
            out = out + self.wave.abs().square().sum().to(out.dtype)
        if self.training:
            self.count += 1  # in place
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)  # replaced
        return out


BASES = {  # every configuration of torch is in test_every_base.py
    "SGD momentum": {"momentum": 0.9, "weight_decay": 0.01},
    "SGD nesterov foreach": {"momentum": 0.9, "nesterov": True, "foreach": True},
    "SGD fused": {"momentum": 0.9, "fused": True},
    "Adam amsgrad": {"amsgrad": True, "foreach": True},
    "Adam fused": {"fused": True},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "Rprop": {},
    "ASGD": {},
}
REAL_ONLY = {"SGD fused", "Adam fused"}


class OddOptimizer(torch.optim.Optimizer):
    """State of every kind: none at first, plain, nested, replaced, beside the parameters.

    It also writes into gradients behind autograd's back, replaces or drops them, draws random
    numbers and writes options of its own into its groups.
    """

    def __init__(self, params, lr=0.1, gradients="data"):
        super().__init__(params, {"lr": lr, "gradients": gradients})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
            group.setdefault("history", []).append(group["lr"])
            group.setdefault("moving", torch.zeros(2)).add_(1)
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                state["average"] = state.get("average", 0) + p.grad  # a new tensor each time
                state.setdefault("nested", {"deep": [torch.zeros(1)]})["deep"][0].add_(1)
                state.setdefault("names", set()).add(state["step"])
                p.add_(p.grad + torch.randn(()).to(p.dtype), alpha=-group["lr"])
                if group["gradients"] == "data":
                    p.grad.data.mul_(0.5)
                elif group["gradients"] == "replaced":
                    p.grad = p.grad * 2
                elif group["gradients"] == "dropped":
                    p.grad = None
        self.state["all"]["steps"] = self.state["all"].get("steps", 0) + 1


def build(name, options, dtype, frozen, cplx, groups):
    torch.manual_seed(0)
    model = Oddities(dtype, frozen, cplx)
    parameters = list(model.parameters())
    if groups == 2:
        parameters = [
            {"params": parameters[:3], "lr": 0.02},
            {"params": parameters[3:], "weight_decay": 0.1},
        ]
    cls = OddOptimizer if name == "odd" else getattr(torch.optim, name.split()[0])
    return model, cls(parameters, lr=0.01, **options)


def inputs(dtype):
    return torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4).to(dtype)


def plain_steps(model, base, x, steps):
    for _ in range(steps):
        base.zero_grad()
        model(x).backward()
        base.step()


def breaking(model, x, reference):
    """A closure whose loss is NaN wherever the weights are not those of ``reference``."""

    def closure():
        moved = not torch.equal(model.embed.bias, reference)
        return model(x) * (math.nan if moved else 1.0)

    return closure


def check_that_a_rejection_is_a_plain_backward(model, base, x, rate, picture, tries=1):
    twin, twin_base = copy.deepcopy((model, base))
    random_state = torch.get_rng_state()
    for _ in range(tries):
        twin_base.zero_grad()
        twin(x).backward()
    expected = picture(twin, twin_base)

    tuner = EmbeddedTuner(base, model, neighborhood=grid(lr=[rate]), temperature=math.inf)
    torch.set_rng_state(random_state)
    places = [p.data_ptr() for p in model.parameters()]
    closure = breaking(model, x, model.embed.bias.detach().clone())
    for _ in range(tries):
        tuner.step(closure)
        assert not tuner.last_step.accepted
    assert picture(model, tuner) == expected
    assert [p.data_ptr() for p in model.parameters()] == places
    assert tuner.param_groups is base.param_groups


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("name", BASES)
def test_with_every_base(name, steps, picture):
    """Kinds of parameters take turns: every base meets them all, with and without state."""
    groups = 1 if name == "Rprop" else 1 + steps % 2  # it knows no weight decay
    cplx = name not in REAL_ONLY and steps != 1
    dtype = DTYPES[(steps + len(name)) % 3]
    model, base = build(name, BASES[name], dtype, steps == 2, cplx, groups)
    x = inputs(dtype)
    plain_steps(model, base, x, steps)
    check_that_a_rejection_is_a_plain_backward(model, base, x, 3.0, picture, tries=1 + steps % 2)


@pytest.mark.parametrize("gradients", ["data", "replaced", "dropped", "spared"])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_with_a_base_that_has_no_manners(gradients, steps, picture):
    model, base = build("odd", {"gradients": gradients}, torch.float32, True, True, 1)
    x = inputs(torch.float32)
    plain_steps(model, base, x, steps)
    check_that_a_rejection_is_a_plain_backward(model, base, x, 3.0, picture, tries=3)


@pytest.mark.parametrize("foreach", [False, True])
def test_gradients_stay_the_same_objects(foreach, net, loss_of, bits):
    base = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, foreach=foreach)
    tuner = EmbeddedTuner(base, net, neighborhood=grid(lr=[1e4, 0.1]), temperature=0.0)
    compute_loss = tuner.record(loss_of)
    verdicts = set()
    for _ in range(10):
        tuner.zero_grad()
        compute_loss().backward()
        objects = [p.grad for p in net.parameters()]
        values = bits(objects)
        tuner.step()
        assert all(p.grad is g for p, g in zip(net.parameters(), objects, strict=True))
        if not tuner.last_step.accepted or not foreach:
            assert bits(objects) == values
        verdicts.add(tuner.last_step.accepted)
    assert verdicts == {True, False}


class BrokenError(Exception):
    pass


class Interrupted(torch.optim.AdamW):
    """Fails at the end of its step, when the gradients are gone."""

    error = None

    def step(self, closure=None):
        super().step()
        if self.error is not None:
            self.param_groups[0]["params"][0].grad.zero_()
            raise self.error


@pytest.mark.parametrize("error", [BrokenError, KeyboardInterrupt])
@pytest.mark.parametrize("way", ["closure", "record", "objective", "step of the base"])
def test_an_error_at_the_tentative_point_leaves_no_trace(error, way, make_net, batch, picture):
    x, y = batch
    models = [make_net(), make_net()]
    bases = [Interrupted(m.parameters(), lr=0.5) for m in models]
    torch.manual_seed(0)
    nn.functional.cross_entropy(models[0](x), y).backward()
    expected = picture(models[0], bases[0])

    net = models[1]
    tuner = EmbeddedTuner(bases[1], net, temperature=math.inf)
    original = net.first.weight.detach().clone()
    plain = lambda: nn.functional.cross_entropy(net(x), y)

    def evaluate():
        loss = plain()
        if not torch.equal(net.first.weight, original):
            net.zero_grad()
            raise error
        return loss

    def step():
        if way == "closure":
            tuner.step(evaluate)
        elif way == "objective":
            tuner.step(plain, objective=evaluate)
        elif way == "record":
            tuner.record(evaluate)().backward()
            tuner.step()
        else:
            tuner.step(plain)

    tuner.base.error = error if way == "step of the base" else None
    torch.manual_seed(0)
    with pytest.raises(error):
        step()
    assert picture(net, tuner) == expected
    assert tuner.moves.total.tried == 0
    tuner.base.error = None
    tuner.step(plain)
    assert tuner.last_step.step == 0


def test_many_rejections_in_a_row_change_nothing_and_are_counted(net, batch, bits):
    """Also after the weights have become those of another kind."""
    x, y = batch
    tuner = SGDSA(net, grid(lr=[1e6]), temperature=0.0)
    for dtype in (torch.float32, torch.float64):
        net.to(dtype)
        view = net.first.weight.data.view(-1)
        weights = bits(list(net.parameters()))
        for _ in range(20):
            tuner.step(lambda: nn.functional.cross_entropy(net(x.to(dtype)), y))  # noqa: B023
        assert bits(list(net.parameters())) == weights
        assert view.data_ptr() == net.first.weight.data_ptr()
    assert tuner.moves.total == (40, 0, 0)


class Halving(torch.optim.SGD):
    """Halves the gradients behind autograd's back, but for groups that stand still."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                if group["lr"] > 0:
                    p.grad.data.mul_(0.5)


def test_a_rate_of_zero_does_not_show_what_happens_to_gradients():
    weight = nn.Parameter(torch.ones(4))
    tuner = EmbeddedTuner(
        Halving([weight], lr=0.1), nn.ParameterList([weight]), neighborhood=grid(lr=[0.0, 0.1])
    )
    for _ in range(40):
        calls = iter([1.0, math.nan])
        tuner.step(lambda calls=calls: (weight**2).sum() * next(calls))
        assert not tuner.last_step.accepted
        assert torch.equal(weight.grad, 2 * weight), tuner.last_step.setting


DTYPES = [torch.float32, torch.float64, torch.bfloat16]
