"""CIFAR-10 from its binary version, packed or unpacked.

A record is one byte for the label and 3 x 1024 for the red, green and blue planes.

Reference: Krizhevsky, *Learning multiple layers of features from tiny images* (2009).
"""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from annealtune.errors import DataError

from .dataset import Dataset
from .download import PublishedFile, fetch, not_found

FOLDER = "cifar-10-batches-bin"
RECORD = 1 + 3 * 32 * 32
CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer",
    "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)
ARCHIVE = PublishedFile(
    "cifar-10-binary.tar.gz",
    "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    170_052_171,
)
# What is in it; the last one is the test set.
BATCHES = tuple(
    PublishedFile(f"{name}.bin", f"sha256:{digest}")
    for name, digest in (
        ("data_batch_1", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
        ("data_batch_2", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
        ("data_batch_3", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
        ("data_batch_4", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
        ("data_batch_5", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
        ("test_batch", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    )
)


def load(
    data_dir: Path,
    *,
    download: bool = False,
    archive: PublishedFile = ARCHIVE,
    batches: Sequence[PublishedFile] = BATCHES,
) -> Dataset:
    """Read CIFAR-10: 50,000 training and 10,000 test images.

    ``data_dir`` holds ``cifar-10-batches-bin/`` or ``cifar-10-binary.tar.gz``, or is the former.

    Raises:
        DataError: If the data is missing, damaged or the python version, or a download fails.
    """
    packed, folders = data_dir / archive.name, [data_dir / FOLDER, data_dir]
    folder = next((f for f in folders if all((f / b.name).is_file() for b in batches)), None)
    if folder is not None:
        contents = [batch.read(folder / batch.name) for batch in batches]
    else:
        if download:
            fetch(archive, data_dir)
        elif not packed.is_file():
            raise _missing(data_dir, archive, batches)
        contents = _unpack(archive.read(packed), [batch.name for batch in batches])
    parts = [torch.frombuffer(bytearray(each), dtype=torch.uint8) for each in contents]
    parts = [part.view(-1, RECORD) for part in parts]
    train, test = torch.cat(parts[:-1]), parts[-1]
    return Dataset(
        name="cifar10",
        train_inputs=_images(train),
        train_targets=train[:, 0].long(),
        test_inputs=_images(test),
        test_targets=test[:, 0].long(),
        classes=CLASSES,
        mean=MEAN,
        std=STD,
    )


def _missing(data_dir: Path, archive: PublishedFile, batches: Sequence[PublishedFile]) -> DataError:
    pickled = ("cifar-10-python.tar.gz", "cifar-10-batches-py", "data_batch_1")
    for path in (data_dir / name for name in pickled):
        if path.exists():
            return DataError(
                f"{path} is the python version of CIFAR-10: pickles, which can run code when read. "
                f"Take the binary version, {archive.url} (or --download, "
                f"{archive.size / 1e6:.0f} MB)"
            )
    unpacked = (data_dir / FOLDER / batch.name for batch in batches)
    absent = next(path for path in unpacked if not path.is_file())
    return not_found("cifar10", [absent, data_dir / archive.name], archive.size)


def _unpack(archive: bytes, names: list[str]) -> list[bytes]:
    """Read the batches out of the archive in memory; its digest vouches for them."""
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        for member in tar:
            name = member.name.rpartition("/")[2]
            stream = tar.extractfile(member) if name in names else None
            if stream is not None:
                found[name] = stream.read()
    return [found[name] for name in names]


def _images(records: Tensor) -> Tensor:
    return records[:, 1:].contiguous().view(-1, 3, 32, 32)
