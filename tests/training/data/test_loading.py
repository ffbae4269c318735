"""From a name to a data set: embedded, from files, from a factory."""

import sys

import pytest
import torch

from annealtune.errors import ConfigError, DataError
from annealtune.training.data import Dataset, load

FACTORY = f"{__name__}_factories"


def test_digits_are_1437_and_360_images_always_the_same() -> None:
    data = load("digits")
    assert data.train_inputs.shape == (1437, 1, 8, 8)
    assert data.test_inputs.shape == (360, 1, 8, 8)
    assert int(data.train_inputs.max()) == 16 == data.scale
    assert data.test_targets.bincount().tolist() == [36, 36, 35, 37, 36, 37, 36, 36, 35, 36]
    # No library can change the split unnoticed.
    assert data.test_targets[:8].tolist() == [7, 6, 3, 7, 7, 3, 2, 8]
    assert data.test_inputs.sum(dtype=torch.int64) == 112_350


def test_digits_are_normalised_by_their_own_mean_and_deviation() -> None:
    data = load("digits")
    pixels = data.train_inputs.double() / 16
    assert (round(float(pixels.mean()), 4),) == data.mean
    assert (round(float(pixels.std()), 4),) == data.std


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="data = 'cifar-10': unknown; did you mean 'cifar10'"):
        load("cifar-10")
    with pytest.raises(ConfigError, match="known: digits, fashion-mnist, cifar10, image-folder"):
        load("xyzzy")


@pytest.mark.parametrize("name", ["cifar10", "fashion-mnist"])
def test_without_data_it_says_where_it_looked_what_to_run_and_the_size(name, tmp_path) -> None:
    with pytest.raises(DataError) as caught:
        load(name, data_dir=tmp_path)
    text = str(caught.value)
    assert str(tmp_path) in text
    assert f"annealtune train --data {name} --download" in text
    assert "--data-dir DIR" in text
    assert {"cifar10": "170 MB", "fashion-mnist": "31 MB"}[name] in text


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("digits", {"image_size": (8, 8)}, "image_size = .*only image-folder"),
        ("image-folder", {}, "needs the folder: --data-dir DIR"),
        ("image-folder", {"download": True}, "no address to download 'image-folder'"),
        (f"{FACTORY}:fits", {"download": True}, "no address"),
    ],
)
def test_keys_that_make_no_sense_are_refused(name, options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        load(name, **options)


@pytest.fixture
def factories(monkeypatch):
    module = type(sys)(FACTORY)
    images, labels = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])

    def fits(*, data_dir):
        return Dataset(str(data_dir), images, labels, images, labels, ("a", "b"), (0,), (1,))

    def wrong_labels(*, data_dir):
        return Dataset("mine", images, labels + 1, images, labels, ("a", "b"), (0,), (1,))

    module.fits = fits
    module.wrong_labels = wrong_labels
    module.no_dataset = lambda *, data_dir: (images, labels)
    monkeypatch.setitem(sys.modules, FACTORY, module)


def test_a_factory_gets_the_directory_and_gives_the_data(factories, tmp_path) -> None:
    assert load(f"{FACTORY}:fits", data_dir=tmp_path).name == str(tmp_path)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("no_dataset", DataError, "train must be a tuple .inputs, targets.*got torch.uint8"),
        ("wrong_labels", DataError, r"failed: ValueError: Dataset\(train_targets=...\).*got 2"),
        ("nothing", ConfigError, "has no 'nothing'"),
    ],
)
def test_a_wrong_factory_is_explained(factories, name, error, message) -> None:
    with pytest.raises(error, match=message):
        load(f"{FACTORY}:{name}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "train_shape", "mean"),
    [
        ("fashion-mnist", (60_000, 1, 28, 28), [0.2860]),
        ("cifar10", (50_000, 3, 32, 32), [0.4914, 0.4822, 0.4465]),
    ],
)
def test_the_real_data_is_complete(real_data, name, train_shape, mean) -> None:
    data = load(name, data_dir=real_data)
    assert data.train_inputs.shape == train_shape
    assert data.test_inputs.shape == (10_000, *train_shape[1:])
    assert data.train_targets.bincount().tolist() == [len(data.train_inputs) // 10] * 10
    assert data.test_targets.bincount().tolist() == [1000] * 10
    pixels = data.train_inputs.to(torch.float32) / 255
    assert pixels.mean((0, 2, 3)).tolist() == pytest.approx(mean, abs=5e-5)
    assert pixels.std((0, 2, 3)).tolist() == pytest.approx(data.std, abs=1e-3)
