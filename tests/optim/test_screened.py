"""Steps whose verdict is foretold: the same verdicts, fewer forwards, and a way back."""

import copy
import dataclasses
import math
import pickle
import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SGDSA, EmbeddedTuner, grid
from annealtune.annealing import STRATEGIES, Screenable, SimulatedAnnealing, metropolis
from annealtune.errors import NonFiniteLossError


class Line(nn.Linear):
    """A loss that is a parabola along every gradient."""

    forwards = 0

    def forward(self, x):
        self.forwards += 1
        return super().forward(x)


def a_line(make_net, make_batches):
    source = torch.Generator().manual_seed(1)
    slope = torch.randn(40, 1, generator=source)
    inputs = [torch.randn(128, 40, generator=source) for _ in range(400)]
    batches = [(x, x @ slope + 10 * torch.randn(128, 1, generator=source)) for x in inputs]
    return Line(40, 1), F.mse_loss, grid(lr=[0.03, 0.1, 0.2, 1.5, 2.0]), batches


def a_net(make_net, make_batches):
    rates = grid(lr=[0.01, 0.1, 1.0, 10.0, 30.0])  # the last three gain or worsen, as it happens
    return make_net(), F.cross_entropy, rates, make_batches(400)


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        (a_line, {"temperature": 0.3}),
        (a_line, {"strategy": "hill-climbing"}),
        (a_line, {"strategy": "threshold-accepting", "temperature": 0.3}),
        (a_net, {"temperature": 0.02}),
        (a_net, {"strategy": "threshold-accepting", "temperature": 0.02}),
    ],
)
def test_the_verdicts_are_those_of_the_full_test(
    problem, options, make_net, make_batches, loss_after
):
    net, loss_function, neighborhood, batches = problem(make_net, make_batches)
    tuner = SGDSA(net, neighborhood, probe="screened", **options)
    always = SGDSA(net, neighborhood, probe="always", **options).strategy
    rng, agreed, foretold = random.Random(0), 0, []
    for x, y in batches:
        loss_of = lambda net, x=x, y=y: loss_function(net(x), y)
        before, base = copy.deepcopy(net), copy.deepcopy(tuner.base)
        start, forwards = torch.get_rng_state(), net.forwards
        tuner.step(lambda: loss_of(net))  # noqa: B023
        info = tuner.last_step
        setting = always.pick(neighborhood, rng)
        assert info.setting == setting
        assert net.forwards - forwards == 1 + info.probed
        new_loss = loss_after(before, base, setting, loss_of, start)
        if info.probed:
            assert info.new_loss == pytest.approx(new_loss, rel=1e-5)
        verdict = always.decide(info.loss, new_loss, rng)
        agreed += verdict.accepted == info.accepted
        foretold += [] if info.probed else [info.accepted]
    assert agreed >= 0.99 * len(batches)
    count = tuner.summary().probes
    assert count.steps == len(batches)
    assert count.probed == net.forwards - len(batches)
    assert count.share == count.probed / 400 < 0.7
    assert len(foretold) == count.steps - count.probed
    if problem is a_line:
        assert set(foretold) == {True, False}
    assert count.agreed == count.compared > 0
    assert count.rolled_back == 0


def test_foretold_or_not_a_rejected_step_leaves_no_trace(make_net, make_batches, picture):
    net, loss_of, neighborhood, batches = a_line(make_net, make_batches)
    tuner = SGDSA(net, neighborhood, probe="screened", strategy="hill-climbing")
    rejected = 0
    for x, y in batches:
        twin, start = copy.deepcopy(net), torch.get_rng_state()
        state = copy.deepcopy(tuner.base.state_dict())
        tuner.step(lambda: loss_of(net(x), y))  # noqa: B023
        if tuner.last_step.probed or tuner.last_step.accepted:
            continue
        rejected += 1
        after = picture(net, tuner)
        torch.set_rng_state(start)
        loss_of(twin(x), y).backward()
        assert after == picture(twin, tuner)
        assert tuner.base.state_dict() == state
    assert rejected > 20


def test_the_way_of_probing_is_always_where_something_is_given(make_net, make_batches, bits):
    runs = []
    for options in ({}, {"probe": "always"}):
        net = make_net()
        torch.manual_seed(1)
        tuner = SGDSA(net, grid(lr=[30.0, 1.0, 0.1]), temperature=0.05, **options)
        infos = []
        for x, y in make_batches(60):
            tuner.step(lambda: F.cross_entropy(net(x), y))  # noqa: B023
            infos.append(tuner.last_step)
        runs.append((infos, bits(net.state_dict()), bits(tuner.state_dict())))
        assert net.forwards == 120
        assert tuner.summary().probes.share == 1.0
    assert runs[0] == runs[1]
    assert {info.accepted for info in runs[0][0]} == {True, False}


def test_steps_resolved_by_hand_are_compared_with_nothing(net, make_batches):
    """Nothing was foretold of them, whatever had been of the step before."""
    tuner = SGDSA(net, grid(lr=[0.01, 0.02]), strategy="random-walk", probe="screened")
    for x, y in make_batches(200):
        tuner.step(lambda: F.cross_entropy(net(x), y))  # noqa: B023
    compared = tuner.probes.compared
    assert compared > 0
    for x, y in make_batches(50):
        loss = F.cross_entropy(net(x), y)
        tuner.zero_grad()
        loss.backward()
        tuner.propose(loss)
        tuner.resolve(math.nan)  # rejected, and a random walk is foretold to keep everything
    assert (tuner.probes.compared, tuner.probes.agreed) == (compared, compared)


SLOPES = {
    "plain": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "writes into its gradients": (
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True, "foreach": True},
    ),
    "two moments": (torch.optim.AdamW, {}),
}


@pytest.mark.parametrize("case", SLOPES)
def test_the_slope_is_the_product_of_gradient_and_displacement(net, make_batches, case):
    kind, options = SLOPES[case]
    tuner = EmbeddedTuner(
        kind(net.parameters(), lr=0.1, **options), model=net, neighborhood=grid(lr=[0.1, 0.05])
    )
    for x, y in make_batches(6):
        tuner.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        before = [(p.detach().clone(), p.grad.clone()) for p in net.parameters()]
        tuner.propose(loss)
        moved = [(p - was).double() for p, (was, _) in zip(net.parameters(), before, strict=True)]
        expected = sum((d * g).sum().item() for d, (_, g) in zip(moved, before, strict=True))
        assert tuner._tentative.slope() == pytest.approx(expected, rel=1e-4)
        tuner.resolve(loss)


# --- What was kept unmeasured and broke the loss ---


def breaking(kind):
    """Make a kind of optimizer whose next step can be made to leave nothing but NaN."""

    class Breaking(kind):
        breaks = False

        def step(self, closure=None):
            super().step(closure)
            if self.breaks:
                self.breaks = False
                for group in self.param_groups:
                    for p in group["params"]:
                        p.data.fill_(math.nan)

    return Breaking


BASES = {
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "writes into its gradients": (
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "foreach": True},
    ),
    "two moments": (torch.optim.AdamW, {"lr": 0.1}),
}
CHOICES = {
    "random walk": {
        "neighborhood": grid(lr=[0.01, 0.02, 0.05]),
        "strategy": "random-walk",
        "probe": "screened",
    },
    "heat bath": {
        "neighborhood": grid(lr=[0.01, 0.02, 0.05]),
        "strategy": "heat-bath",
        "probe": "screened",
    },
    "self-tuning": {},
}


class Run:
    """A run that has just made an unmeasured step, which can have been a broken one."""

    def __init__(self, net, batches, picture, base="momentum", choice="self-tuning"):
        kind, options = BASES[base]
        self.net, self.batches, self.picture = net, iter(batches), picture
        self.tuner = EmbeddedTuner(
            breaking(kind)(net.parameters(), **options), model=net, **CHOICES[choice]
        )
        for _ in range(100):
            self.step()

    def step(self, factor=1.0):
        x, y = next(self.batches)
        return self.tuner.step(lambda: factor * F.cross_entropy(self.net(x), y))

    def parts(self):
        """What a rejected step leaves as it was."""
        now = self.picture(self.net, self.tuner)
        return {key: now[key] for key in ("weights", "buffers", "optimizer")}

    def make_unmeasured_step(self, *, broken):
        """Step until it is not measured; return what must be left if it is undone."""
        while True:
            twin, tuner = copy.deepcopy((self.net, self.tuner))
            before, start = self.parts(), torch.get_rng_state()
            x, y = next(self.batches)
            tuner.step(lambda: F.cross_entropy(twin(x), y))  # noqa: B023
            torch.set_rng_state(start)
            self.tuner.base.breaks = broken and not tuner.last_step.probed
            self.tuner.step(lambda: F.cross_entropy(self.net(x), y))  # noqa: B023
            if not self.tuner.last_step.probed:
                assert self.tuner.last_step.accepted
                # The forward of the step itself was one of good weights: its statistics stay.
                return {**before, "buffers": self.parts()["buffers"]}


@pytest.fixture
def run(net, make_batches, picture):
    batches = make_batches(400, size=32)
    return lambda **options: Run(net, batches, picture, **options)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("base", BASES)
def test_a_step_that_broke_the_weights_is_undone_when_the_next_loss_shows_it(run, base, choice):
    made = run(base=base, choice=choice)
    tuner, expected = made.tuner, made.make_unmeasured_step(broken=True)
    counts, kept = tuner.summary(), tuner.last_step
    assert made.net.first.weight.isnan().all()

    assert math.isnan(made.step().item())
    assert made.parts() == expected
    now = tuner.summary()
    assert (now.probes.rolled_back, counts.probes.rolled_back) == (1, 0)
    assert now.total == counts.total._replace(
        accepted=counts.total.accepted - 1, improved=counts.total.improved - kept.improved
    )
    assert now.settings[kept.setting].accepted == counts.settings[kept.setting].accepted - 1
    assert tuner.last_step == dataclasses.replace(kept, accepted=False)  # nothing was tried

    made.step()
    assert tuner.last_step.probed
    losses = [made.step().item() for _ in range(60)]
    assert all(map(math.isfinite, losses))
    assert sum(losses[-20:]) / 20 < 1
    assert tuner.probes.rolled_back == 1
    assert tuner.summary().total.tried == counts.total.tried + 61


def test_a_minibatch_without_a_finite_loss_is_not_the_fault_of_the_step_before(run):
    made = run()
    made.make_unmeasured_step(broken=False)
    peak = made.tuner.strategy.peak
    with pytest.raises(NonFiniteLossError, match="Look at the data"):
        made.step(math.nan)
    assert made.tuner.strategy.peak == peak
    assert made.tuner.probes.rolled_back == 0
    made.step()


def test_a_loss_that_is_not_finite_teaches_and_a_finite_one_does_not(run):
    made = run()
    for broken, factor, cut in ((False, 1000.0, 1.0), (True, 1.0, 0.5)):
        made.make_unmeasured_step(broken=broken)
        peak, step = made.tuner.strategy.peak, made.tuner.last_step.step
        made.step(factor)
        assert made.tuner.strategy.peak == cut * peak
        made.step()
        assert made.tuner.last_step.step == step + 2  # time went on meanwhile
    assert made.tuner.probes.rolled_back == 2


@pytest.mark.parametrize("choice", CHOICES)
def test_so_is_one_after_which_the_loss_is_a_hundred_times_the_highest(run, choice):
    made = run(choice=choice)
    expected = made.make_unmeasured_step(broken=False)
    accepted = made.tuner.summary().total.accepted
    made.step(factor=100 * 2.0 / 0.05)  # from below 2 at the start to about 0.05 here
    assert made.parts() == expected
    assert made.tuner.probes.rolled_back == 1
    assert made.tuner.summary().total.accepted == accepted - 1
    made.step()
    assert made.tuner.last_step.probed


def test_a_heavy_tail_is_no_reason(run):
    made, source = run(), random.Random(0)
    for _ in range(200):
        made.step(factor=math.exp(source.gauss(0, 0.7)))
    assert made.tuner.probes.rolled_back == 0
    assert made.tuner.probes.share < 0.6


def test_a_measured_step_is_never_undone_late(run):
    made = run()
    while not made.tuner.last_step.probed:  # one in 24 is measured all the same
        made.step()
    before = made.tuner.summary().total
    made.step(factor=1e5)
    assert made.tuner.probes.rolled_back == 0
    assert made.tuner.summary().total.tried == before.tried + 1


@pytest.mark.parametrize(
    "save",
    [lambda t: t.state_dict(), copy.deepcopy, pickle.dumps],
    ids=["state dict", "copied", "pickled"],
)
def test_a_run_that_was_saved_does_what_the_saved_one_would(run, save):
    """The way back is not saved, so the original does without it too."""
    made = run(choice="random walk", base="momentum")
    made.tuner.base.__class__ = torch.optim.SGD  # a class that can be pickled
    made.make_unmeasured_step(broken=False)
    save(made.tuner)
    with pytest.raises(NonFiniteLossError):
        made.step(factor=math.nan)
    assert made.tuner.probes.rolled_back == 0


# --- What cannot be screened ---


SCREENABLE = {
    "simulated-annealing",
    "threshold-accepting",
    "hill-climbing",
    "random-walk",
    "heat-bath",
}


@pytest.mark.parametrize("name", sorted(SCREENABLE))
def test_strategies_that_know_their_bound_can_be_screened(net, name):
    assert isinstance(SGDSA(net, strategy=name, probe="screened").strategy, Screenable)


@pytest.mark.parametrize("name", sorted(STRATEGIES.keys() - SCREENABLE))
def test_others_cannot(net, name):
    kind = STRATEGIES[name].__name__
    message = rf"SGDSA\(probe='screened'\) must .*how much it may worsen, got {kind}\(.*'always'"
    with pytest.raises(ValueError, match=message):
        SGDSA(net, strategy=name, probe="screened")


@pytest.mark.parametrize("probe", ["sometimes", "", True, 3])
def test_an_unknown_way_of_probing_is_refused(net, probe):
    with pytest.raises(ValueError, match=r"SGDSA\(probe=\.\.\.\) must be 'always' or 'screened'"):
        SGDSA(net, probe=probe)


def test_the_bound_is_the_verdict():
    """What worsens by less is kept and what worsens by more is not, with the same draw."""
    for seed in range(200):
        strategy, rng = SimulatedAnnealing(0.5), random.Random(seed)
        bound = strategy.bound(1.0, rng)
        draw, after = random.Random(seed).random(), rng.getstate()
        assert metropolis(1.0, 1.0 + bound * (1 - 1e-9), 0.5, draw).accepted
        assert not strategy.decide(1.0, 1.0 + bound * (1 + 1e-9), rng).accepted
        assert rng.getstate() == after  # the number was drawn before
