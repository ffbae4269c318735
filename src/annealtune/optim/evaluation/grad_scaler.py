"""The GradScaler that calls our ``step``, where there is one."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.optim import Optimizer

from annealtune.optim.parameters import gradients_of


def active_scaler() -> Any:
    """Return the GradScaler that is calling us, or None.

    It unscales the gradients that it knows, then calls ``step`` and hands nothing over: whoever
    makes further gradients has to find its scale.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "torch.amp.grad_scaler":
            scaler = frame.f_locals["self"]
            return scaler if scaler.is_enabled() else None
    return None


def unscale(base: Optimizer, scaler: Any) -> None:
    """Divide the gradients by the scale of a scaler, if there is one."""
    scale = 1.0 if scaler is None else scaler.get_scale()
    gradients = gradients_of(base) if scale != 1.0 else []
    if gradients:
        torch._foreach_mul_(gradients, 1.0 / scale)


def scaled_closure(owner: str) -> TypeError:
    """Describe a closure that comes through a GradScaler, which does not unscale its gradients.

    The scaler checks gradients, then calls ``step``; a closure makes new ones, larger by its
    scale. Every step would be rejected without a word.
    """
    return TypeError(
        f"{owner}.step must not be given a closure by a GradScaler: the gradients it makes "
        "would not be unscaled; call scaler.step(opt, loss=loss, probe=fn)"
    )
