"""What results may depend on besides the config: device, threads, versions."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import annealtune
from annealtune.training.config import RunConfig


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
    facts = {
        "annealtune": annealtune.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": config.threads,
        "commit": _commit(),
    }
    return {key: value for key, value in facts.items() if value is not None}


def _commit() -> str | None:
    """Return the commit of the working copy this package lies in, None if it lies in none."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
