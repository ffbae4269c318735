"""Your own images, as two torch Datasets, and your own net.

From this folder:

    annealtune train --data own_images:data --model own_images:model --epochs 10 --out images
    annealtune evaluate images

A Dataset is anything with a length and pairs (input, target). It is read into memory once; uint8
images are normalised by the mean and deviation of the training images.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import Dataset


class Digits(Dataset[tuple[Tensor, int]]):
    """The 8x8 digits of scikit-learn; yours might open a file for each image."""

    classes = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

    def __init__(self, part: slice) -> None:
        digits = load_digits()
        self.images, self.labels = digits.images[part], digits.target[part]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        image = torch.from_numpy(self.images[number] * 255 / 16).to(torch.uint8)
        return image[None], int(self.labels[number])  # (channels, height, width) and a class


def data():
    """Return a training and a test set. Take `data_dir` to be given what --data-dir says."""
    return Digits(slice(0, 1400)), Digits(slice(1400, None))


def model(*, channels, image_size, classes):
    """Return a net that gives one score for each class."""
    height, width = image_size
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * (height // 2) * (width // 2), classes),
    )
