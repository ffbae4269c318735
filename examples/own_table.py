"""Your own table, as arrays, and a net that predicts a number.

From this folder:

    annealtune train --data own_table:data --model own_table:model --epochs 60 --out table
    annealtune evaluate table

The targets are floats, so this is regression: mean squared error, no accuracy, and the best epoch
is that of the lowest validation loss. `--model mlp` would do as well.
"""

from sklearn.datasets import load_diabetes
from torch import nn


def data():
    """Return both parts, each as (inputs, targets) in NumPy arrays, and an option."""
    patients, progression = load_diabetes(return_X_y=True, scaled=False)
    progression = (progression - 150) / 80  # near 0 and 1, as nets like their targets
    train, test = slice(0, 342), slice(342, None)
    return {
        "train": (patients[train], progression[train]),
        "test": (patients[test], progression[test]),
        "standardize": True,  # by mean and deviation of each training column
    }


def model(*, features, outputs):
    """Return a net from so many columns to so many numbers."""
    return nn.Sequential(
        nn.Linear(features, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, outputs)
    )
