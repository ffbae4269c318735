"""Every strategy inside the optimizer: names, determinism, exact undo, candidates."""

import copy

import pytest
import torch
from torch.nn import functional as F

from annealtune import SGDSA, grid
from annealtune.strategies import Genetic, Tabu

NAMES = ["simulated-annealing", "tabu", "variable-neighborhood", "genetic"]
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


BAD = {
    "unknown name": ({"strategy": "tabou"}, ValueError),
    "a class": ({"strategy": Tabu}, TypeError),
    "a number": ({"strategy": 3}, TypeError),
    "a temperature for one that has none": ({"strategy": "tabu", "temperature": 1.0}, ValueError),
    "a temperature beside an object": ({"strategy": Tabu(), "temperature": 1.0}, ValueError),
    "a tenure as long as H": ({"strategy": Tabu(tenure=10)}, ValueError),
}


@pytest.mark.parametrize(("options", "error"), BAD.values(), ids=BAD)
def test_bad_arguments_are_named(net, options, error):
    with pytest.raises(error, match=r"strategy|tenure") as caught:
        SGDSA(net, H, **options)
    assert caught.type is error


def test_a_temperature_reaches_a_strategy_by_name(net):
    assert SGDSA(net, H, strategy="genetic", temperature=0.25).temperature == 0.25


def fail(*_):
    raise ZeroDivisionError("in the strategy")


@pytest.mark.parametrize("method", ["pick", "decide", "observe"])
def test_a_strategy_that_fails_leaves_no_trace(net, batch, picture, monkeypatch, method):
    x, y = batch
    tuner = SGDSA(net, H, strategy="variable-neighborhood")
    twin, start = copy.deepcopy(net), torch.get_rng_state()
    F.cross_entropy(twin(x), y).backward()
    expected = picture(twin, tuner)
    torch.set_rng_state(start)
    with monkeypatch.context() as patched:
        patched.setattr(tuner.strategy, method, fail)
        with pytest.raises(ZeroDivisionError):
            tuner.step(lambda: F.cross_entropy(net(x), y))
    assert picture(net, tuner) == expected
    tuner.step(lambda: F.cross_entropy(net(x), y))  # and the next step is possible
    assert tuner.moves.total.tried == 1


@pytest.mark.parametrize("strategy", [*NAMES[:3], Genetic(1.0, population=3, trials=1)])
def test_a_step_that_is_cut_off_is_made_again_alike(strategy, make_net, make_batches, bits):
    def run(failing):
        net = make_net().eval()  # nothing but the strategy draws
        tuner = tuned(net, strategy)
        for number, (x, y) in enumerate(make_batches(8)):
            net.forwards = 0

            def cut_off(x=x, y=y):
                if net.forwards == 1:
                    raise MemoryError
                return F.cross_entropy(net(x), y)

            if number == failing:
                with pytest.raises(MemoryError):
                    tuner.step(cut_off)
            steps(net, tuner, [(x, y)])
        return bits(list(net.parameters())), tuner.moves

    undisturbed = run(None)
    for number in range(7):  # generations begin with steps 0, 3 and 6
        assert run(number) == undisturbed
