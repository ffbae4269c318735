"""The end of a message about a name that nobody knows."""

import pytest

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


@pytest.mark.parametrize("name", ["", "xyz"])
def test_nothing_is_said_where_none_is_near(name):
    assert did_you_mean(name, NAMES) == ""
    assert did_you_mean(name, []) == ""


def test_an_unknown_name_is_told_with_the_nearest_and_all():
    near = unknown_name("data", "digit", ["digits", "cifar10"], or_else="module:factory")
    assert str(near) == (
        "data = 'digit': unknown; did you mean 'digits'? Known: digits, cifar10, or module:factory"
    )
    assert str(unknown_name("data", "x", ["a", "b"])) == "data = 'x': unknown; known: a, b"
