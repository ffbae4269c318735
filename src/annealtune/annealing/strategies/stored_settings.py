"""Settings inside the state of a strategy: plain data that may pass through JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from annealtune.annealing.neighborhood import Setting


def stored(setting: Setting) -> dict[str, Any]:
    """Return a setting as plain data.

    Example:
        >>> stored(Setting({"lr": 0.1, "betas": (0.9, 0.999)}))
        {'lr': 0.1, 'betas': (0.9, 0.999)}
    """
    return dict(setting)


def restored(options: Mapping[str, Any]) -> Setting:
    """Return the setting that was stored; the lists into which JSON turns tuples become tuples.

    Example:
        >>> restored({"lr": 0.1, "betas": [0.9, 0.999]})
        Setting(lr=0.1, betas=(0.9, 0.999))
    """
    return Setting({name: _as_tuple(value) for name, value in options.items()})


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list | tuple) else value
