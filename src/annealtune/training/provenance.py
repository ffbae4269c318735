"""What ran, and on what kind of machine. Importing this imports no torch."""

from __future__ import annotations

import contextlib
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
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return facts
    return facts if answer.returncode else {**facts, "commit": answer.stdout.strip()}


def cpu_name() -> str:
    """Return the name of the CPU, and which of its instructions torch uses: both decide last bits.

    Where the system does not tell the name, that of its kind.
    """
    import torch  # not above: the program answers mistakes before torch is imported

    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"
