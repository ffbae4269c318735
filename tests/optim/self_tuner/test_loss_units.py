"""Unit, sign and zero of the loss: none of them changes what a race decides or how a run ends."""

import pytest
import torch

from tests.optim.self_tuner.classification import BASES, adamw, sgd, train


@pytest.fixture(scope="module")
def usual():
    """The runs with the loss as it is."""
    return {base: train(base) for base in BASES}


def scaled_options(base, factor):
    """Adam's eps has the unit of a gradient, so it must follow."""
    return {"eps": 1e-8 * factor} if base is adamw else {}


def test_the_usual_runs_train(usual):
    for run in usual.values():
        assert run.last < 0.1 * run.first
        assert run.optimizer.races
        assert not run.events("broke")


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_a_factor_on_the_loss_changes_no_decision(usual, base, factor):
    run = train(base, lambda loss, step: loss * factor, options=scaled_options(base, factor))

    assert run.decisions == usual[base].decisions
    assert run.last == pytest.approx(usual[base].last, rel=0.1)


@pytest.mark.parametrize("factor", [2.0**-20, 2.0**20])
def test_a_power_of_two_changes_no_bit_of_adam(usual, factor):
    run = train(adamw, lambda loss, step: loss * factor, options=scaled_options(adamw, factor))

    for weight, expected in zip(
        run.model.parameters(), usual[adamw].model.parameters(), strict=True
    ):
        torch.testing.assert_close(weight, expected, rtol=0, atol=0)


@pytest.mark.parametrize("factor", [1e-12, 1e12])
def test_sgd_trains_whatever_the_unit(usual, factor):
    run = train(sgd, lambda loss, step: loss * factor)

    assert run.last == pytest.approx(usual[sgd].last, rel=0.1)
    assert run.optimizer.races[0].rate * factor == pytest.approx(
        usual[sgd].optimizer.races[0].rate, rel=0.01
    )


@pytest.mark.parametrize("base", BASES)
def test_a_large_constant_in_the_loss_does_no_harm(usual, base):
    run = train(base, lambda loss, step: loss + 1e5)

    assert run.last < 2 * usual[base].last
    assert not run.events("broke")


@pytest.mark.parametrize("base", BASES)
def test_a_constant_that_swallows_the_loss_does_no_harm(usual, base):
    run = train(base, lambda loss, step: loss + 1e8)  # every loss is the same number

    assert run.last < 0.6 * run.first  # the race learns nothing, the run does
    assert not run.events("broke")


@pytest.mark.parametrize("base", BASES)
def test_a_negative_loss_does_no_harm(usual, base):
    run = train(base, lambda loss, step: loss - 50.0)

    assert run.last == pytest.approx(usual[base].last, rel=0.1)


@pytest.mark.parametrize("base", BASES)
def test_maximizing_the_negative_is_minimizing_bit_for_bit(usual, base):
    run = train(base, lambda loss, step: -loss, options={"maximize": True})

    assert run.decisions == usual[base].decisions
    for weight, expected in zip(
        run.model.parameters(), usual[base].model.parameters(), strict=True
    ):
        assert torch.equal(weight, expected)
    for race, expected in zip(run.optimizer.races, usual[base].optimizer.races, strict=True):
        assert race.scores == pytest.approx([-score for score in expected.scores])
