"""One run: from a config to the best weights on the validation set.

- `run`: train, or continue where a run was left (`runs.py`);
- `load`: the best model of a run (`trained.py`); `prediction.py`, `input_files.py`, `exporting.py`:
  what is done with it;
- `task.py`: what there is to learn, and how it is judged;
- `config/`: every key of a run, known without importing torch;
- `session.py`: one epoch of training; `methods/`: who makes the steps;
- `storage/`: what a run leaves on disk; `tensorboard.py`: and for TensorBoard;
- `data/`, `models/`: what is trained, and on what; `factories.py`: or what a user names instead;
- `progress.py`, `describe.py`: what a person sees of a run.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .runs import run
    from .trained import load

__all__ = ["load", "run"]


def __getattr__(name: str) -> object:
    """Import torch only when a run is started or loaded: a config is checked without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import runs, trained

    return runs.run if name == "run" else trained.load
