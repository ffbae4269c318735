"""The end of a message about a name that nobody knows."""

import doctest

import pytest

from annealtune import errors
from annealtune.errors import did_you_mean

NAMES = ["late-acceptance", "batch_size", "tabu"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("tabuu", "tabu"),
        ("TABU", "tabu"),
        ("Late_Acceptance", "late-acceptance"),
        ("batch-size", "batch_size"),
        ("batchsize", "batch_size"),
    ],
)
def test_the_nearest_name_is_given(name, meant):
    assert did_you_mean(name, NAMES) == f"; did you mean {meant!r}?"


@pytest.mark.parametrize("name", ["", "xyz", "momentum"])
def test_nothing_is_said_where_none_is_near(name):
    assert did_you_mean(name, NAMES) == ""
    assert did_you_mean(name, []) == ""


def test_how_near_can_be_chosen():
    assert did_you_mean("rate", ["strategy"]) != ""
    assert did_you_mean("rate", ["strategy"], cutoff=0.75) == ""


def test_the_example_runs_as_printed():
    assert doctest.testmod(errors) == (0, 1)
