"""A folder of pictures, in the three layouts and with everything that can be wrong with it."""

import numpy as np
import pytest
from PIL import Image

from annealtune.errors import DataError
from annealtune.training.data import load


def picture(path, value=0, size=(6, 5), mode="RGB") -> None:
    """Save a picture of one colour; size is height and width."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = value if mode in ("L", "I;16") else (value, 0, 255)[: len(mode)]
    Image.new(mode, size[::-1], colour).save(path)


@pytest.fixture
def folder(tmp_path):
    for number in range(4):
        picture(tmp_path / "train" / "cat" / f"{number}.png", 10 + number)
        picture(tmp_path / "train" / "dog" / f"{number}.png", 20 + number)
    picture(tmp_path / "test" / "cat" / "0.png", 100)
    picture(tmp_path / "test" / "dog" / "0.bmp", 200)
    return tmp_path


def test_train_and_test_are_read_in_order_of_name(folder) -> None:
    (folder / "train" / "cat" / "notes.txt").write_text("not a picture")
    data = load("image-folder", data_dir=folder)
    assert data.classes == ("cat", "dog")
    assert data.train_inputs.shape == (8, 3, 6, 5)
    assert data.train_inputs[:, 0, 0, 0].tolist() == [10, 11, 12, 13, 20, 21, 22, 23]
    assert data.train_targets.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert data.test_inputs[:, 0, 0, 0].tolist() == [100, 200]
    assert data.test_targets.tolist() == [0, 1]


def test_mean_and_deviation_are_those_of_the_training_pictures(folder) -> None:
    data = load("image-folder", data_dir=folder)
    red = np.array([10, 11, 12, 13, 20, 21, 22, 23]) / 255
    assert data.mean == pytest.approx((red.mean(), 0, 1))
    assert data.std == pytest.approx((red.std(), 1, 1))  # 1 for a channel without contrast


def test_pictures_of_several_sizes_need_the_key(folder) -> None:
    picture(folder / "test" / "dog" / "1.png", size=(9, 5))
    message = "1.png is 9x5, but the first picture is 6x5; .*image_size"
    with pytest.raises(DataError, match=message):
        load("image-folder", data_dir=folder)
    data = load("image-folder", data_dir=folder, image_size=(12, 8))
    assert data.test_inputs.shape == (3, 3, 12, 8)


def spoil_train(folder):
    (folder / "train").rename(folder / "training")


def spoil_classes(folder):
    (folder / "test" / "dog").rename(folder / "test" / "wolf")


def spoil_picture(folder):
    (folder / "train" / "cat" / "2.png").write_bytes(b"not a picture")


def spoil_end(folder):
    path = folder / "train" / "cat" / "2.png"
    Image.effect_noise((64, 64), 50).convert("RGB").save(path)
    path.write_bytes(path.read_bytes()[:-800])


def spoil_depth(folder):
    picture(folder / "train" / "cat" / "2.png", 999, mode="I;16")


def spoil_class(folder):
    (folder / "test" / "dog" / "0.bmp").unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_train, r"got \[\] and \['cat', 'dog'\]"),
        (spoil_classes, r"got \['cat', 'dog'\] and \['cat', 'wolf'\]"),
        (spoil_picture, "cat/2.png cannot be read as a picture"),
        (spoil_end, "cat/2.png cannot be read as a picture"),
        (spoil_depth, "cat/2.png has the pixel type I;16"),
        (spoil_class, "test/dog holds no picture"),
    ],
)
def test_what_is_wrong_is_named(folder, spoil, message) -> None:
    spoil(folder)
    with pytest.raises(DataError, match=message):
        load("image-folder", data_dir=folder)
