"""One run: from a config to the best weights on the validation set.

- `run`: train, or continue where a run was left (`entry.py`);
- `load`: the best model of a run;
- `config.py`, `options.py`, `neighborhood_options.py`, `setting_options.py`, `strategy_options.py`,
  `annealed_options.py`: every key of a run, known without importing torch; `explanations.py`: what
  is wrong with one;
- `session.py`: one epoch of training; `methods.py`: who makes the steps;
- `annealed.py`, `next_minibatch.py`: steps that are kept or undone; `tuners.py`: with which
  optimizer, `acceptance.py`: judged by what, `loop.py`: what else H sets;
- `directory.py`, `checkpoint.py`, `records.py`: what a run leaves on disk;
- `data/`, `models/`: what is trained, and on what.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .entry import load, run

__all__ = ["load", "run"]


def __getattr__(name: str) -> object:
    """Import torch only when a run is started or loaded: a config is checked without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import entry

    return getattr(entry, name)
