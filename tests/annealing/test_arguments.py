"""The checks that every constructor shares."""

import math

import pytest

from annealtune.annealing.arguments import (
    count,
    not_negative,
    number,
    one_length,
    positive,
    share,
)


class Index:
    """Stands for numpy's integers, which are no ``int``."""

    def __index__(self):
        return 7


def test_numbers_become_floats():
    assert number("Owner(rate=...)", 3) == 3.0
    assert isinstance(number("Owner(rate=...)", 3), float)
    assert number("Owner(rate=...)", -math.inf) == -math.inf
    assert not_negative("Owner(rate=...)", math.inf) == math.inf
    assert not_negative("Owner(rate=...)", -0.0) == 0.0
    assert positive("Owner(rate=...)", 3) == 3.0
    assert [share("Owner(part=...)", part) for part in (0, 0.5, 1)] == [0.0, 0.5, 1.0]


def test_counts_become_ints():
    assert count("Owner(times=...)", 0, least=0) == 0
    assert count("Owner(times=...)", Index(), least=7) == 7


@pytest.mark.parametrize(
    ("check", "error", "message"),
    [
        (lambda: number("Owner(x=...)", "3"), TypeError, "Owner(x=...) must be a number, got '3'"),
        (
            lambda: number("Owner(x=...)", False),
            TypeError,
            "Owner(x=...) must be a number, got False",
        ),
        (
            lambda: not_negative("Owner(x=...)", -1),
            ValueError,
            "Owner(x=...) must be a number that is not negative, got -1",
        ),
        (
            lambda: not_negative("Owner(x=...)", math.nan),
            ValueError,
            "Owner(x=...) must be a number that is not negative, got nan",
        ),
        (
            lambda: positive("Owner(x=...)", 0),
            ValueError,
            "Owner(x=...) must be positive and finite, got 0",
        ),
        (
            lambda: positive("Owner(x=...)", math.inf),
            ValueError,
            "Owner(x=...) must be positive and finite, got inf",
        ),
        (
            lambda: positive("Owner(x=...)", math.nan),
            ValueError,
            "Owner(x=...) must be positive and finite, got nan",
        ),
        (
            lambda: share("Owner(x=...)", 1.01),
            ValueError,
            "Owner(x=...) must lie between 0 and 1, got 1.01",
        ),
        (
            lambda: share("Owner(x=...)", math.nan),
            ValueError,
            "Owner(x=...) must lie between 0 and 1, got nan",
        ),
        (
            lambda: count("Owner(x=...)", 3.0, least=0),
            TypeError,
            "Owner(x=...) must be a whole number, got 3.0",
        ),
        (
            lambda: count("Owner(x=...)", True, least=0),
            TypeError,
            "Owner(x=...) must be a whole number, got True",
        ),
        (
            lambda: count("Owner(x=...)", 2, least=3),
            ValueError,
            "Owner(x=...) must be at least 3, got 2",
        ),
    ],
)
def test_messages_name_argument_rule_and_value(check, error, message):
    with pytest.raises(error) as caught:
        check()
    assert str(caught.value) == message


def test_one_length_is_enough():
    one_length("Owner", epochs=None, total_steps=None)
    one_length("Owner", epochs=None, total_steps=1)


def test_two_lengths_are_refused_by_name():
    with pytest.raises(ValueError, match="one length") as caught:
        one_length("Owner", epochs=3, total_steps=40)
    assert str(caught.value) == (
        "Owner(epochs=..., total_steps=...) must be given one length, "
        "got epochs=3 and total_steps=40"
    )


def test_a_length_below_one_is_refused():
    with pytest.raises(ValueError, match=r"Owner\(epochs=...\) must be at least 1, got 0"):
        one_length("Owner", epochs=0, total_steps=None)
