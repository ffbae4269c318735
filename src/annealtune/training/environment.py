"""What results may depend on besides the config: device, threads, versions."""

from __future__ import annotations

from typing import Any

import torch

from annealtune.training.config import RunConfig
from annealtune.training.provenance import describe_provenance


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


def describe_environment(config: RunConfig) -> dict[str, Any]:
    """Return what the results may depend on besides the config."""
    facts = {**describe_provenance(), "torch": torch.__version__, "threads": config.threads}
    return {key: value for key, value in facts.items() if value is not None}
