"""The parts of a model that have a rate of their own, as groups of an optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from annealtune.errors import ConfigError, did_you_mean
from annealtune.training.config.values import begins


def parameter_groups(
    method: str, scales: Mapping[str, float] | None, model: nn.Module
) -> list[dict[str, Any]]:
    """Return the parameters in groups: those of each scale under its name, the others before.

    Raises:
        ConfigError: if a scale names no part of the model.
    """
    others: dict[str, Any] = {"params": []}
    named: dict[str, dict[str, Any]] = {
        start: {"params": [], "name": start} for start in scales or {}
    }
    for name, parameter in model.named_parameters():
        start = next((start for start in named if begins(name, start)), None)
        (others if start is None else named[start])["params"].append(parameter)
    for start, group in named.items():
        if not group["params"]:
            raise _no_part(f"{method}.scales", start, model)
    return [group for group in (others, *named.values()) if group["params"]]


def _no_part(key: str, start: str, model: nn.Module) -> ConfigError:
    names = [name.split(".") for name, _ in model.named_parameters()]
    parts = dict.fromkeys(".".join(name[:depth]) for depth in (1, 2) for name in names)
    return ConfigError(
        f"{key}: must be the start of a parameter's name, got {start!r}"
        f"{did_you_mean(start, parts) or ';'} The model has "
        f"{', '.join(dict.fromkeys(name[0] for name in names))}"
    )
