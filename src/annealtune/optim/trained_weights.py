"""The weights that are trained, for a checkpoint whose model file holds the average instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from annealtune.optim.evaluation import guards
from annealtune.optim.parameters import modules_of, parameters_of


def saved(base: Optimizer, model: nn.Module | None) -> dict[str, Any]:
    """Return copies of the weights of the base and of the buffers of the model."""
    buffers = {} if model is None else dict(model.named_buffers())
    return {
        "parameters": [p.detach().clone() for p in parameters_of(base)],
        "buffers": {name: buffer.clone() for name, buffer in buffers.items()},
    }


def check(owner: str, base: Optimizer, state: Mapping[str, Any]) -> None:
    """Refuse the weights of another model.

    Raises:
        ValueError: if there are others, or of other shapes.
    """
    own = [p.shape for p in parameters_of(base)]
    given = [value.shape for value in state["parameters"]]
    if own != given:
        raise ValueError(
            f"{owner}.load_state_dict: the weights must be those of the same model, here "
            f"{len(own)} tensors, got {len(given)} or of other shapes"
        )


@torch.no_grad()
def restore(base: Optimizer, model: nn.Module | None, state: Mapping[str, Any]) -> None:
    """Write them back."""
    for parameter, value in zip(parameters_of(base), state["parameters"], strict=True):
        parameter.copy_(value)
    buffers: dict[str, Tensor] = {} if model is None else dict(model.named_buffers())
    for name, value in state["buffers"].items():
        if name in buffers:
            buffers[name].copy_(value)
    guards.show_new_weights(modules_of(model))
