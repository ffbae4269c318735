"""Fashion-MNIST from its four original files.

Reference: Xiao, Rasul & Vollgraf, *Fashion-MNIST: a novel image dataset for benchmarking machine
learning algorithms* (2017).
"""

import gzip
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from .dataset import Dataset
from .download import PublishedFile, fetch, not_found

# The authors' own repository: the address in their paper knows no https.
ADDRESS = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
_IMAGES, _LABELS = "images-idx3-ubyte.gz", "labels-idx1-ubyte.gz"
FILES = tuple(
    PublishedFile(name, f"sha256:{digest}", f"{ADDRESS}/{name}", size)
    for name, size, digest in (
        (
            f"train-{_IMAGES}",
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        (
            f"train-{_LABELS}",
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        (
            f"t10k-{_IMAGES}",
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        (
            f"t10k-{_LABELS}",
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
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
            fetch(file, folder)
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
    """Return the array in a gzipped IDX file: two zeros, type 8 (bytes), rank, sizes, content.

    Its digest vouches for the form.
    """
    content = gzip.decompress(file.read(path))
    start = 4 + 4 * content[3]
    sizes = [int.from_bytes(content[k : k + 4], "big") for k in range(4, start, 4)]
    return torch.frombuffer(bytearray(content[start:]), dtype=torch.uint8).view(sizes)
