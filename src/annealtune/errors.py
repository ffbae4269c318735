"""The exceptions of annealtune. Wrong arguments are plain ``ValueError`` or ``TypeError``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AnnealtuneError(Exception):
    """Base of every exception that is annealtune's own."""


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


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known one, if one is near.

    Capitals, hyphens and underscores make no difference.

    Example:
        >>> print("got 'Tabuu'" + did_you_mean("Tabuu", ["genetic", "tabu"]))
        got 'Tabuu'; did you mean 'tabu'?
    """
    plain = {word.lower().replace("_", "-"): word for word in known}
    near = difflib.get_close_matches(name.lower().replace("_", "-"), plain, n=1)
    return f"; did you mean {plain[near[0]]!r}?" if near else ""


def unknown_name(key: str, name: str, known: Iterable[str], *, or_else: str = "") -> ConfigError:
    """Return the error for an unknown name; it tells the nearest known one and all of them.

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
