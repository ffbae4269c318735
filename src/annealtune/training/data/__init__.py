"""Data sets in memory, by name, and the minibatches made of them.

- `load`: from a name to a `Dataset` (`loading.py`); one file for each that has files of its own;
- `subset`, `split`: a fixed part of it, the validation split (`dataset.py`);
- `own.py`: what a user's factory may return instead;
- `Batches`: minibatches by indexing, in an order that survives a restart; `divide`: which samples a
  run trains on and is judged by (`batches.py`).
"""

from .batches import Batches
from .dataset import Dataset, split, subset
from .loading import load

__all__ = ["Batches", "Dataset", "load", "split", "subset"]
