"""The average of the weights: a formula, and the statistics of BatchNorm that belong to it."""

import copy

import pytest
import torch
from torch import nn

from annealtune import SGDSA, SelfTuner
from annealtune.optim.average import WeightAverage


def averaging(model, seen, **options):
    """Average some weights of a model, one after the other."""
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    average = WeightAverage("SelfTuner", base, model, **options)
    for values in seen:
        for p, value in zip(model.parameters(), values, strict=True):
            p.data.copy_(value)
        average.add()
    return average


def recursion(values):
    """The formula, in double precision."""
    wide = torch.complex128 if values[0].is_complex() else torch.float64
    mean = values[0].to(wide)
    for n, value in enumerate(values[1:], start=2):
        mean = mean + 10 / (n + 9) * (value.to(wide) - mean)
    return mean


@pytest.mark.parametrize(
    ("dtype", "error"),
    [(torch.float32, 1e-5), (torch.bfloat16, 4e-3), (torch.complex64, 1e-5)],
)
def test_it_is_the_recursion_in_double_precision(dtype, error):
    """Changes so small that an average in half precision would lose them."""
    model = nn.ParameterList([torch.ones(50, dtype=dtype)])
    seen = [[1 + 0.01 * torch.randn(50).to(dtype)] for _ in range(150)]
    average = averaging(model, seen)
    last = model[0].detach().clone()
    with average.swapped_in():
        expected = recursion([value for (value,) in seen])
        found = model[0].detach().to(expected.dtype)
        torch.testing.assert_close(found, expected, rtol=error, atol=error)
    assert torch.equal(model[0], last)


@pytest.mark.parametrize("with_loader", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_put_back(net, make_batches, picture, with_loader, fails):
    average = averaging(net, [[torch.randn_like(p) for p in net.parameters()] for _ in range(5)])
    net.first.eval()  # frozen by the user
    flags = [module.training for module in net.modules()]
    before = picture(net, average._base)
    inside = None
    try:
        with average.swapped_in(make_batches(5, seed=3) if with_loader else None):
            inside = picture(net, average._base)
            assert [module.training for module in net.modules()] == flags
            net.norm.running_mean.fill_(7.0)
            net.norm.register_buffer("running_var", torch.full((12,), 5.0))
            if fails:
                raise ZeroDivisionError
    except ZeroDivisionError:
        assert fails
    assert picture(net, average._base) == before
    assert [module.training for module in net.modules()] == flags
    assert inside["weights"] != before["weights"]
    assert inside["random"] == before["random"]


def test_also_where_the_loader_fails(net, make_batches, picture):
    def broken():
        yield from make_batches(2)
        raise OSError

    average = averaging(net, [[torch.randn_like(p) for p in net.parameters()] for _ in range(5)])
    before = picture(net, average._base)
    for loader, error in ((broken(), OSError), ([], ValueError)):
        with pytest.raises(error), average.swapped_in(loader):
            pytest.fail("the weights must not be given to anybody")
        assert picture(net, average._base) == before
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


FORMS = {
    "bare": lambda x, y: x,
    "tuple": lambda x, y: (x, y),
    "dict": lambda x, y: {"x": x},
    "tuple of a dict": lambda x, y: ({"x": x}, y),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_loader_gives_the_statistics_of_the_averaged_weights(make_batches, form):
    net = TwoNorms()
    average = averaging(net, [[torch.randn_like(p) for p in net.parameters()] for _ in range(5)])
    minibatches = make_batches(7, size=24, seed=5)
    with average.swapped_in(form(x, y) for x, y in minibatches), torch.no_grad():
        seen = [net.inputs_of_norms(x) for x, _ in minibatches]
        for layer, inputs in zip((net.norm, net.last), zip(*seen, strict=True), strict=True):
            mean = torch.stack([h.mean(0) for h in inputs]).mean(0)
            var = torch.stack([h.var(0) for h in inputs]).mean(0)
            torch.testing.assert_close(layer.running_mean, mean)
            torch.testing.assert_close(layer.running_var, var)
            assert layer.num_batches_tracked == 7
        assert (net.norm.momentum, net.last.momentum) == (0.1, 0.3)


def test_frozen_statistics_stay_also_after_a_resume(net, make_batches):
    net.norm.eval()
    net.norm.running_mean.fill_(3.0)
    average = averaging(net, [[torch.randn_like(p) for p in net.parameters()]])
    other = WeightAverage("SelfTuner", average._base, net)
    other.load_state_dict(copy.deepcopy(average.state_dict()))
    for each in (average, other):
        with each.swapped_in(make_batches(3)):
            assert net.norm.running_mean.eq(3.0).all()


def test_a_group_that_is_added_later_is_averaged_from_then_on():
    one, two = (nn.Parameter(torch.zeros(3)) for _ in range(2))
    base = torch.optim.SGD([one], lr=0.1)
    average = WeightAverage("SelfTuner", base, nn.ParameterList([one, two]))
    values = [torch.randn(3) for _ in range(30)]
    for number, value in enumerate(values):
        if number == 20:
            base.add_param_group({"params": [two]})
        one.data.copy_(value)
        two.data.copy_(value)
        average.add()
    mean = values[20].double()
    for n, value in enumerate(values[21:], start=22):  # shares are those of the whole run
        mean = mean + 10 / (n + 9) * (value.double() - mean)
    with average.swapped_in():
        torch.testing.assert_close(one.double(), recursion(values), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(two.double(), mean, rtol=1e-4, atol=1e-6)


def test_a_batchnorm_layer_that_is_added_later_moves_nothing_else():
    model = nn.Sequential(nn.Linear(4, 4))
    base = torch.optim.SGD(model.parameters(), lr=0.0)
    average = WeightAverage("SelfTuner", base, model)
    average.add()
    model.append(nn.BatchNorm1d(4))
    base.add_param_group({"params": model[1].parameters()})
    model[1].running_var.fill_(3.0)
    before = copy.deepcopy(model.state_dict())
    average.add()
    with average.swapped_in():
        assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


def test_nothing_is_trained_or_saved_within_it(net, loss_of):
    with pytest.raises(RuntimeError, match="average"):
        SGDSA(net).averaged()
    tuner = SelfTuner(torch.optim.SGD(net.parameters(), lr=0.1), net, around=0.1, total_steps=200)
    for _ in range(60):
        tuner.step(loss_of)
    with tuner.averaged():
        for method in (lambda: tuner.step(loss_of), tuner.state_dict, tuner.averaged):
            with pytest.raises(RuntimeError, match="averaged"):
                method()
    tuner.step(loss_of)
