"""Every strategy inside the optimizer: names, determinism, resume, exact undo, candidates."""

import copy
import math

import pytest
import torch
from torch.nn import functional as F

from annealtune import (
    SGDSA,
    Attribute,
    EmbeddedTuner,
    Genetic,
    HillClimbing,
    Setting,
    Tabu,
    grid,
)
from annealtune.annealing.strategies import STRATEGIES

NAMES = list(STRATEGIES)
H = grid(lr=[30.0, 3.0, 1.0, 0.1, 0.01], momentum=[0.0, 0.9])


def tuned(net, strategy, **options):
    return SGDSA(net, H, strategy=strategy, total_steps=40, **options)


def steps(net, tuner, batches):
    infos = []
    for x, y in batches:
        tuner.step(lambda x=x, y=y: F.cross_entropy(net(x), y))
        infos.append(tuner.last_step)
    return infos


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_enough_and_a_seed_determines_the_run(name, make_net, make_batches):
    runs = []
    for seed in (3, 3, 4):
        net = make_net()
        torch.manual_seed(1)
        runs.append(steps(net, tuned(net, name, seed=seed), make_batches(25)))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert all(info.setting in H for info in runs[0])
    assert any(info.accepted for info in runs[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_state_in_the_middle_continues_the_run(name, make_net, make_batches, picture):
    batches = make_batches(30, size=4)
    net = make_net()
    tuner = tuned(net, name)
    steps(net, tuner, batches[:13])
    saved = copy.deepcopy((net.state_dict(), tuner.state_dict(), torch.get_rng_state()))
    expected = steps(net, tuner, batches[13:])
    other = make_net(seed=9)
    resumed = tuned(other, name, seed=77)
    other.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    torch.set_rng_state(saved[2])
    assert steps(other, resumed, batches[13:]) == expected
    assert picture(other, resumed) == picture(net, tuner)
    assert str(resumed.summary()) == str(tuner.summary())


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_tentative_point_is_undone_bit_for_bit(name, make_net, make_batches, picture):
    (first, *_), net = make_batches(3), make_net()
    tuner = tuned(net, name)
    x, y = first
    twin = copy.deepcopy(net)
    start = torch.get_rng_state()
    F.cross_entropy(twin(x), y).backward()
    expected = picture(twin, tuner)
    torch.set_rng_state(start)
    here = net.first.weight.detach().clone()

    def closure():
        return F.cross_entropy(net(x), y) * (1 if torch.equal(net.first.weight, here) else math.nan)

    tuner.step(closure)
    assert not tuner.last_step.accepted
    now = picture(net, tuner)
    assert {k: now[k] for k in now} == {**expected, "optimizer": now["optimizer"]}
    assert not tuner.base.state


@pytest.mark.parametrize("name", NAMES)
def test_a_state_of_another_strategy_is_refused(name, make_net, make_batches):
    other = "great-deluge" if name != "great-deluge" else "late-acceptance"
    net = make_net()
    tuner = tuned(net, name)
    state = tuned(net, other).state_dict()
    with pytest.raises(ValueError, match="same kind of strategy"):
        tuner.load_state_dict(state)


def test_candidates_are_measured_from_the_same_point(net, make_batches, loss_after):
    class Watched(Tabu):
        seen = None

        def select(self, value, measured):
            Watched.seen = dict(measured)
            return super().select(value, measured)

    tuner = SGDSA(net, H, strategy=Watched(tenure=2, candidates=4))
    for x, y in make_batches(6):
        start = torch.get_rng_state()
        before, base = copy.deepcopy(net), copy.deepcopy(tuner.base)
        net.forwards = 0
        tuner.step(lambda x=x, y=y: F.cross_entropy(net(x), y))
        end = torch.get_rng_state()
        assert net.forwards == 1 + 4
        assert len(Watched.seen) == 4
        for setting, value in Watched.seen.items():
            loss_of = lambda net, x=x, y=y: F.cross_entropy(net(x), y)
            expected = loss_after(before, base, setting, loss_of, start)
            assert value == pytest.approx(expected, rel=1e-6)
        assert tuner.last_step.new_loss == Watched.seen[tuner.last_step.setting]
        with torch.no_grad():  # the point that was measured is the one where the weights are
            torch.set_rng_state(start)
            assert F.cross_entropy(net(x), y).item() == tuner.last_step.new_loss
        torch.set_rng_state(end)


def test_an_error_while_candidates_are_measured_leaves_no_trace(net, batch, picture):
    x, y = batch
    tuner = SGDSA(net, H, strategy=Tabu(candidates=3))
    calls = []

    def closure():
        calls.append(1)
        if len(calls) == 3:
            raise ZeroDivisionError
        return F.cross_entropy(net(x), y)

    twin, start = copy.deepcopy(net), torch.get_rng_state()
    F.cross_entropy(twin(x), y).backward()
    expected = picture(twin, tuner)
    torch.set_rng_state(start)
    with pytest.raises(ZeroDivisionError):
        tuner.step(closure)
    assert picture(net, tuner) == expected
    tuner.step(lambda: F.cross_entropy(net(x), y))
    assert tuner.moves.total.tried == 1


BAD = {
    "unknown name": (
        {"strategy": "tabou"},
        ValueError,
        ["SGDSA(strategy=...)", "'tabou'", "did you mean 'tabu'"],
    ),
    "a class": ({"strategy": HillClimbing}, TypeError, ["SGDSA(strategy=...)", "HillClimbing"]),
    "a number": ({"strategy": 3}, TypeError, ["SGDSA(strategy=...)", "3"]),
    "a temperature for one that has none": (
        {"strategy": "tabu", "temperature": 1.0},
        ValueError,
        ["SGDSA(strategy=..., temperature=...)", "'tabu'", "1.0"],
    ),
    "a temperature beside an object": (
        {"strategy": HillClimbing(), "temperature": 1.0},
        ValueError,
        ["SGDSA(strategy=..., temperature=...)", "HillClimbing()", "1.0"],
    ),
    "a tenure as long as H": (
        {"strategy": Tabu(tenure=10)},
        ValueError,
        ["Tabu(tenure=...)", "10"],
    ),
}


@pytest.mark.parametrize(("options", "error", "parts"), BAD.values(), ids=BAD)
def test_bad_input_names_argument_rule_and_value(net, options, error, parts):
    with pytest.raises(error) as caught:
        SGDSA(net, H, **options)
    assert [part for part in parts if part not in str(caught.value)] == []


def test_a_temperature_reaches_a_strategy_by_name(net):
    assert SGDSA(net, H, strategy="threshold-accepting", temperature=0.25).temperature == 0.25


def test_comparing_needs_a_step_that_can_measure(net, loss_of):
    tuner = EmbeddedTuner(torch.optim.SGD(net.parameters(), lr=0.1), strategy=Tabu(candidates=2))
    loss = loss_of()
    loss.backward()
    with pytest.raises(RuntimeError, match="several candidates a step"):
        tuner.propose(loss)


def test_comparing_needs_one_gradient(net):
    with pytest.raises(ValueError, match=r"one candidate a step.*drop.*Tabu"):
        SGDSA(
            net,
            grid(lr=[0.1, 1.0], drop=[0.1]),
            strategy=Tabu(candidates=2),
            loop={"drop": Attribute("p", net.drop)},
        )


class Flawed(Tabu):
    """Tabu search with one of its answers replaced."""

    def __init__(self, **answers):
        super().__init__(tenure=1, candidates=answers.pop("candidates", 1))
        self.answers = answers

    def answer(self, name, *arguments):
        if name in self.answers:
            return self.answers[name]()
        return getattr(super(), name)(*arguments)

    def pick(self, neighborhood, rng):
        return self.answer("pick", neighborhood, rng)

    def select(self, value, measured):
        return self.answer("select", value, measured)

    def decide(self, value, new_value, rng):
        return self.answer("decide", value, new_value, rng)

    def observe(self, setting, verdict):
        self.answer("observe", setting, verdict)


def fail():
    raise ZeroDivisionError("in the strategy")


FLAWS = {
    "a pick outside of H": (
        {"pick": lambda: Setting({"lr": 0.5, "momentum": 0.0})},
        ValueError,
        ["SGDSA(strategy=...) must pick settings of H", "lr=0.5", "Tabu"],
    ),
    "a pick that is no setting": (
        {"pick": lambda: {"lr": 0.1, "momentum": 0.0}},
        ValueError,
        ["SGDSA(strategy=...) must pick settings of H", "{'lr': 0.1"],
    ),
    "a selection that was not measured": (
        {"select": lambda: Setting({"lr": 0.5, "momentum": 0.0}), "candidates": 2},
        ValueError,
        ["must select one of the settings that were measured", "lr=0.5"],
    ),
    "no verdict": (
        {"decide": lambda: True},
        TypeError,
        ["must decide by a Verdict", "True", "Verdict.of"],
    ),
    "a failing decision": ({"decide": fail}, ZeroDivisionError, ["in the strategy"]),
    "a failing observation": ({"observe": fail}, ZeroDivisionError, ["in the strategy"]),
}


@pytest.mark.parametrize(("answers", "error", "parts"), FLAWS.values(), ids=FLAWS)
def test_a_flawed_strategy_is_told_and_leaves_no_trace(net, batch, picture, answers, error, parts):
    x, y = batch
    tuner = SGDSA(net, H, strategy=Flawed(**answers))
    twin, start = copy.deepcopy(net), torch.get_rng_state()
    F.cross_entropy(twin(x), y).backward()
    expected = picture(twin, tuner)
    torch.set_rng_state(start)
    with pytest.raises(error) as caught:
        tuner.step(lambda: F.cross_entropy(net(x), y))
    assert [part for part in parts if part not in str(caught.value)] == []
    assert picture(net, tuner) == expected
    tuner.strategy.answers.clear()  # and the next step is possible
    tuner.step(lambda: F.cross_entropy(net(x), y))
    assert tuner.moves.total.tried == 1


def test_settings_of_another_neighborhood_are_not_carried_over(make_net, make_batches):
    one, other = make_net(), make_net()
    tuner = tuned(one, Genetic(1.0, population=4))
    steps(one, tuner, make_batches(3))
    smaller = SGDSA(other, grid(lr=[0.5], momentum=[0.0, 0.9]), strategy=Genetic(1.0, population=4))
    with pytest.raises(ValueError, match=r"SGDSA.load_state_dict.*the same H"):
        smaller.load_state_dict(tuner.state_dict())
    steps(other, smaller, make_batches(1))
