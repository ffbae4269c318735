"""The devices of this machine."""

from __future__ import annotations

import torch


def best_device() -> str:
    """Return the fastest device of this machine."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def is_available(name: str) -> bool:
    """Tell whether this machine has a device."""
    kind, _, number = name.partition(":")
    if kind == "cuda":
        return int(number or 0) < torch.cuda.device_count()
    return kind != "mps" or torch.backends.mps.is_available()
