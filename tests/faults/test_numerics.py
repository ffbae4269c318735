"""Numbers that break: every tuner in every precision, over torch's own, at random.

What must hold: no exception but ours, no broken weight that is kept in silence, an undone step
that leaves every bit, a run that goes on with finite weights and says what it did.
"""

import math
import random
import warnings

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from annealtune import SGDSA, EmbeddedTuner, SelfTuner, StochasticSA, grid
from annealtune.errors import NonFiniteLossError
from tests.faults.broken_nets import Breaking, bits

TEMPERATURES = (None, 0.0, 1e-300, 1e-30, 1.0, 1e30, 1e300, math.inf)
STRATEGIES = (None, "tabu", "genetic")
SEEDS = st.integers(0, 2**32 - 1)
MANY = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def holding(weight):
    """Return a model of one weight."""
    return nn.ParameterList([weight])


def annealed(net, rng):
    """An optimizer that accepts or rejects steps."""
    temperature = rng.choice(TEMPERATURES)
    strategy = None if temperature is not None else rng.choice(STRATEGIES)
    kind = rng.choice([EmbeddedTuner, SGDSA, StochasticSA])
    if kind is StochasticSA:
        return StochasticSA(
            net.model,
            radius=rng.choice([1e-3, 0.1, 1e3, 1e6]),
            temperature=temperature,
        )
    if kind is SGDSA:
        return SGDSA(net.model, temperature=temperature, strategy=strategy)
    rates = rng.choice([None, [1e-3, 1e-1], [1e-8, 1e3], [0.0, 1e4], [1e-2, 1e20]])
    return EmbeddedTuner(
        net.make_base(),
        model=net.model,
        neighborhood=None if rates is None else grid(lr=rates),
        temperature=temperature,
        strategy=strategy,
    )


def check_annealed(seed, steps=20):
    rng = random.Random(seed)
    net = Breaking(rng, share=0.3)
    optimizer = annealed(net, rng)
    for step in range(steps):
        whole = net.copies()
        fault = net.next()
        before, was_finite = bits(net.weights()), net.are_finite()
        told = f"{net}, {optimizer!r}, step {step}, fault {fault}"
        try:
            optimizer.step(net.loss)
        except NonFiniteLossError:
            assert bits(net.weights()) == before, told
        else:
            info = optimizer.last_step
            if info.accepted:
                assert math.isfinite(info.loss), told
                assert math.isfinite(info.new_loss), told
                assert net.are_finite() or not was_finite, told
            else:
                assert bits(net.weights()) == before, told
        if fault is not None and fault[0] == "weight":
            net.put(whole)


def check_self_tuned(seed):
    rng = random.Random(seed)
    net = Breaking(rng, share=rng.choice([0.0, 0.02, 0.1, 0.3]))
    length = rng.choice([120, 200, 300])
    options = rng.choice(
        [
            {},
            {"around": 10.0 ** rng.uniform(-8, 3)},
            {"neighborhood": {"lr": rng.choice([[0.01, 0.1], [1e-5, 1e4]])}},
        ]
    )
    if rng.random() < 0.2:
        options["objective"] = lambda: rng.choice([1.0, math.nan, math.inf, net.loss().item()])
    optimizer = SelfTuner(
        net.make_base(),
        model=net.model,
        total_steps=length,
        average=rng.random() < 0.7,
        **options,
    )
    compute_loss = optimizer.record(net.loss)
    by_record = rng.random() < 0.5
    was_finite = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(length):
            net.next(weights=not optimizer.is_racing)
            try:
                if by_record:
                    optimizer.zero_grad()
                    compute_loss().backward()
                    optimizer.step()
                else:
                    optimizer.step(net.loss)
            except NonFiniteLossError:
                return
            goes_back = not was_finite and net.are_finite() and not optimizer.is_racing
            was_finite = net.are_finite()
            if goes_back:  # by the guard or the end of a race, and says so
                said = {e.step for e in optimizer.history.events if "averaged weights" in e.text}
                raced = {race.step + race.minibatches - 1 for race in optimizer.races}
                assert optimizer.steps - 1 in said | raced
    assert net.are_finite(), f"the end of {net}, {optimizer!r}"
    if optimizer.averages:
        with optimizer.averaged():
            assert net.are_finite(), f"the average of {net}, {optimizer!r}"


@MANY
@given(SEEDS)
def test_steps_that_are_accepted_or_undone(seed):
    check_annealed(seed)


@settings(MANY, max_examples=10)
@given(SEEDS)
def test_races_and_the_run_after_them(seed):
    check_self_tuned(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 3000, 500))
def test_three_thousand_annealed_runs(start):
    for seed in range(start, start + 500):
        check_annealed(seed)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("start", range(0, 600, 100))
def test_six_hundred_self_tuned_runs(start):
    for seed in range(start, start + 100):
        check_self_tuned(seed)


def decisions(exponent):
    """What a run decides whose loss is in units of a power of two: exact in every decade."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    x = torch.randn(16, 3, dtype=torch.float64)
    y = x.sum(1, keepdim=True).sin()
    optimizer = EmbeddedTuner(
        torch.optim.AdamW(model.parameters(), lr=0.3, eps=0.0),
        model=model,
        total_steps=60,
    )
    unit = 2.0**exponent
    found = []
    for _ in range(60):
        optimizer.step(lambda: nn.functional.mse_loss(model(x), y) * unit)
        info = optimizer.last_step
        found.append((info.setting, info.accepted, info.worsening / unit))
    return found


@pytest.mark.parametrize("exponent", [-100, -37, 1, 64, 100])  # 1e-30 to 1e30
def test_sixty_decades_of_the_loss_change_no_decision(exponent):
    expected = decisions(0)
    assert decisions(exponent) == expected
    assert {accepted for _, accepted, _ in expected} == {True, False}


@pytest.mark.parametrize("loss", [1.7e308, -1.7e308])
def test_losses_whose_sums_overflow(loss):
    """In float64 a sum of finite losses need not be finite."""
    weight = nn.Parameter(torch.ones(2, dtype=torch.float64))
    optimizer = SelfTuner(
        torch.optim.SGD([weight], lr=0.1), holding(weight), total_steps=300, around=0.01
    )

    def compute_loss():
        return weight.sum() + loss * (optimizer.steps in (4, 5, 200))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(300):
            optimizer.step(compute_loss)
    assert optimizer.races
    assert weight.isfinite().all()


class TestBrokenWeightsBehindAFiniteLoss:
    def root(self):
        weight = nn.Parameter(torch.tensor([1.0, 0.0]))
        return weight, lambda: torch.where(weight > 0, weight.sqrt(), 0 * weight).sum()

    def test_such_a_step_is_undone(self):
        weight, compute_loss = self.root()
        tuner = EmbeddedTuner(
            torch.optim.SGD([weight], lr=0.1), holding(weight), temperature=math.inf
        )
        tuner.step(compute_loss)
        assert not tuner.last_step.accepted
        assert math.isnan(tuner.last_step.new_loss)
        assert weight.tolist() == [1.0, 0.0]

    def test_weights_that_somebody_has_broken_are_named(self):
        weight = nn.Parameter(torch.tensor([1.0, math.inf]))
        tuner = EmbeddedTuner(
            torch.optim.SGD([weight], lr=0.1), holding(weight), temperature=math.inf
        )
        tuner.step(lambda: weight.tanh().sum())
        with pytest.raises(NonFiniteLossError, match="weights"):
            tuner.step(lambda: weight.tanh().sum())

    @pytest.mark.parametrize("known", [True, False], ids=["planned", "blind"])
    def test_a_run_goes_back_and_says_so(self, known):
        """A row that is broken is not used again for a while; the average must not take it in."""
        model = nn.Embedding(4, 2)
        optimizer = SelfTuner(
            torch.optim.SGD(model.parameters(), lr=0.1),
            model=model,
            total_steps=300,
            neighborhood={"lr": [0.01, 0.02]},
        )
        targets = torch.tensor([[1.0, 2.0]] * 4)

        def compute_loss():
            rows = torch.tensor([3] if optimizer.steps == 200 else [0, 1])
            return (model(rows) - targets[rows]).square().mean()

        def break_row(gradient):
            return gradient * (math.nan if optimizer.steps == 200 else 1.0)

        model.weight.register_hook(break_row)

        def train():
            for step in range(300):
                if known or step < 100:
                    optimizer.step(compute_loss)
                else:
                    optimizer.zero_grad()
                    compute_loss().backward()
                    optimizer.step()

        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            train()
        assert sum("back to the averaged" in str(w.message) for w in said) == 1
        assert model.weight.isfinite().all()
        with optimizer.averaged():
            assert model.weight.isfinite().all()

    def test_the_last_planned_step_leaves_none(self):
        weight = nn.Parameter(torch.ones(2))
        optimizer = SelfTuner(torch.optim.SGD([weight], lr=0.1), holding(weight), total_steps=300)
        weight.register_hook(lambda g: g * (math.nan if optimizer.steps == 299 else 1.0))

        def train():
            for _ in range(300):
                optimizer.step(lambda: (weight - 3).square().sum())

        with pytest.warns(UserWarning, match="back to the averaged weights"):
            train()
        assert weight.isfinite().all()
        assert optimizer.history.events[-1].step == 299


class TestRatesThatTheWeightsCannotHold:
    def half(self):
        return nn.Parameter(torch.ones(2, dtype=torch.float16))

    @pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.Rprop, torch.optim.ASGD])
    def test_are_dropped_from_h(self, base):
        weight = self.half()
        tuner = EmbeddedTuner(
            base([weight], lr=0.1), holding(weight), neighborhood={"lr": [0.1, 1e5]}
        )
        assert list(tuner.neighborhood) == [{"lr": 0.1}]
        assert tuner.neighborhood.dropped == ({"lr": 1e5},)

    @pytest.mark.parametrize("around", [1e4, 1e31])
    def test_are_refused_as_a_centre(self, around):
        weight = self.half()
        with pytest.raises(ValueError, match=r"SelfTuner\(around=...\)"):
            SelfTuner(torch.optim.SGD([weight], lr=0.1), holding(weight), around=around)

    def test_are_not_reached_by_the_search_for_a_centre(self):
        """A tiny gradient asks for a rate that float16 does not have."""
        weight = self.half()
        optimizer = SelfTuner(torch.optim.SGD([weight], lr=0.1), holding(weight), total_steps=300)
        for _ in range(300):
            optimizer.step(lambda: weight.sum() * 1e-6)
        assert optimizer.races[0].settings[-1]["lr"] <= torch.finfo(torch.float16).max
        assert weight.isfinite().all()
