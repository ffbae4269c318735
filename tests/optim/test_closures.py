"""Every style of closure, found out and not asked: two forwards and one backward a step."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SGDSA, EmbeddedTuner, StochasticSA, grid


class CountedBackward(torch.autograd.Function):
    """The identity; counts how often a gradient passes."""

    calls = 0

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        CountedBackward.calls += 1
        return gradient


@pytest.fixture
def loss_of(net, batch):
    x, y = batch
    CountedBackward.calls = 0
    return lambda: CountedBackward.apply(F.cross_entropy(net(x), y))


def loss_only(tuner, net, loss_of):
    return loss_of


def as_torch_documents_it(tuner, net, loss_of, returned=lambda loss: loss, **options):
    def closure():
        tuner.zero_grad(**options)
        loss = loss_of()
        loss.backward()
        return returned(loss)

    return closure


def gradients_zeroed_in_place(*given):
    return as_torch_documents_it(*given, set_to_none=False)


def returns_a_float(*given):
    return as_torch_documents_it(*given, returned=torch.Tensor.item)


def as_lightning(tuner, net, loss_of):
    """Lightning decorates its closure, calls hooks and clips inside of it."""

    class Closure:
        @torch.enable_grad()
        def closure(self):
            loss = loss_of()
            tuner.zero_grad()
            loss.backward()
            return loss

        def __call__(self):
            loss = self.closure()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            return loss

    return Closure()


def checkpointed(tuner, net, loss_of):
    """Activation checkpointing runs the forward once more, inside the one backward."""

    def closure():
        tuner.zero_grad()
        loss = CountedBackward.apply(
            torch.utils.checkpoint.checkpoint(loss_of, use_reentrant=False)
        )
        loss.backward()
        return loss

    return closure


STYLES = [
    loss_only,
    as_torch_documents_it,
    gradients_zeroed_in_place,
    as_lightning,
    returns_a_float,
]


@pytest.mark.parametrize("preset", [None, "paper-code"])
@pytest.mark.parametrize("style", STYLES)
def test_two_forwards_or_three_one_backward_one_graph(style, preset, net, loss_of):
    modes = []
    net.norm.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    options = {"temperature": 0.0} if preset is None else {"preset": preset, "batch_size": 16}
    tuner = SGDSA(net, grid(lr=[100.0, 0.1]), **options)
    closure = style(tuner, net, loss_of)
    expected = [True, True] if preset is None else [True, False, False]
    for step in range(1, 7):
        tuner.step(closure)
        assert (modes, CountedBackward.calls) == (expected * step, step)
        # One that switches gradients on itself has its way.
        assert net.graphs == (len(modes) if style is as_lightning else step)
    assert tuner.moves.total.accepted > 0
    assert net.training
    assert "train" not in net.__dict__


@pytest.mark.parametrize("style", STYLES)
def test_every_style_makes_the_same_moves(style, make_net, make_batches, bits):
    def moves(style, clip):
        net = make_net()
        tuner = SGDSA(net, grid(lr=[30.0, 1.0, 0.1]), temperature=0.02, seed=3)
        torch.manual_seed(6)
        infos = []
        for x, y in make_batches(40):
            tuner.step(style(tuner, net, lambda x=x, y=y: clip * F.cross_entropy(net(x), y)))
            infos.append(tuner.last_step)
        return infos, bits(net.state_dict())

    # Gradients so small that clipping inside a closure leaves them as they are.
    assert moves(style, 0.01) == moves(loss_only, 0.01)


def test_an_objective_is_evaluated_before_and_after(net, batch, loss_of):
    x, y = batch
    calls = []

    def objective():
        calls.append(torch.is_grad_enabled())
        return (net(x).argmax(1) != y).float().mean()

    tuner = SGDSA(net, temperature=1.0)
    tuner.step(loss_of, objective=objective)
    assert calls == [False, False]
    assert (net.forwards, CountedBackward.calls, net.graphs) == (3, 1, 1)


def test_derivative_free_training_makes_three_forwards_and_no_backward(net, loss_of):
    optimizer = StochasticSA(net)
    closure = as_lightning(optimizer, net, loss_of)
    for step in range(1, 4):
        optimizer.step(closure)
        assert (net.forwards, CountedBackward.calls) == (3 * step, 0)


def test_activation_checkpoints_recompute_in_the_first_pass_only(net, loss_of):
    tuner = SGDSA(net)
    tuner.step(checkpointed(tuner, net, loss_of))
    assert net.forwards == 3
    assert tuner.last_step.worsening < 0


def test_clipping_between_backward_and_step_is_what_is_tried(make_net, batch, bits):
    x, y = batch
    clipped, plain = make_net(), make_net()
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    F.cross_entropy(plain(x), y).backward()
    nn.utils.clip_grad_norm_(plain.parameters(), 0.01)
    optimizer.step()

    torch.manual_seed(0)
    tuner = SGDSA(clipped, grid(lr=[0.5]), temperature=math.inf)
    tuner.record(lambda: F.cross_entropy(clipped(x), y))().backward()
    nn.utils.clip_grad_norm_(clipped.parameters(), 0.01)
    tuner.step()
    assert bits(clipped.state_dict()) == bits(plain.state_dict())


def test_gradients_outside_the_optimizer_survive_a_closure_that_zeroes_the_model(net, batch):
    x, y = batch
    tuner = EmbeddedTuner(torch.optim.SGD(net.last.parameters(), lr=0.1), net)

    def closure():
        net.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        return loss

    tuner.step(closure)
    assert all(p.grad is not None and p.grad.any() for p in net.first.parameters())


def test_an_objective_may_change_the_weights_that_it_looks_at(make_net, make_batches, picture):
    """Rounded in place and not put back, the verdicts are those of rounding a copy."""
    one, other = make_net(), make_net()
    rates = grid(lr=[30.0, 0.3, 0.1])
    rounding, copying = (SGDSA(net, rates, temperature=0.0) for net in (one, other))

    def rounded(net, x, y):
        first, second, *others = net.parameters()
        first.copy_((first * 4).round() / 4)
        second.data = (second * 4).round() / 4
        for p in others:
            p.data.mul_(4).round_().div_(4)
        return F.cross_entropy(net(x), y)

    verdicts = set()
    for x, y in make_batches(12):
        start = torch.get_rng_state()
        for tuner, net, seen in ((rounding, one, lambda: one), (copying, other, None)):
            torch.set_rng_state(start)
            tuner.step(
                lambda net=net, x=x, y=y: F.cross_entropy(net(x), y),
                objective=lambda seen=seen, x=x, y=y: rounded(
                    seen() if seen else copy.deepcopy(other), x, y
                ),
            )
        assert rounding.last_step == copying.last_step
        verdicts.add(rounding.last_step.accepted)
    assert verdicts == {True, False}
    assert picture(one, rounding) == picture(other, copying)


def by_autograd(net, x):
    inputs = x.clone().requires_grad_()
    (slopes,) = torch.autograd.grad(net(inputs).sum(), inputs, create_graph=True)
    return slopes.square().mean()


def by_jacobian(net, x):
    return torch.autograd.functional.jacobian(net, x, create_graph=True).square().sum()


def by_forward_differentiation(net, x):
    return torch.func.jvp(net, (x,), (torch.ones_like(x),))[1].square().mean()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own use of it
@pytest.mark.parametrize("penalty", [by_autograd, by_jacobian, by_forward_differentiation])
@pytest.mark.parametrize("backward", [False, True])
def test_a_closure_that_differentiates_inside(penalty, backward):
    """The tentative point has its true value, also where this starts after plain steps."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(5, 3)
    base = torch.optim.SGD(net.parameters(), lr=0.1)
    tuner = EmbeddedTuner(base, net, neighborhood=grid(lr=[0.1]), temperature=math.inf)

    def closure():
        loss = net(x).square().mean() + (penalty(net, x) if step >= 3 else 0.0)
        if backward:
            tuner.zero_grad()
            loss.backward()
        return loss

    for step in range(6):  # noqa: B007
        tuner.step(closure)
        assert tuner.last_step.new_loss == pytest.approx(closure().item(), rel=1e-6)
        assert tuner.last_step.worsening != 0


@pytest.mark.parametrize("backward", [True, False])
@pytest.mark.parametrize("fresh", [True, False])
def test_adversarial_training_is_that_of_the_base(make_net, make_batches, bits, backward, fresh):
    """FGSM: the inputs move along the sign of their gradient, which ``backward`` makes."""

    def adversarial(net, optimizer, x, y, *, backward, fresh):
        inputs = x.clone().requires_grad_() if fresh else x.requires_grad_()
        F.cross_entropy(net(inputs), y).backward()
        moved = (inputs + 0.1 * inputs.grad.sign()).detach()
        optimizer.zero_grad()
        loss = F.cross_entropy(net(moved), y)
        if backward:
            loss.backward()
        return loss

    nets = [make_net(), make_net()]
    base = torch.optim.SGD(nets[0].parameters(), lr=0.1)
    tuner = EmbeddedTuner(base, nets[0], neighborhood={"lr": [0.1]}, temperature=math.inf)
    plain = torch.optim.SGD(nets[1].parameters(), lr=0.1)
    for seed, (x, y) in enumerate(make_batches(3)):
        torch.manual_seed(seed)
        given = x.clone()
        tuner.step(
            lambda given=given, y=y: adversarial(
                nets[0], tuner, given, y, backward=backward, fresh=fresh
            )
        )
        torch.manual_seed(seed)
        adversarial(nets[1], plain, x.clone(), y, backward=True, fresh=True)
        plain.step()
        assert bits(nets[0].state_dict()) == bits(nets[1].state_dict())
