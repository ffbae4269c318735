"""Fashion-MNIST from its four original files.

Reference: Xiao, Rasul & Vollgraf, *Fashion-MNIST: a novel image dataset for benchmarking machine
learning algorithms* (2017).
"""

import gzip
import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from annealtune.errors import DataError

from .dataset import Dataset
from .download import ShowBytes, fetch
from .published import PublishedFile, not_found

ADDRESS = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
FILES = tuple(
    PublishedFile(name, f"md5:{md5}", f"{ADDRESS}/{name}", size)
    for name, md5, size in (
        ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
        ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
        ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
        ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
    )
)
FOLDERS = ("fashion-mnist", "FashionMNIST/raw", ".")
"""Below the data directory, in the order in which they are tried; downloads go to the first."""
CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
MEAN, STD = 0.2860, 0.3530


def load(
    data_dir: Path,
    *,
    download: bool = False,
    progress: ShowBytes | None = None,
    files: Sequence[PublishedFile] = FILES,
) -> Dataset:
    """Read Fashion-MNIST: 60,000 training and 10,000 test images.

    ``data_dir`` holds the four files, itself or in ``fashion-mnist/`` or ``FashionMNIST/raw/``;
    what is missing is fetched to the former.

    Raises:
        DataError: If a file is missing or damaged, or a download fails.
    """
    folders = [data_dir / folder for folder in FOLDERS]
    folder = next((f for f in folders if all((f / file.name).is_file() for file in files)), None)
    if folder is None:
        folder = folders[0]
        missing = [file for file in files if not (folder / file.name).is_file()]
        if not download:
            looked_for = [place / missing[0].name for place in folders]
            raise not_found("fashion-mnist", looked_for, sum(file.size for file in missing))
        for file in missing:
            fetch(file, folder, progress)
    train_images, train_labels, test_images, test_labels = (
        _read(file, folder / file.name) for file in files
    )
    return Dataset(
        name="fashion-mnist",
        train_inputs=train_images[:, None],
        train_targets=train_labels.long(),
        test_inputs=test_images[:, None],
        test_targets=test_labels.long(),
        classes=CLASSES,
        mean=(MEAN,),
        std=(STD,),
    )


def _read(file: PublishedFile, path: Path) -> Tensor:
    """Return the array in a gzipped IDX file: two zeros, type 8 (bytes), rank, sizes, content."""
    try:
        content = gzip.decompress(file.read(path))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a gzip file: {error}") from error
    rank = content[3] if content[:3] == b"\0\0\x08" and len(content) > 3 else 0
    start = 4 + 4 * rank
    sizes = [int.from_bytes(content[k : k + 4], "big") for k in range(4, start, 4)]
    if not rank or len(content) != start + math.prod(sizes):
        raise DataError(f"{path} is not an IDX file of bytes: {len(content)} bytes, sizes {sizes}")
    return torch.frombuffer(bytearray(content[start:]), dtype=torch.uint8).view(sizes)
