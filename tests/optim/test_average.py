"""The average of the weights: beside the run, and in the model for as long as it is asked for."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SGDSA, EmbeddedTuner, grid
from annealtune.errors import NonFiniteLossError

H = grid(lr=[30.0, 0.3, 0.1])


def tuned(net, **options):
    return SGDSA(net, H, **{"temperature": 0.05, "average": True, **options})


def train(net, tuner, batches):
    """Train and return the weights and statistics that each step started from."""
    seen = []
    for x, y in batches:
        before = {name: p.detach().clone() for name, p in net.named_parameters()}
        tuner.step(lambda: F.cross_entropy(net(x).float(), y))  # noqa: B023
        # The forward of a step comes before its weights enter the average.
        seen.append({**before, **{name: b.clone() for name, b in net.named_buffers()}})
    return seen


def recursion(values):
    """The formula, in double precision."""
    mean = values[0].double()
    for n, value in enumerate(values[1:], start=2):
        mean = mean + 10 / (n + 9) * (value.double() - mean)
    return mean


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 4e-3)])
def test_it_is_the_recursion_in_double_precision(make_net, make_batches, dtype, error):
    net = make_net(dtype=dtype)
    # Rates so small that the average must not lose what a step changes.
    tuner = SGDSA(net, grid(lr=[0.03, 0.01]), temperature=0.05, average=True)
    seen = train(net, tuner, make_batches(150, dtype=dtype))
    with tuner.averaged():
        for name, found in net.state_dict().items():
            if name != "norm.num_batches_tracked":
                expected = recursion([weights[name] for weights in seen])
                torch.testing.assert_close(found.double(), expected, rtol=error, atol=error)


def test_it_is_the_formula_bit_for_bit(net, make_batches):
    tuner = tuned(net)
    seen = train(net, tuner, make_batches(30))
    for name, p in net.named_parameters():
        mean = seen[0][name].clone()
        for n, weights in enumerate(seen[1:], start=2):
            mean.lerp_(weights[name], 10 / (n + 9))
        with tuner.averaged():
            assert torch.equal(p, mean)
            assert not torch.equal(p, seen[-1][name])


@pytest.mark.parametrize("options", [{"temperature": 0.05}, {"strategy": "tabu"}])
def test_training_does_not_notice_it(make_net, make_batches, picture, options):
    runs = []
    for average in (False, True):
        net = make_net()
        torch.manual_seed(1)
        tuner = SGDSA(net, H, average=average, **options)
        moves = []
        for x, y in make_batches(40):
            tuner.step(lambda: F.cross_entropy(net(x), y))  # noqa: B023
            moves.append(tuner.last_step)
            if average:
                with tuner.averaged(make_batches(3)), torch.no_grad():
                    net.eval()(x)
                    net.train()
        runs.append((moves, picture(net, tuner)))
        assert tuner.averages is average
    assert runs[0] == runs[1]
    assert options.get("strategy") or {move.accepted for move in runs[0][0]} == {True, False}


@pytest.mark.parametrize("with_loader", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_put_back(net, make_batches, picture, with_loader, fails):
    tuner = tuned(net)
    train(net, tuner, make_batches(20))
    net.first.eval()  # frozen by the user
    flags = [module.training for module in net.modules()]
    before = picture(net, tuner)
    inside = None
    try:
        with tuner.averaged(make_batches(5, seed=3) if with_loader else None):
            inside = picture(net, tuner)
            assert [module.training for module in net.modules()] == flags
            net.norm.running_mean.fill_(7.0)
            net.norm.register_buffer("running_var", torch.full((12,), 5.0))
            if fails:
                raise ZeroDivisionError
    except ZeroDivisionError:
        assert fails
    assert picture(net, tuner) == before
    assert [module.training for module in net.modules()] == flags
    assert net.norm.momentum == 0.1
    assert inside["weights"] != before["weights"]
    assert inside["buffers"] != before["buffers"]
    assert inside["random"] == before["random"]


def test_also_where_the_loader_fails(net, make_batches, picture):
    def broken():
        yield from make_batches(2)
        raise OSError

    tuner = tuned(net)
    train(net, tuner, make_batches(20))
    before = picture(net, tuner)
    with pytest.raises(OSError), tuner.averaged(broken()):  # noqa: PT011
        pytest.fail("the weights must not be given to anybody")
    assert picture(net, tuner) == before
    assert net.norm.training
    assert net.norm.momentum == 0.1
    assert "train" not in vars(net.norm)


class TwoNorms(nn.Module):
    """Dropout before a BatchNorm would change its statistics, and so does a BatchNorm before it."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.first, self.second = nn.Linear(6, 12), nn.Linear(12, 3)
        self.norm, self.last = nn.BatchNorm1d(12), nn.BatchNorm1d(3, momentum=0.3)

    def forward(self, x):
        return self.last(self.second(self.norm(self.first(self.drop(x))).relu()))

    def inputs_of_norms(self, x):
        """What the two layers see if nothing is dropped and both normalise by the minibatch."""
        one = self.first(x)
        spread = (one.var(0, unbiased=False) + self.norm.eps).sqrt()
        normal = (one - one.mean(0)) / spread * self.norm.weight + self.norm.bias
        return one, self.second(normal.relu())


@pytest.mark.parametrize("bare", [False, True])
def test_a_loader_gives_the_statistics_of_the_averaged_weights(make_batches, bare):
    net = TwoNorms()
    tuner = tuned(net)
    train(net, tuner, make_batches(30))
    minibatches = make_batches(7, size=24, seed=5)
    with tuner.averaged(x if bare else (x, y) for x, y in minibatches), torch.no_grad():
        seen = [net.inputs_of_norms(x) for x, _ in minibatches]
        for layer, inputs in zip((net.norm, net.last), zip(*seen, strict=True), strict=True):
            mean = torch.stack([h.mean(0) for h in inputs]).mean(0)
            var = torch.stack([h.var(0) for h in inputs]).mean(0)
            torch.testing.assert_close(layer.running_mean, mean)
            torch.testing.assert_close(layer.running_var, var)
            assert layer.num_batches_tracked == 7
        assert (net.norm.momentum, net.last.momentum) == (0.1, 0.3)


def test_weights_that_never_had_a_finite_loss_do_not_enter_it(net, make_batches):
    tuner = tuned(net)
    seen = train(net, tuner, make_batches(5))
    x, y = make_batches(1)[0]
    with torch.no_grad():
        net.first.weight.fill_(torch.nan)
    with pytest.raises(NonFiniteLossError):
        tuner.step(lambda: F.cross_entropy(net(x), y))
    with tuner.averaged():
        expected = recursion([weights["first.weight"] for weights in seen])
        torch.testing.assert_close(net.first.weight.double(), expected, rtol=1e-5, atol=1e-6)
    assert net.first.weight.isnan().all()


def test_a_state_dict_keeps_it(make_net, make_batches, bits):
    batches, nets = make_batches(40), (make_net(), make_net(seed=5))
    tuners = [tuned(net) for net in nets]
    train(nets[0], tuners[0], batches[:20])
    saved = copy.deepcopy((nets[0].state_dict(), tuners[0].state_dict(), torch.get_rng_state()))
    train(nets[0], tuners[0], batches[20:])
    nets[1].load_state_dict(saved[0])
    tuners[1].load_state_dict(saved[1])
    torch.set_rng_state(saved[2])
    train(nets[1], tuners[1], batches[20:])
    averages = []
    for net, tuner in zip(nets, tuners, strict=True):
        with tuner.averaged():
            averages.append(bits(net.state_dict()))
    assert averages[0] == averages[1]


def test_a_group_that_is_added_later_is_averaged_from_then_on(net, make_batches):
    """And the others as if nothing had happened, with its shapes those of the statistics."""
    new = nn.Parameter(torch.zeros(12))
    tuner = tuned(net)
    seen = train(net, tuner, make_batches(20))
    tuner.add_param_group({"params": [new]})
    before = new.detach().clone()
    with tuner.averaged():  # before the first step of the new one
        assert torch.equal(new, before)
        expected = recursion([at["norm.running_mean"] for at in seen])
        torch.testing.assert_close(net.norm.running_mean.double(), expected, rtol=1e-4, atol=1e-6)
    tuner.load_state_dict(tuner.state_dict())
    values = []
    for x, y in make_batches(15, seed=4):
        values.append(new.detach().clone())
        weights = {name: p.detach().clone() for name, p in net.named_parameters()}
        tuner.step(lambda: F.cross_entropy(net(x) + new[:3], y))  # noqa: B023
        seen.append({**weights, **{name: b.clone() for name, b in net.named_buffers()}})
    with tuner.averaged():
        for name in ("first.weight", "last.bias", "norm.running_mean"):
            expected = recursion([at[name] for at in seen])
            found = net.state_dict()[name].double()
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
        mean = values[0].double()
        for n, value in enumerate(values[1:], start=22):  # shares are those of the whole run
            mean = mean + 10 / (n + 9) * (value.double() - mean)
        torch.testing.assert_close(new.double(), mean, rtol=1e-4, atol=1e-6)
    assert not torch.equal(new, before)


def test_nothing_is_trained_or_saved_within_it(net, make_batches, loss_of):
    with pytest.raises(RuntimeError, match="average"):
        SGDSA(net, H).averaged()
    tuner = tuned(net)
    train(net, tuner, make_batches(20))
    with tuner.averaged():
        for method in (lambda: tuner.step(loss_of), tuner.state_dict, tuner.averaged):
            with pytest.raises(RuntimeError, match="averaged"):
                method()
    tuner.step(loss_of)


def test_frozen_statistics_stay(net, make_batches):
    net.norm.eval()
    net.norm.running_mean.fill_(3.0)
    tuner = tuned(net)
    train(net, tuner, make_batches(20))
    with tuner.averaged(make_batches(3)):
        assert net.norm.running_mean.eq(3.0).all()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_weights_are_averaged_too(dtype):
    weight = nn.Parameter(torch.tensor([1 + 1j], dtype=dtype))
    base = torch.optim.SGD([weight], lr=0.0)
    model = nn.ParameterList([weight])
    tuner = EmbeddedTuner(base, model, neighborhood=grid(momentum=[0.0]), average=True)
    for value in (1 + 1j, 2 - 3j):
        weight.data.fill_(value)
        tuner.step(lambda: weight.abs().square().sum())
    with tuner.averaged():  # 1/11 of the first, 10/11 of the second
        expected = ((1 + 1j) + 10 * (2 - 3j)) / 11
        assert weight.item() == pytest.approx(expected, rel=1e-6)
    assert weight.item() == 2 - 3j
