"""What a run leaves on disk.

- `directory.py`: all of it; `checkpoint.py`: what a run continues from;
- `seal.py`: the names of its files, and one digest over those of a finished run;
- `files.py`: how anything is written, read and locked.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from annealtune.errors import ConfigError
from annealtune.training.config import FREE_KEYS

CONFIG_FILE = "config.toml"
# What the rate in the last record of a run over H is.
MEAN_OF_MOVES = "mean of the accepted moves of the last epoch"


def is_run(path: Path) -> bool:
    """Tell whether a directory holds a run. Known without importing torch."""
    return (path / CONFIG_FILE).is_file()


def require_run(path: Path) -> None:
    """Check that a directory holds a run.

    Raises:
        ConfigError: if it does not.
    """
    if not is_run(path):
        raise ConfigError(f"{path}: is not a run directory: it has no {CONFIG_FILE}")


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
