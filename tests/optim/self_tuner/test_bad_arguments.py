"""Arguments that cannot be used are refused by the constructor, with class, rule and value."""

import copy
import math

import pytest
import torch
from torch import nn

from annealtune import SGDSA, grid
from annealtune.optim.self_tuner import SelfTuner


@pytest.fixture
def weight():
    return nn.Parameter(torch.ones(3))


@pytest.fixture
def base(weight):
    return torch.optim.SGD([weight], lr=0.1, momentum=0.5)


def refused(base, error, *parts, **settings):
    """Check that the message has its parts, and that the base is as it was."""
    before = copy.deepcopy(base.state_dict()) if isinstance(base, torch.optim.Optimizer) else None
    with pytest.raises(error) as raised:
        SelfTuner(base, **settings)
    message = str(raised.value)
    for part in ("SelfTuner", "must", *parts):
        assert part in message, message
    if before is not None:
        assert base.state_dict() == before


@pytest.mark.parametrize("steps", [0, -1])
def test_a_length_below_one(base, steps):
    refused(base, ValueError, "total_steps", "at least 1", str(steps), total_steps=steps)


@pytest.mark.parametrize("steps", [1.5, True, "100"])
def test_a_length_that_is_no_whole_number(base, steps):
    refused(base, TypeError, "total_steps", "whole number", repr(steps), total_steps=steps)


@pytest.mark.parametrize("around", [0, -0.1, math.nan, math.inf])
def test_a_centre_that_is_not_positive(base, around):
    refused(base, ValueError, "around", "positive", repr(around), around=around)


@pytest.mark.parametrize("around", ["0.1", True, [0.1]])
def test_a_centre_that_is_no_number(base, around):
    refused(base, TypeError, "around", "number", repr(around), around=around)


@pytest.mark.parametrize(("steps", "error"), [(-1, ValueError), (0.5, TypeError)])
def test_a_warm_up_that_is_no_number_of_steps(base, steps, error):
    refused(base, error, "warmup", repr(steps), warmup=steps)


def test_a_place_that_does_not_exist(base):
    refused(base, ValueError, "offload", "True or False", "'disk'", offload="disk")


def test_an_objective_that_is_no_function(base):
    refused(base, TypeError, "objective", "function", "3", objective=3)


def test_a_model_that_is_no_module(base, weight):
    refused(base, TypeError, "model", "torch.nn.Module", model=[weight])


class TestTheBase:
    @pytest.mark.parametrize("thing", [None, 3, nn.Linear(1, 1), torch.optim.SGD])
    def test_no_optimizer(self, thing):
        refused(thing, TypeError, "base", "torch.optim.Optimizer", "torch.optim.SGD(")

    def test_one_that_needs_a_closure(self, weight):
        refused(torch.optim.LBFGS([weight]), TypeError, "closure", "LBFGS")

    def test_one_of_ours(self, base):
        tuner = SelfTuner(base)
        with pytest.raises(TypeError, match=r"SelfTuner\(base=...\) must"):
            SelfTuner(tuner)
        with pytest.raises(TypeError, match=r"SelfTuner\(base=...\) must"):
            SelfTuner(SGDSA([nn.Parameter(torch.ones(1))]))

    def test_one_without_parameters(self):
        empty = torch.optim.SGD([{"params": []}], lr=0.1)
        refused(empty, ValueError, "parameters", "none")

    def test_one_without_a_positive_rate(self, weight):
        refused(torch.optim.SGD([weight], lr=0.0), ValueError, "positive learning rate", "0.0")

    def test_one_that_minimizes_and_maximizes(self, weight):
        groups = [{"params": [weight]}, {"params": [nn.Parameter(torch.ones(1))], "maximize": True}]
        refused(torch.optim.SGD(groups, lr=0.1), ValueError, "maximize", "both")

    @pytest.mark.parametrize("given", [{}, {"neighborhood": grid(lr=[0.1, 0.2])}])
    def test_one_with_a_scheduler(self, base, given):
        torch.optim.lr_scheduler.StepLR(base, 10)

        refused(base, ValueError, "scheduler", **given)


class TestTheNeighborhood:
    def test_one_setting(self, base):
        refused(
            base, ValueError, "neighborhood", "at least two", "lr=0.1", neighborhood=grid(lr=[0.1])
        )

    def test_one_that_the_base_takes(self, weight):
        base = torch.optim.Adam([weight])
        refused(
            base, ValueError, "at least two", neighborhood=grid(betas=[(0.9, 0.999), (1.5, 0.9)])
        )

    def test_more_than_fit_into_the_run(self, base):
        refused(
            base,
            ValueError,
            "total_steps=100",
            "fewer settings or more steps",
            neighborhood=grid(lr=[0.1 / 2**n for n in range(10)]),
            total_steps=100,
        )

    def test_an_option_that_the_base_has_not(self, base):
        refused(base, ValueError, "'betas'", "momentum", neighborhood=grid(betas=[(0, 1), (0, 2)]))

    @pytest.mark.parametrize("thing", [3, "lr", [0.1, 0.2], {"lr": 0.1}])
    def test_no_collection_of_settings(self, base, thing):
        refused(base, TypeError, "neighborhood", repr(thing), neighborhood=thing)

    def test_a_mapping_of_lists_is_a_grid(self, base):
        assert SelfTuner(base, neighborhood={"lr": [0.1, 0.2]}).neighborhood == grid(lr=[0.1, 0.2])
