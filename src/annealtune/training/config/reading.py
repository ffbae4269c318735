"""From a file or plain data to a config, and what is wrong with one: key, rule and value."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from annealtune.errors import ConfigError, did_you_mean

from .run_config import ENVIRONMENT, FREE_KEYS, STUDY_TABLES, RunConfig


def from_values(values: Mapping[str, Any], source: str = "config") -> RunConfig:
    """Check plain data and return the config.

    Raises:
        ConfigError: naming every bad key, its value and its rule.
    """
    try:
        return RunConfig.model_validate(
            {k: v for k, v in values.items() if k not in (ENVIRONMENT, *STUDY_TABLES)}
        )
    except ValidationError as error:
        raise ConfigError(f"{source}: {faults(error, RunConfig)}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: if it cannot be read or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # also for text that is not UTF-8, and numbers that are too long
        raise ConfigError(f"{path}: is not valid TOML: {error}") from None


def assign(values: dict[str, Any], assignment: str) -> None:
    """Set one key from text such as ``sgd-sa.temperature=0.5``; the value is written as in TOML.

    Raises:
        ConfigError: if it is not KEY=VALUE.

    Example:
        >>> values = {}
        >>> assign(values, "sgd-sa.lr=[0.1, 0.01]")
        >>> values
        {'sgd-sa': {'lr': [0.1, 0.01]}}
    """
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {assignment!r}: must be KEY=VALUE, such as sgd.lr=0.1")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except ValueError:  # not TOML: plain text
        value = text.strip()
    *tables, last = key.strip().split(".")
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--set {assignment!r}: {table!r} is not a table of options")
    values[last] = value


def faults(error: ValidationError, model: type[BaseModel]) -> str:
    """Return one line for every fault that pydantic has found in the values of a model."""
    return "\n".join(_explain(detail, model) for detail in error.errors())


def _explain(detail: Any, model: type[BaseModel]) -> str:
    """Return one line about one fault, from what pydantic says of it: key, rule and value."""
    key = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return _unknown_key([str(part) for part in detail["loc"]], model)
    if detail["type"] == "model_type":
        return f"{key}: must be a table of options, got {_short(detail['input'])}"
    if detail["type"] == "literal_error":
        names = re.findall("'([^']*)'", detail["ctx"]["expected"])
        rule = f"must be one of {', '.join(names)}" if len(names) > 1 else f"must be {names[0]}"
        hint = did_you_mean(str(detail["input"]), names)
        return f"{key}: {rule}, got {_short(detail['input'])}{hint}"
    message = detail["msg"].removeprefix("Value error, ")
    message = re.sub("^(Input|String)", lambda first: first[0].lower(), message)
    if isinstance(detail.get("ctx", {}).get("error"), ConfigError):  # names its key itself
        return ".".join([*detail["loc"][:-1], str(detail["ctx"]["error"])])
    received = "" if detail["type"] == "value_error" else f", got {_short(detail['input'])}"
    return f"{key}: {message}{received}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]} ..."


def _unknown_key(path: list[str], model: Any) -> str:
    for part in path[:-1]:
        fields = model.model_fields.items()
        model = next(field.annotation for name, field in fields if part in (name, field.alias))
    known = [field.alias or name for name, field in model.model_fields.items()]
    hint = did_you_mean(path[-1], known) or f"; known keys: {', '.join(known)}"
    return f"{'.'.join(path)}: unknown key{hint}"


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables of a config in one level, keys joined by a dot.

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


def differences(stored: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return in words the keys of two configs that differ, apart from `FREE_KEYS`.

    Example:
        >>> differences({"epochs": 3, "sgd": {"lr": 0.1}}, {"epochs": 5, "sgd": {"lr": 0.1}})
        ['epochs = 5 (was 3)']
    """
    was, now = flat(stored), flat(given)
    keys = [key for key in sorted(was.keys() | now.keys()) if was.get(key) != now.get(key)]
    if was.get("method") != now.get("method"):  # then their options differ anyway
        keys = [key for key in keys if "." not in key]
    return [
        f"{key} = {now.get(key, 'unset')!r} (was {was.get(key, 'unset')!r})"
        for key in keys
        if key not in FREE_KEYS
    ]
