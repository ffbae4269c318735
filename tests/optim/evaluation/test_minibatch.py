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


def as_torch_documents_it(tuner, net, loss_of):
    def closure():
        tuner.zero_grad()
        loss = loss_of()
        loss.backward()
        return loss

    return closure


def gradients_zeroed_in_place(tuner, net, loss_of):
    def closure():
        tuner.zero_grad(set_to_none=False)
        loss = loss_of()
        loss.backward()
        return loss

    return closure


def gradients_zeroed_by_the_model(tuner, net, loss_of):
    def closure():
        net.zero_grad()
        loss = loss_of()
        loss.backward()
        return loss

    return closure


def gradients_zeroed_between_forward_and_backward(tuner, net, loss_of):
    def closure():
        loss = loss_of()
        tuner.zero_grad()
        loss.backward()
        return loss

    return closure


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


def as_skorch(tuner, net, loss_of):
    """Skorch switches to training, and calls back with the gradients."""

    def step_fn():
        tuner.zero_grad()
        net.train()
        with torch.set_grad_enabled(True):
            loss = loss_of()
            loss.backward()
        for p in net.parameters():
            p.grad.clamp_(-1.0, 1.0)
        return loss

    return step_fn


def by_autograd_backward(tuner, net, loss_of):
    def closure():
        tuner.zero_grad()
        loss = loss_of()
        torch.autograd.backward([loss])
        return loss

    return closure


def returns_a_float(tuner, net, loss_of):
    def closure():
        tuner.zero_grad()
        loss = loss_of()
        loss.backward()
        return loss.item()

    return closure


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
    gradients_zeroed_by_the_model,
    gradients_zeroed_between_forward_and_backward,
    as_lightning,
    as_skorch,
    by_autograd_backward,
    returns_a_float,
]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("temperature", [math.inf, 0.0])
def test_two_forwards_one_backward_one_graph(style, temperature, net, loss_of):
    tuner = SGDSA(net, grid(lr=[100.0, 0.1]), temperature=temperature)
    closure = style(tuner, net, loss_of)
    for step in range(1, 7):
        tuner.step(closure)
        assert (net.forwards, CountedBackward.calls, net.graphs) == (2 * step, step, step)


@pytest.mark.parametrize("style", STYLES)
def test_three_forwards_one_backward_one_graph_in_evaluation_mode(style, net, loss_of):
    modes = []
    net.norm.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    tuner = SGDSA(net, grid(lr=[0.1]), preset="paper-code", batch_size=16)
    closure = style(tuner, net, loss_of)
    for step in range(1, 4):
        tuner.step(closure)
        assert (net.forwards, CountedBackward.calls, net.graphs) == (3 * step, step, step)
    assert modes == [True, False, False] * 3
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


@pytest.mark.parametrize("preset", [None, "paper-code"])
def test_a_loss_with_a_probe_counts_the_same(preset, net, loss_of):
    tuner = SGDSA(net, preset=preset, batch_size=16)
    evaluations = 2 if preset is None else 3
    for step in range(1, 4):
        tuner.zero_grad()
        loss = loss_of()
        loss.backward()
        tuner.step(loss=loss, probe=loss_of)
        assert (net.forwards, CountedBackward.calls, net.graphs) == (evaluations * step, step, step)


def test_propose_and_resolve_count_the_same(net, loss_of):
    tuner = SGDSA(net)
    for step in range(1, 4):
        tuner.zero_grad()
        loss = loss_of()
        loss.backward()
        tuner.propose(loss)
        with tuner.probing():
            new_loss = loss_of()
        tuner.resolve(new_loss)
        assert not new_loss.requires_grad
        assert (net.forwards, CountedBackward.calls, net.graphs) == (2 * step, step, step)


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


def test_derivative_free_training_makes_three_forwards_and_no_graph(net, loss_of):
    optimizer = StochasticSA(net)
    closure = as_lightning(optimizer, net, loss_of)
    for step in range(1, 4):
        optimizer.step(closure)
        assert (net.forwards, CountedBackward.calls, net.graphs) == (3 * step, 0, 0)


def test_activation_checkpoints_recompute_in_the_first_pass_only(net, loss_of):
    tuner = SGDSA(net)
    tuner.step(checkpointed(tuner, net, loss_of))
    assert net.forwards == 3
    assert tuner.last_step.worsening < 0


def penalty_by_autograd_grad(net, x):
    (gradient,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    return gradient.square().sum()


def penalty_by_enabling_gradients(net, x):
    with torch.enable_grad():
        return penalty_by_autograd_grad(net, x)


def penalty_by_functional_gradient(net, x):
    return torch.func.grad(lambda value: net(value).sum())(x).square().sum()


def penalty_by_jacobian(net, x):
    jacobian = torch.autograd.functional.jacobian(net, x, create_graph=True)
    return jacobian.square().sum()


def penalty_by_forward_differentiation(net, x):
    _, tangent = torch.func.jvp(net, (x,), (torch.ones_like(x),))
    return tangent.square().sum()


PENALTIES = [
    penalty_by_autograd_grad,
    penalty_by_enabling_gradients,
    penalty_by_functional_gradient,
    penalty_by_jacobian,
    penalty_by_forward_differentiation,
]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own use of it
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("backward", [False, True])
def test_a_closure_that_differentiates_inside(penalty, backward):
    """The value at the tentative point is the true one, found with a graph where one is needed."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(5, 3, requires_grad=True)
    tuner = EmbeddedTuner(
        torch.optim.SGD(net.parameters(), lr=0.1),
        model=net,
        neighborhood=grid(lr=[0.1]),
        temperature=math.inf,
    )

    def closure():
        loss = net(x).square().mean() + penalty(net, x)
        if backward:
            tuner.zero_grad()
            loss.backward()
        return loss

    for _ in range(3):
        tuner.step(closure)
        assert tuner.last_step.new_loss == pytest.approx(closure().item(), rel=1e-6)
        assert tuner.last_step.worsening != 0


def test_a_closure_that_accumulates_over_micro_batches(make_net, make_batches, bits):
    micro = make_batches(4)
    moves = []
    for style in ("closure", "by hand"):
        net = make_net()
        tuner = SGDSA(net, grid(lr=[30.0, 0.1]), temperature=0.01, seed=1)
        torch.manual_seed(8)
        for _ in range(15):
            if style == "closure":

                def closure(net=net, tuner=tuner):
                    tuner.zero_grad()
                    total = 0.0
                    for x, y in micro:
                        loss = F.cross_entropy(net(x), y) / 4
                        loss.backward()
                        total += loss.item()
                    return total

                tuner.step(closure)
            else:
                tuner.zero_grad()
                total = 0.0
                for x, y in micro:
                    loss = F.cross_entropy(net(x), y) / 4
                    loss.backward()
                    total += loss.item()
                tuner.propose(total)
                with tuner.probing():
                    new = sum((F.cross_entropy(net(x), y) / 4).item() for x, y in micro)
                tuner.resolve(new)
            moves.append(tuner.last_step)
        moves.append(bits(net.state_dict()))
    assert moves[:16] == moves[16:]
    assert {info.accepted for info in moves[:15]} == {True, False}


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
    loss = F.cross_entropy(clipped(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(clipped.parameters(), 0.01)
    tuner.step(loss=loss, probe=lambda: F.cross_entropy(clipped(x), y))
    assert bits(clipped.state_dict()) == bits(plain.state_dict())


def test_gradients_outside_the_optimizer_survive_a_closure_that_zeroes_the_model(net, batch):
    x, y = batch
    tuner = EmbeddedTuner(torch.optim.SGD(net.last.parameters(), lr=0.1), model=net)

    def closure():
        net.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        return loss

    tuner.step(closure)
    assert all(p.grad is not None and p.grad.any() for p in net.first.parameters())


def test_gradients_of_the_last_step_are_free_during_the_next_forward(make_net, batch):
    x, y = batch
    net = make_net()
    tuner = SGDSA(net, grid(lr=[0.1, 0.05]), temperature=math.inf)
    alive = []

    def closure():
        alive.append([p.grad is not None for p in net.parameters()])
        return F.cross_entropy(net(x), y)

    tuner.step(closure)
    made = [p.grad for p in net.parameters()]
    assert all(gradient is not None for gradient in made)
    tuner.step(closure)
    first_forwards = alive[::2]
    assert not any(first_forwards[1])


def test_gradients_that_somebody_else_added_to_are_kept_for_a_closure_that_adds_to_them(
    make_net, batch
):
    x, y = batch
    net = make_net()
    tuner = SGDSA(net, grid(lr=[0.1]), temperature=math.inf)
    tuner.step(lambda: F.cross_entropy(net(x), y))
    for p in net.parameters():
        p.grad.add_(1.0)
    before = [p.grad for p in net.parameters()]

    def adds():
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        return loss

    tuner.step(adds)
    assert all(p.grad is kept for p, kept in zip(net.parameters(), before, strict=True))


@pytest.mark.parametrize("way", ["in place", "through .data", "by a new tensor"])
def test_an_objective_may_change_the_weights_that_it_looks_at(make_net, make_batches, picture, way):
    """Rounded in place and not put back, the verdicts are those of rounding a copy."""
    one, other = make_net(), make_net()
    rates = grid(lr=[30.0, 0.3, 0.1])
    rounding, copying = (SGDSA(net, rates, temperature=0.0) for net in (one, other))

    def rounded(net, x, y):
        for p in net.parameters():
            if way == "in place":
                p.copy_((p * 4).round() / 4)
            elif way == "through .data":
                p.data.mul_(4).round_().div_(4)
            else:
                p.data = (p * 4).round() / 4
        return F.cross_entropy(net(x), y)

    verdicts = set()
    for x, y in make_batches(12):
        start = torch.get_rng_state()
        rounding.step(
            lambda x=x, y=y: F.cross_entropy(one(x), y),
            objective=lambda x=x, y=y: rounded(one, x, y),
        )
        torch.set_rng_state(start)
        copying.step(
            lambda x=x, y=y: F.cross_entropy(other(x), y),
            objective=lambda x=x, y=y: rounded(copy.deepcopy(other), x, y),
        )
        assert rounding.last_step == copying.last_step
        verdicts.add(rounding.last_step.accepted)
    assert verdicts == {True, False}
    assert picture(one, rounding) == picture(other, copying)


@pytest.mark.parametrize("from_step", [0, 2, 7])
def test_a_closure_may_differentiate_now_and_then(make_net, batch, from_step):
    x, y = batch
    net, step = make_net(), 0
    tuner = EmbeddedTuner(
        torch.optim.SGD(net.parameters(), lr=0.01), model=net, neighborhood=grid(lr=[0.01])
    )

    def closure():
        loss = F.cross_entropy(net(x), y)
        if step >= from_step:
            (gradient,) = torch.autograd.grad(loss, net.first.weight, create_graph=True)
            loss = loss + gradient.square().sum()
        return loss

    for step in range(12):  # noqa: B007
        tuner.step(closure)
    assert tuner.moves.total.tried == 12


def test_a_closure_that_starts_to_call_backward_is_noticed(make_net, batch, bits):
    x, y = batch
    ends = []
    for own_from in (0, 6, 99):
        net, step = make_net(), 0
        tuner = EmbeddedTuner(
            torch.optim.SGD(net.parameters(), lr=0.1), model=net, neighborhood=grid(lr=[0.1])
        )

        def closure(net=net, tuner=tuner, own_from=own_from):
            loss = F.cross_entropy(net(x), y)
            if step >= own_from and torch.is_grad_enabled():  # noqa: B023
                tuner.zero_grad()
                loss.backward(retain_graph=True)
            return loss

        torch.manual_seed(0)
        for step in range(12):  # noqa: B007
            tuner.step(closure)
        ends.append(bits(net.state_dict()))
    assert ends[0] == ends[1] == ends[2]
