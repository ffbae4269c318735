"""One run: from a config to the best weights on the validation set.

- `run`: train, or continue where a run was left; `load`: the best model of a run (`runs.py`);
- `task.py`: what there is to learn, and how it is judged;
- `config/`: every key of a run, known without importing torch;
- `session.py`: one epoch of training; `methods/`: who makes the steps; `world.py`: in how many
  processes;
- `storage/`: what a run leaves on disk;
- `data/`, `models/`: what is trained, and on what; `factories.py`: or what a user names instead;
- `progress.py`, `describe.py`: what a person sees of a run; `stopping.py`: how it is stopped.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .runs import load, run

__all__ = ["is_first", "load", "planned_size", "run"]


def planned_size(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many processes were started together; 1 without torchrun.

    Example:
        >>> planned_size({"RANK": "0", "WORLD_SIZE": "4"})
        1
        >>> address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        >>> planned_size({"RANK": "0", "WORLD_SIZE": "4", **address})
        4
    """
    needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    is_told = all(environment.get(name, "") for name in needed)
    return int(environment["WORLD_SIZE"]) if is_told else 1


def is_first(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether this is the process that speaks for all of them."""
    return planned_size(environment) == 1 or int(environment["RANK"]) == 0


def __getattr__(name: str) -> object:
    """Import torch only when a run is started or loaded: a config is checked without it."""
    if name not in ("run", "load"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import runs

    return getattr(runs, name)
