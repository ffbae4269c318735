"""The output of Algorithm 2: the best weights on the validation set, and nothing else changed."""

import contextlib
import copy
import math
import statistics

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SGDSA, EmbeddedTuner, SelfTuner, StochasticSA, grid

H = grid(lr=[30.0, 0.3, 0.1])
TOTAL = 150  # planned steps, of which the first few are a race


def self_tuner(net, **options):
    base = torch.optim.AdamW(net.parameters(), lr=0.01)
    return SelfTuner(base, net, total_steps=TOTAL, **options)


def self_tuner_without_average(net):
    return self_tuner(net, average=False)


def sgd_sa(net):
    return SGDSA(net, H, temperature=0.05)


def stochastic_sa(net):
    return StochasticSA(net, radius=0.05, temperature=0.01)


MAKERS = [self_tuner, self_tuner_without_average, sgd_sa, stochastic_sa]


def train(net, opt, batches):
    for x, y in batches:
        opt.step(lambda x=x, y=y: F.cross_entropy(net(x), y))


def state(net):
    return {name: value.clone() for name, value in net.state_dict().items()}


@pytest.fixture
def held_out(make_batches):
    return make_batches(4, seed=9)


@pytest.fixture
def score_of(held_out):
    """The mean loss of a net over the validation set; it takes no care of anything."""

    def score_of(net):
        return torch.stack([F.cross_entropy(net(x), y) for x, y in held_out]).mean()

    return score_of


@pytest.fixture
def run(make_net, make_batches):
    """A net and an optimizer of it after some steps."""

    def run(make, steps):
        net = make_net()
        torch.manual_seed(5)
        opt = make(net)
        train(net, opt, make_batches(steps))
        return net, opt

    return run


@pytest.mark.parametrize("make", MAKERS)
def test_the_best_weights_are_the_argmin_bit_for_bit(make_net, make_batches, score_of, bits, make):
    net = make_net()
    opt = make(net)
    seen = []

    def score():
        assert not net.training
        assert not torch.is_grad_enabled()
        value = score_of(net)
        seen.append((value.item(), state(net)))
        return value

    returned = []
    batches = make_batches(100)
    for start in range(0, 100, 10):
        before = len(seen)
        train(net, opt, batches[start : start + 10])
        returned.append(opt.validate(score))
        assert returned[-1] == min(value for value, _ in seen[before:])
    value, weights = min(seen, key=lambda look: look[0])
    last = state(net)
    with opt.best():
        assert bits(state(net)) == bits(weights)
    assert bits(state(net)) == bits(last)
    opt.load_best()
    assert bits(state(net)) == bits(weights)
    assert [look.value for look in opt.looks] == returned
    assert [look.step for look in opt.looks] == list(range(10, 101, 10))
    assert [look for look in opt.looks if look.kept][-1].value == value
    both = make is self_tuner and not opt.is_racing
    assert len(seen) > len(returned) if both else len(seen) == len(returned)


@pytest.mark.parametrize("make", MAKERS)
def test_a_run_with_looks_is_the_run_without(make_net, make_batches, score_of, picture, make):
    def careless(net):
        net.last.bias.data.mul_(0.5)
        net.train()  # moves the statistics of BatchNorm, draws dropout
        torch.rand(3)
        net.zero_grad()
        with torch.enable_grad():
            score_of(net).backward()
        return score_of(net)

    def trained(looks):
        net = make_net()
        torch.manual_seed(5)
        opt = make(net)
        net.norm.eval()  # frozen by the user
        for step, batch in enumerate(make_batches(60)):
            train(net, opt, [batch])
            if looks and step % 3 == 0:
                opt.validate(lambda: careless(net))
                with opt.best():
                    pass
        assert net.training
        assert not net.norm.training
        return picture(net, opt)

    assert trained(looks=True) == trained(looks=False)


def test_a_look_between_backward_and_step(make_net, make_batches, score_of, picture):
    def trained(looks):
        net = make_net()
        torch.manual_seed(5)
        opt = self_tuner(net)
        compute_loss = opt.record(lambda x, y: F.cross_entropy(net(x), y))
        for x, y in make_batches(40):
            compute_loss(x, y).backward()
            if looks:
                opt.validate(lambda: score_of(net))
                opt.validate(lambda x=x, y=y: compute_loss(x, y))
            opt.step()
            opt.zero_grad()
        return picture(net, opt)

    assert trained(looks=True) == trained(looks=False)


def test_the_average_and_the_last_weights_compete(run, bits):
    for better in ("average", "last"):
        net, opt = run(self_tuner, 60)
        last = state(net)
        with opt.averaged():
            average = state(net)
        assert bits(average) != bits(last)
        values = iter([0.1, 0.2] if better == "average" else [0.2, 0.1])
        assert opt.validate(lambda values=values: next(values)) == 0.1
        assert [tuple(look) for look in opt.looks] == [(60, 0.1, True, better)]
        with opt.best():
            assert bits(state(net)) == bits({"average": average, "last": last}[better])


def test_in_a_race_the_leader_is_scored(run, make_batches, score_of, bits):
    net, opt = run(self_tuner, 3)
    assert opt.is_racing
    leader = state(net)
    scores = []
    opt.validate(lambda: scores.append(1.0) or 1.0)
    assert len(scores) == 1
    train(net, opt, make_batches(60, seed=3))
    assert not opt.is_racing
    opt.validate(lambda: 2.0)
    with opt.best():
        assert bits(state(net)) == bits(leader)


@pytest.mark.parametrize("make", MAKERS)
def test_without_a_look_they_are_the_average_or_the_last(run, bits, make):
    net, opt = run(make, 60)
    last = expected = state(net)
    if opt.averages:
        with opt.averaged():
            expected = state(net)
        assert bits(expected) != bits(last)
    with opt.best():
        assert bits(state(net)) == bits(expected)
    assert bits(state(net)) == bits(last)
    opt.load_best()
    assert bits(state(net)) == bits(expected)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("steps", [3, 60])
def test_saved_and_loaded_between_two_looks(
    make_net, run, make_batches, score_of, bits, make, steps
):
    def go_on(net, opt):
        torch.manual_seed(6)
        train(net, opt, make_batches(20, seed=3))
        opt.validate(lambda: score_of(net))
        with opt.best():
            best = bits(state(net))
        return best, opt.looks, bits(opt.state_dict())

    net, opt = run(make, steps)
    if make is self_tuner:
        assert opt.is_racing == (steps == 3)
    opt.validate(lambda: score_of(net))
    weights, saved = state(net), copy.deepcopy(opt.state_dict())
    other = make_net(seed=7)
    loaded = make(other)
    loaded.validate(lambda: -5.0)  # of another run: forgotten
    other.load_state_dict(weights)
    loaded.load_state_dict(saved)
    assert bits(loaded.state_dict()) == bits(saved)
    assert go_on(other, loaded) == go_on(net, opt)


class TestSeveralNumbers:
    """Noise does not decide."""

    def kept(self, looks, **options):
        """Return which looks are kept, and which the model has at the end."""
        model = nn.Linear(1, 1)
        opt = SGDSA(model, H, temperature=1.0)
        for number, numbers in enumerate(looks):
            nn.init.constant_(model.weight, number)
            value = opt.validate(lambda numbers=numbers: numbers, **options)
            assert value == pytest.approx(statistics.fmean(numbers))
        opt.load_best()
        return [look.kept for look in opt.looks], int(model.weight.item())

    def test_a_clearly_worse_look_is_not_kept(self):
        noise = [0.0, 0.1, -0.1, 0.05]
        clearly = [1.0 + n for n in noise], [1.5 + n / 2 for n in noise]
        assert self.kept(clearly) == ([True, False], 0)
        assert self.kept(clearly[::-1]) == ([True, True], 1)
        assert self.kept(clearly, maximize=True) == ([True, True], 1)

    def test_a_later_look_replaces_one_that_is_better_by_chance(self):
        looks = [[1.0, 1.2, 0.9, 1.1], [1.15, 0.9, 1.2, 1.0]]
        assert self.kept(looks) == ([True, True], 1)

    def test_a_single_number_is_kept_if_it_is_strictly_better(self):
        looks = [[0.5], [0.7], [0.7], [0.2], [0.9]]
        assert self.kept(looks, maximize=True) == ([True, True, False, False, True], 4)

    def test_as_many_at_every_look(self):
        opt = SGDSA(nn.Linear(1, 1), H, temperature=1.0)
        opt.validate(lambda: [1.0, 2.0])
        for numbers in ([1.0], 1.0, [1.0, 2.0, 3.0]):
            with pytest.raises(ValueError, match="validate"):
                opt.validate(lambda numbers=numbers: numbers)
        assert len(opt.looks) == 1


CALLS = ("validate", "best", "load_best", "averaged", "step", "state_dict", "eval")


def call(net, opt, name):
    """Call a method that needs the trained weights in the model."""
    arguments = {"validate": [lambda: 1.0], "step": [lambda: net(torch.ones(2, 6)).sum()]}
    called = getattr(opt, name)(*arguments.get(name, []))
    if name == "best":
        called.__enter__()


@pytest.mark.parametrize(("make", "steps"), [(self_tuner, 3), (self_tuner, 40), (sgd_sa, 20)])
class TestBadScores:
    """Everything is as it was, also in a race, and the run goes on."""

    @pytest.fixture
    def checked(self, run, picture, bits, make, steps, make_batches):
        net, opt = run(make, steps)
        opt.validate(lambda: 1.0)
        before, saved = picture(net, opt), bits(opt.state_dict())
        yield net, opt
        assert net.training
        assert (picture(net, opt), bits(opt.state_dict())) == (before, saved)
        train(net, opt, make_batches(2, seed=3))

    def test_no_numbers(self, checked):
        for wrong in ("0.5", None, [], ["a"], {"loss": 1.0}, 1j, True, torch.ones(2, 2)):
            with pytest.raises(TypeError, match="score"):
                checked[1].validate(lambda wrong=wrong: wrong)
        with pytest.raises(TypeError, match="score"):
            checked[1].validate(0.5)

    def test_it_raises(self, checked):
        net, opt = checked

        def score():
            net.eval()
            net.norm.running_mean.add_(1.0)
            net.first.weight.data.add_(1.0)
            net.zero_grad()
            torch.rand(1)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            opt.validate(score)
        with pytest.raises(ZeroDivisionError), opt.best():
            net.norm.running_mean.fill_(1 / 0)

    def test_another_direction(self, checked):
        with pytest.raises(ValueError, match="maximize"):
            checked[1].validate(lambda: 1.0, maximize=True)
        with pytest.raises(TypeError, match="maximize"):
            checked[1].validate(lambda: 1.0, maximize="max")

    def test_it_calls_the_optimizer(self, checked):
        for name in ("validate", "step", "state_dict", "best", "load_best"):
            with pytest.raises(RuntimeError, match="validate"):
                checked[1].validate(lambda name=name: call(*checked, name))


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [math.inf, -math.inf]])
def test_a_score_that_is_not_finite_is_never_the_best(run, make_batches, bits, make, value):
    net, opt = run(make, 40)
    with pytest.warns(UserWarning, match="not finite"):
        returned = opt.validate(lambda: value)
    assert not math.isfinite(returned)
    assert repr(opt.validate(lambda: value)) == repr(returned)  # warned of once
    assert not opt.looks[0].kept
    finite = [5.0, 5.0] if isinstance(value, list) else 5.0
    opt.validate(lambda: finite)
    weights = state(net)
    train(net, opt, make_batches(5, seed=3))
    opt.validate(lambda: value)
    assert [look.kept for look in opt.looks] == [False, False, True, False]
    opt.load_best()
    if not opt.averages:
        assert bits(state(net)) == bits(weights)


@pytest.mark.parametrize(
    ("make", "steps", "place"),
    [
        (self_tuner, 3, "best"),
        (self_tuner, 60, "best"),
        (self_tuner, 60, "averaged"),
        (self_tuner, 60, "eval"),
        (stochastic_sa, 5, "best"),
    ],
)
def test_meanwhile_nothing_is_trained_saved_or_scored(run, picture, make, steps, place):
    """The weights that are trained must be in the model."""
    net, opt = run(make, steps)
    opt.validate(lambda: 1.0)
    before = picture(net, opt)
    refused = CALLS if make is self_tuner else ("validate", "best", "load_best", "step")
    if place == "eval":
        opt.eval()
        refused = ("validate", "best", "load_best", "averaged", "step")
    with contextlib.nullcontext() if place == "eval" else getattr(opt, place)():
        for name in refused:
            with pytest.raises(RuntimeError, match=name):
                call(net, opt, name)
    if place == "eval":
        opt.train()
    assert picture(net, opt) == before


def test_weights_of_a_group_that_is_added_later():
    one, two = (nn.Parameter(torch.ones(2)) for _ in range(2))
    base = torch.optim.SGD([one], lr=0.1)
    opt = EmbeddedTuner(base, nn.ParameterList([one]), neighborhood={"lr": [0.1]})
    opt.step(lambda: one.square().sum())
    opt.validate(lambda: 1.0)
    kept = one.detach().clone()
    opt.add_param_group({"params": [two]})
    opt.step(lambda: (one * two).square().sum())
    moved = two.detach().clone()
    saved = copy.deepcopy(opt.state_dict())
    opt.load_best()
    assert torch.equal(one, kept)
    assert torch.equal(two, moved)
    opt.load_state_dict(saved)


def test_frozen_weights_and_those_of_others_are_kept_too(make_net):
    net = make_net()
    net.first.requires_grad_(False)
    opt = EmbeddedTuner(torch.optim.SGD(net.last.parameters(), lr=0.1), net)
    opt.validate(lambda: 1.0)
    before = state(net)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(1.0)
    opt.load_best()
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_a_module_keeps_a_train_of_its_own():
    net = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), nn.Linear(4, 1))
    net[0].eval().train = lambda mode=True: net[0]  # frozen for good
    opt = EmbeddedTuner(torch.optim.SGD(net.parameters(), 0.1), net, neighborhood={"lr": [0.1]})
    opt.validate(lambda: 1.0)
    net.train()
    assert net[1].training
    assert not net[0].training
