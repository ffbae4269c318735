"""Data sets in memory, by name, and the minibatches made of them.

- `load`: from a name to a `Dataset` (`loading.py`); one file for each data set;
- `subset`, `split`: a fixed part of it, the validation split (`dataset.py`);
- `Batches`: minibatches by indexing, in an order that survives a restart (`batches.py`);
- `augmentation.by_name`: random changes of the images (`augmentation.py`);
- `DATASETS`, `names.check`: what a name means, without importing torch (`names.py`);
- `download_bar`: shows a download (`progress.py`).
"""

import importlib
from typing import TYPE_CHECKING

from .names import DATASETS

if TYPE_CHECKING:
    from .batches import Batches
    from .dataset import Dataset, split, subset
    from .loading import load
    from .progress import download_bar

__all__ = ["Batches", "DATASETS", "Dataset", "download_bar", "load", "split", "subset"]

_HOMES = {
    "Batches": "batches",
    "Dataset": "dataset",
    "download_bar": "progress",
    "load": "loading",
    "split": "dataset",
    "subset": "dataset",
}


def __getattr__(name: str) -> object:
    """Import torch and its like only when data is loaded: a typo is answered at once."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
