"""The 8x8 digits that come with scikit-learn: 1,797 grey images, no download.

They have no official test set. Ours is 360 images, stratified, chosen once with seed 0.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from .dataset import Dataset

TEST_SIZE = 360
SPLIT_SEED = 0
MEAN, STD = 0.3054, 0.3761
"""Of the 1,437 training images, pixels divided by 16."""


def load() -> Dataset:
    """Return the digits: 1,437 training and 360 test images, pixels 0..16."""
    images, labels = load_digits(return_X_y=True)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images.astype("uint8").reshape(-1, 1, 8, 8),
        labels.astype("int64"),
        test_size=TEST_SIZE,
        stratify=labels,
        random_state=SPLIT_SEED,
    )
    return Dataset(
        name="digits",
        train_inputs=torch.from_numpy(train_images),
        train_targets=torch.from_numpy(train_labels),
        test_inputs=torch.from_numpy(test_images),
        test_targets=torch.from_numpy(test_labels),
        classes=tuple("0123456789"),
        mean=(MEAN,),
        std=(STD,),
        scale=16.0,
    )
