"""Data sets in memory, by name, and the minibatches made of them.

- `load`: from a name to a `Dataset` (`loading.py`); one file for each data set;
- `subset`, `split`: a fixed part of it, the validation split (`dataset.py`);
- `own.py`, `intake.py`: what a user's factory may return instead;
- `parts.py`: which samples a run trains on and is judged by;
- `Batches`: minibatches by indexing, in an order that survives a restart (`batches.py`);
- `scaling.py`: how inputs are normalised; `augmentation.py`: random changes of images.
"""

from .batches import Batches
from .dataset import Dataset, split, subset
from .loading import load

__all__ = ["Batches", "Dataset", "load", "split", "subset"]
