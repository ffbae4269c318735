"""From a name to a data set in memory."""

from pathlib import Path

import torch

from annealtune.errors import ConfigError, DataError
from annealtune.training.config.names import check_data
from annealtune.training.factories import call_factory, is_factory

from .dataset import Dataset
from .own import as_dataset


def load(
    name: str,
    *,
    data_dir: Path | None = None,
    download: bool = False,
    image_size: tuple[int, int] | None = None,
) -> Dataset:
    """Load a data set by name.

    Args:
        name: ``digits``, ``fashion-mnist``, ``cifar10``, ``image-folder`` or
            ``package.module:factory``: a callable that returns what `as_dataset` takes, and
            may take ``data_dir`` by keyword.
        data_dir: Where the data is, or is downloaded to; by default ``data``.
        download: Fetch what is missing from the official address.
        image_size: Height and width to resize the pictures of an ``image-folder`` to.

    Raises:
        ConfigError: For an unknown name, or a key that this data set has no use for.
        DataError: If the data is missing, damaged or of the wrong kind, or a download fails.

    Example:
        >>> load("digits").train_inputs.shape
        torch.Size([1437, 1, 8, 8])
    """
    check_data(name)
    if image_size is not None and name != "image-folder":
        raise ConfigError(f"image_size = {image_size}: only image-folder is resized, not {name}")
    if download and name not in ("cifar10", "fashion-mnist", "digits"):
        raise ConfigError(f"download: there is no address to download {name!r} from")
    if is_factory(name):
        return as_dataset(name, call_factory("data", name, {"data_dir": data_dir}, DataError))
    # Imported here: each needs packages that the others do not.
    if name == "digits":
        return digits()
    if name == "image-folder":
        from . import image_folder

        if data_dir is None:
            raise ConfigError("data = 'image-folder' needs the folder: --data-dir DIR")
        return image_folder.load(data_dir, image_size=image_size)
    from . import cifar10, fashion_mnist

    directory = data_dir or Path("data")
    if name == "cifar10":
        return cifar10.load(directory, download=download)
    return fashion_mnist.load(directory, download=download)


def digits() -> Dataset:
    """Return the 8x8 digits that come with scikit-learn: 1,437 training and 360 test images.

    They have no official test set. Ours is a stratified one, chosen once with seed 0.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images.astype("uint8").reshape(-1, 1, 8, 8),
        labels.astype("int64"),
        test_size=360,
        stratify=labels,
        random_state=0,
    )
    return Dataset(
        name="digits",
        train_inputs=torch.from_numpy(train_images),
        train_targets=torch.from_numpy(train_labels),
        test_inputs=torch.from_numpy(test_images),
        test_targets=torch.from_numpy(test_labels),
        classes=tuple("0123456789"),
        mean=(0.3054,),  # of the training images, pixels divided by 16
        std=(0.3761,),
        scale=16.0,
    )
