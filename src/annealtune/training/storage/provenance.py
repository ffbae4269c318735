"""Where results come from: versions, machine and commit. Known without importing torch."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path

import annealtune


def describe_provenance() -> dict[str, str]:
    """Return what ran and on what kind of machine; the commit only inside a working copy."""
    facts = {
        "annealtune": annealtune.__version__,
        "torch": metadata.version("torch"),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    commit = _commit()
    return facts if commit is None else {**facts, "commit": commit}


def _commit() -> str | None:
    """Return the commit of the working copy this package lies in, None if it lies in none."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
