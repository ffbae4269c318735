"""Tuners inside other people's training loops: one file a framework, imported by its name."""

from __future__ import annotations

import re
from importlib import metadata


def require(package: str, oldest: str, extra: str, *, unsafe: tuple[str, ...] = ()) -> None:
    """Refuse a framework that is missing, or older than what the integration was run with.

    Args:
        package: its name for pip.
        oldest: the first version that will do.
        extra: ours that installs it.
        unsafe: versions that must not be used.

    Raises:
        ImportError: naming the framework and the line to write.

    Example:
        >>> require("torch", "2.10", "train")
    """
    line = f"pip install 'annealtune[{extra}]'"
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise ImportError(f"{package} is not installed; {line}") from None
    if _numbers(version) < _numbers(oldest) or version in unsafe:
        but = f" but not {' or '.join(unsafe)}" if unsafe else ""
        raise ImportError(f"{package} must be {oldest} or later{but}, got {version}; {line}")


def _numbers(version: str) -> list[int]:
    """Return the numbers at the start of a version: "2.13.0+cpu" is [2, 13, 0]."""
    return list(map(int, re.findall(r"\d+", version.partition("+")[0])[:3]))
