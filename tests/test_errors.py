"""The end of a message about a name that nobody knows."""

import doctest

import pytest

from annealtune import errors
from annealtune.errors import did_you_mean, unknown_name

NAMES = ["variable-neighborhood", "batch_size", "tabu"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("tabuu", "tabu"),
        ("TABU", "tabu"),
        ("Variable_Neighborhood", "variable-neighborhood"),
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


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("figure-9", ["figure-1", "figure-4", "figure-long"]),
        ("cifar100", ["cifar10"]),
        ("vgg17-w8", ["vgg16-w8", "vgg19-w8"]),
    ],
)
def test_another_number_is_not_a_typo(name, known):
    assert did_you_mean(name, known) == ""


def test_a_typo_beside_a_number_is_one():
    assert did_you_mean("vg16", ["vgg16", "vgg19"]) == "; did you mean 'vgg16'?"
    assert did_you_mean("cifar", ["cifar10"]) == "; did you mean 'cifar10'?"
    assert did_you_mean("paper-vgg16", ["paper-cifar10-vgg16"]) != ""


def test_an_unknown_name_is_told_with_the_nearest_and_all():
    near = unknown_name("data", "digit", ["digits", "cifar10"], or_else="module:factory")
    assert str(near) == (
        "data = 'digit': unknown; did you mean 'digits'? Known: digits, cifar10, or module:factory"
    )
    assert str(unknown_name("data", "x", ["a", "b"])) == "data = 'x': unknown; known: a, b"


def test_how_near_can_be_chosen():
    assert did_you_mean("rate", ["strategy"]) != ""
    assert did_you_mean("rate", ["strategy"], cutoff=0.75) == ""


def test_the_example_runs_as_printed():
    assert doctest.testmod(errors) == (0, 3)
