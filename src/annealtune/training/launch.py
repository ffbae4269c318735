"""What `torchrun` tells each process that it starts. Known without importing torch."""

from __future__ import annotations

import os
from collections.abc import Mapping

# What torchrun, or whoever starts several processes, tells each of them.
_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def planned_size(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many processes were started together; 1 without torchrun.

    Example:
        >>> planned_size({"RANK": "0", "WORLD_SIZE": "4"})
        1
        >>> address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        >>> planned_size({"RANK": "0", "WORLD_SIZE": "4", **address})
        4
    """
    if not all(environment.get(name, "") for name in _ENVIRONMENT):
        return 1
    return int(environment["WORLD_SIZE"])


def is_first(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether this is the process that speaks for all of them."""
    return planned_size(environment) == 1 or int(environment["RANK"]) == 0
