"""The exceptions of annealtune. Wrong arguments are plain ``ValueError`` or ``TypeError``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Words longer than any name: comparing them with names takes time and finds nothing.
_LONGEST_NAME = 200


class AnnealtuneError(Exception):
    """Base of every exception that is annealtune's own.

    Its text can be shown on any terminal, whatever names and values it quotes; see `printable`.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class NonFiniteLossError(AnnealtuneError, ArithmeticError):
    """The loss at the current point is NaN or infinite: there is nothing to compare a move with."""


class RanksError(AnnealtuneError, RuntimeError):
    """Processes that train one run together and do not agree: weights, seeds or decisions."""


class ConfigError(AnnealtuneError, ValueError):
    """A key, flag or value that cannot be used; the program exits with code 2."""


class DataError(AnnealtuneError):
    """A data set that is missing, damaged or of the wrong kind; the program exits with code 1."""


class RunError(AnnealtuneError):
    """A run that cannot start or go on: directory, lock, checkpoint or disk; exit code 1."""


class RunStoppedError(AnnealtuneError):
    """A run that was asked to stop and has saved its state; exit code 128 plus the signal.

    Args:
        signal_number: the signal that asked; 0 if it was the plan and no signal: exit code 0.
        message: where it stopped and how it is continued.
    """

    def __init__(self, signal_number: int, message: str) -> None:
        super().__init__(message)
        self.signal_number = signal_number


def printable(text: str) -> str:
    r"""Return text in which what would steer a terminal is spelled out; line ends and tabs stay.

    These are control characters, so every escape sequence, those that turn the direction of
    writing, and halves of characters, which no file takes.

    Example:
        >>> print(printable("a\x1b[31mb"))
        a\x1b[31mb
    """
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the end of a message about an unknown name: the nearest known one, if one is near.

    Another number is not a typo: for ``figure-9`` or ``cifar100`` nothing is suggested where there
    are ``figure-4`` or ``cifar10``.

    Args:
        name: what was given; capitals, hyphens and underscores make no difference.
        known: the names that exist.
        cutoff: how near is near, from 0 to 1.

    Example:
        >>> print("got 'Tabuu'" + did_you_mean("Tabuu", ["genetic", "tabu"]))
        got 'Tabuu'; did you mean 'tabu'?
    """
    near = nearest(name, known, cutoff)
    return "" if near is None else f"; did you mean {near!r}?"


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name that is meant, None if none is near; see `did_you_mean`."""
    if len(name) > _LONGEST_NAME:
        return None
    wanted = _plain(name)
    plain = {_plain(word): word for word in known}
    if wanted in plain:
        return plain[wanted]
    if any(_differ_in_numbers(wanted, word) for word in plain):
        return None
    near = difflib.get_close_matches(wanted, plain, n=1, cutoff=cutoff)
    return plain[near[0]] if near else None


def unknown_name(key: str, name: str, known: Iterable[str], *, or_else: str = "") -> ConfigError:
    """Return the error for a value that is none of the known names: the nearest, and all of them.

    Args:
        key: what was to be set.
        name: what was given.
        known: the names that exist.
        or_else: what may be given instead of a name.

    Example:
        >>> print(unknown_name("model", "vg16", ["mlp", "vgg16"]))
        model = 'vg16': unknown; did you mean 'vgg16'? Known: mlp, vgg16
    """
    known = list(known)
    hint = did_you_mean(name, known)
    names = ", ".join(known) + (f", or {or_else}" if or_else else "")
    return ConfigError(
        f"{key} = {name!r}: unknown{f'{hint} Known' if hint else '; known'}: {names}"
    )


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _differ_in_numbers(one: str, other: str) -> bool:
    """Tell whether two names are the same apart from the numbers in them."""
    bare_one, bare_other = (re.sub(r"\d+", "0", word) for word in (one, other))
    return one != other and bare_one == bare_other
