"""A folder of pictures: one sub-folder a class.

``DIR/train/CLASS/*.png`` and ``DIR/test/CLASS/*.png``; or ``DIR/train/CLASS/*.png`` alone, or
``DIR/CLASS/*.png``, of which a stratified fifth, chosen once with seed 0, becomes the test set.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.model_selection import train_test_split

from annealtune.errors import DataError

from .dataset import Dataset, from_files
from .intake import memory
from .pictures import GREY, SUFFIXES, mode_of, read_picture, size_of
from .statistics import channel_statistics

TEST_FRACTION = 0.2
SPLIT_SEED = 0


class _Part(NamedTuple):
    paths: list[Path]
    labels: list[int]


def load(data_dir: Path, *, image_size: tuple[int, int] | None = None) -> Dataset:
    """Read the pictures below a folder into memory.

    They are grey if all are, else colour; mean and deviation are those of the training pictures.
    Every picture is resized to ``image_size``, height and width; without it all must have one size.

    Raises:
        DataError: If the folders are not as above, or a picture cannot be read or has another size.
    """
    train, test, classes = _find(data_dir)
    modes = {mode_of(path) for path in (*train.paths, *test.paths)}
    mode = "L" if modes <= set(GREY) else "RGB"
    size = image_size or size_of(train.paths[0])
    rule = (
        f"the first picture is {size[0]}x{size[1]}; give one size to resize all of them to with "
        "the key image_size"
    )
    resize = image_size is not None
    _check_room(size, len(mode), len(train.paths) + len(test.paths))
    train_images, test_images = (
        np.stack([read_picture(path, mode, size, rule, resize=resize) for path in part.paths])
        for part in (train, test)
    )
    mean, std = channel_statistics(train_images)
    return from_files(
        name="image-folder",
        train_inputs=torch.from_numpy(train_images),
        train_targets=torch.tensor(train.labels),
        test_inputs=torch.from_numpy(test_images),
        test_targets=torch.tensor(test.labels),
        classes=classes,
        mean=mean,
        std=std,
    )


def _check_room(size: tuple[int, int], channels: int, pictures: int) -> None:
    """Refuse pictures that do not fit into memory before the first one is read."""
    needed, room = size[0] * size[1] * channels * pictures, memory()
    if needed > room:
        raise DataError(
            f"data = 'image-folder': {pictures} pictures of {size[0]}x{size[1]} need "
            f"{needed / 2**30:,.1f} GiB, this machine has {room / 2**30:,.1f}; choose a smaller "
            "image_size"
        )


def _find(data_dir: Path) -> tuple[_Part, _Part, tuple[str, ...]]:
    if not data_dir.is_dir():
        raise DataError(f"data = 'image-folder': {data_dir} is not a folder; see --data-dir")
    train_dir, test_dir = data_dir / "train", data_dir / "test"
    if test_dir.is_dir() and not train_dir.is_dir():
        raise DataError(f"data = 'image-folder': {test_dir} is there, but {train_dir} is not")
    whole_dir = train_dir if train_dir.is_dir() else data_dir
    classes = _classes(whole_dir)
    if len(classes) < 2:
        raise DataError(
            f"data = 'image-folder': {whole_dir} must hold one folder for each of two or more "
            f"classes, got {list(classes)}"
        )
    whole = _list(whole_dir, classes)
    if not test_dir.is_dir():
        return *_cut(whole_dir, whole, len(classes)), classes
    if _classes(test_dir) != classes:
        raise DataError(
            f"data = 'image-folder': {test_dir} must hold the same classes as {train_dir}, "
            f"{list(classes)}, got {list(_classes(test_dir))}"
        )
    return whole, _list(test_dir, classes), classes


def _classes(folder: Path) -> tuple[str, ...]:
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name[0] != ".")
    for name in names:
        if not _is_text(name):
            raise DataError(
                f"data = 'image-folder': {folder / name} must have a name in UTF-8: it is the name "
                "of a class, and written down; rename the folder"
            )
    return tuple(names)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _list(folder: Path, classes: tuple[str, ...]) -> _Part:
    part = _Part([], [])
    for label, name in enumerate(classes):
        pictures = sorted(p for p in (folder / name).iterdir() if p.suffix.lower() in SUFFIXES)
        if not pictures:
            raise DataError(
                f"data = 'image-folder': {folder / name} holds no picture ({', '.join(SUFFIXES)})"
            )
        part.paths.extend(pictures)
        part.labels.extend([label] * len(pictures))
    return part


def _cut(folder: Path, whole: _Part, classes: int) -> tuple[_Part, _Part]:
    held_out = max(round(TEST_FRACTION * len(whole.paths)), classes)
    rarest = min(whole.labels.count(label) for label in range(classes))
    if rarest < 2 or len(whole.paths) - held_out < classes:
        raise DataError(
            f"data = 'image-folder': {folder} has no test set and too few pictures to cut one: "
            f"{len(whole.paths)} in {classes} classes, the smallest has {rarest}; add pictures or "
            "a test/ folder"
        )
    train_paths, test_paths, train_labels, test_labels = train_test_split(
        whole.paths,
        whole.labels,
        test_size=held_out,
        stratify=whole.labels,
        random_state=SPLIT_SEED,
    )
    return _Part(train_paths, train_labels), _Part(test_paths, test_labels)
