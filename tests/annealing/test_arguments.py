"""The checks that every constructor shares."""

import math

import pytest

from annealtune.annealing.arguments import (
    count,
    not_negative,
    number,
    positive,
    whole,
)


class Index:
    """Stands for numpy's integers, which are no ``int``."""

    def __index__(self):
        return 7


def test_numbers_of_other_kinds_are_converted():
    assert isinstance(number("Owner(rate=...)", 3), float)
    assert not_negative("Owner(rate=...)", math.inf) == math.inf
    assert count("Owner(times=...)", Index(), least=7) == 7


@pytest.mark.parametrize(
    ("check", "value", "error"),
    [
        (number, "3", TypeError),
        (number, False, TypeError),
        (not_negative, -1, ValueError),
        (not_negative, math.nan, ValueError),
        (positive, 0, ValueError),
        (positive, math.inf, ValueError),
        (positive, math.nan, ValueError),
        (whole, 3.0, TypeError),
        (whole, True, TypeError),
        (lambda argument, value: count(argument, value, least=3), 2, ValueError),
    ],
)
def test_the_message_names_argument_and_value(check, value, error):
    with pytest.raises(error) as caught:
        check("Owner(x=...)", value)
    assert str(caught.value).startswith("Owner(x=...) must")
    assert str(caught.value).endswith(f"got {value!r}")
