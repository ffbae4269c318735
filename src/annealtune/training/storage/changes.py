"""What may be changed in the config of a run that has begun, and how a change is told."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from annealtune.training.config import ENVIRONMENT, FREE_KEYS, RunConfig, from_values
from annealtune.training.plain_data import parse_toml

from .seal import CHANGES, DamageError, read_bytes


def config_changes(sealed: str, path: Path) -> list[str]:
    """Return what was changed in a run's config since it was sealed, none if nothing was.

    Raises:
        DamageError: if a key was changed that may not be, or no value at all.
        RunError: if it cannot be read.
    """
    content = read_bytes(path)
    if content == sealed.encode():
        return []
    try:
        now = flat(parse_toml(content.decode()))
    except (ValueError, RecursionError) as error:
        raise DamageError(f"{path.name} is damaged: it is not valid TOML: {error}") from None
    try:
        was = flat(parse_toml(sealed))
    except (ValueError, RecursionError) as error:
        raise DamageError(f"the config in the seal is damaged: it is not TOML: {error}") from None
    differing = differences(was, now)
    if not differing:
        raise DamageError(f"{path.name} was changed: {_first_difference(sealed, content)}")
    told = [told_change(key, now.get(key), was.get(key)) for key in differing]
    follows_length = from_values(parse_toml(sealed)).follows_length
    if not all(may_change(key, was, now, follows_length) for key in differing):
        raise DamageError(f"{path.name} was changed: {'; '.join(told)}")
    return told


def compare(
    stored: RunConfig, config: RunConfig, *, is_finished: bool
) -> tuple[list[str], list[str]]:
    """Return what a config changes of a run's own, in words: what may be, and what may not."""
    was, now = flat(stored.to_dict()), flat(config.to_dict())
    keys = differences(was, now)
    if was["method"] != now["method"]:  # then their options differ anyway
        keys = [key for key in keys if "." not in key]
    changes: list[str] = []
    refused: list[str] = []
    for key in keys:
        is_free = may_change(key, was, now, is_finished or stored.follows_length)
        (changes if is_free else refused).append(told_change(key, now.get(key), was.get(key)))
    return changes, refused


def check_same_text(sealed: str, path: Path) -> None:
    """Check that a config is letter for letter what was sealed.

    Raises:
        DamageError: if it is not, with the first line that differs.
        RunError: if it cannot be read.
    """
    content = read_bytes(path)
    if content != sealed.encode():
        difference = _first_difference(sealed, content)
        raise DamageError(f"{path.name} was changed: {difference}")


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the keys whose values differ; the list of earlier changes is no value."""
    keys = sorted((was.keys() | now.keys()) - {f"{ENVIRONMENT}.{CHANGES}"})
    return [key for key in keys if was.get(key) != now.get(key)]


def told_change(key: str, now: Any, was: Any) -> str:
    """Return one changed key in words."""
    new, old = ("unset" if value is None else value for value in (now, was))
    return f"{key} = {new!r} (the run has {old!r})"


def may_change(
    key: str, was: Mapping[str, Any], now: Mapping[str, Any], follows_length: bool
) -> bool:
    """Tell whether a key may differ when a run goes on: those that leave what was trained as it is.

    Args:
        key: which one.
        was: all values of the run.
        now: all values it is to have.
        follows_length: whether the method looks at the length of the run from its first step.
    """
    if key == "epochs" and not follows_length:
        # What is no number at all is not more of them.
        return type(now.get(key)) is int and bool(now[key] > was.get(key, 0))
    return key in FREE_KEYS


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables in one level, keys joined by a dot.

    Example:
        >>> flat({"a": 1, "b": {"c": 2}})
        {'a': 1, 'b.c': 2}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _first_difference(sealed: str, content: bytes) -> str:
    now = content.decode(errors="replace").splitlines()
    was = sealed.splitlines()
    for number, (old, new) in enumerate(itertools.zip_longest(was, now), 1):
        if old != new:
            return f"line {number} is {new!r}, it was {old!r}"
    return "its line ends differ"


def with_changes(sealed: str, config: RunConfig, step: int, changes: list[str]) -> str:
    """Return the text of a run's config with what is changed from a step on, noted in it."""
    if not changes:
        return sealed
    facts = dict(parse_toml(sealed).get(ENVIRONMENT, {}))
    facts[CHANGES] = [*facts.get(CHANGES, []), f"step {step}: {'; '.join(changes)}"]
    return config.to_toml(facts)
