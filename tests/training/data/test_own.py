"""What a user's factory may return, and what is wrong with what it must not."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from annealtune.errors import DataError
from annealtune.training.data.batches import Batches, Scaling
from annealtune.training.data.own import as_dataset, read_part

FLOATS = torch.arange(24.0).view(8, 3)
LABELS = torch.arange(8) % 2
VALUES = torch.linspace(0, 1, 8)
PIXELS = torch.arange(8 * 12, dtype=torch.uint8).view(8, 1, 3, 4)
TOKENS = torch.arange(40).view(8, 5) % 7


def parts(inputs, targets, **options):
    train, test = (inputs[:6], targets[:6]), (inputs[6:], targets[6:])
    return {"train": train, "test": test, **options} if options else (train, test)


class TestForms:
    def check(self, dataset):
        assert torch.equal(dataset.train_inputs, FLOATS[:6])
        assert torch.equal(dataset.train_targets, LABELS[:6])
        assert torch.equal(dataset.test_inputs, FLOATS[6:])
        assert torch.equal(dataset.test_targets, LABELS[6:])
        assert (dataset.kind, dataset.classes, dataset.mean) == ("classification", ("0", "1"), ())

    @pytest.mark.parametrize(
        "form",
        [
            lambda train, test: (train, test),
            lambda train, test: [list(train), list(test)],
            lambda train, test: {"train": train, "test": test, "classes": 2},
            lambda train, test: (TensorDataset(*train), TensorDataset(*test)),
            lambda train, test: tuple([t.numpy() for t in part] for part in (train, test)),
            lambda train, test: tuple([t.tolist() for t in part] for part in (train, test)),
            lambda train, test: ((train[0].double(), train[1].int()), test),
        ],
    )
    def test_of_a_pair(self, form):
        self.check(as_dataset("my:data", form(*parts(FLOATS, LABELS))))

    def test_a_dataset_of_ours_is_taken_as_it_is(self):
        ours = as_dataset("my:data", parts(FLOATS, LABELS))
        assert as_dataset("my:other", ours) is ours

    def test_arrays_are_copied(self):
        array = FLOATS.numpy().copy()
        dataset = as_dataset("my:data", parts(array, LABELS.numpy()))
        array[:] = 0
        self.check(dataset)


class TestKinds:
    def test_regression_of_one_number(self):
        dataset = as_dataset("my:data", parts(FLOATS, VALUES))
        assert dataset.kind == "regression"
        assert dataset.train_targets.shape == (6, 1)
        assert dataset.task.output_shape == (1,)
        assert dataset.classes == ()

    def test_regression_of_a_picture(self):
        dataset = as_dataset("my:data", parts(PIXELS, torch.zeros(8, 2, 5)))
        assert dataset.task.output_shape == (2, 5)

    def test_tokens(self):
        dataset = as_dataset("my:data", parts(TOKENS, (TOKENS + 1) % 7))
        assert (dataset.kind, dataset.vocabulary) == ("tokens", 7)
        assert dataset.task.output_shape == (5, 7)

    def test_the_vocabulary_counts_what_only_a_target_has(self):
        """The highest token, 7, never goes in."""
        dataset = as_dataset("my:data", parts(TOKENS, TOKENS + 1))
        assert dataset.vocabulary == 8

    def test_texts_with_classes(self):
        dataset = as_dataset("my:data", parts(TOKENS, LABELS))
        assert (dataset.kind, dataset.vocabulary) == ("classification", 7)
        assert dataset.task.told()["length"] == 5

    def test_one_long_text_is_cut_into_windows(self):
        text = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
        dataset = as_dataset("my:data", {"train": text, "test": text.numpy(), "length": 3})
        assert dataset.train_inputs.tolist() == [[3, 1, 4], [1, 5, 9]]
        assert dataset.train_targets.tolist() == [[1, 4, 1], [5, 9, 2]]
        assert dataset.kind == "tokens"

    def test_a_class_that_only_the_test_set_has(self):
        labels = torch.tensor([0, 1, 0, 1, 0, 1, 2, 2])
        assert as_dataset("my:data", parts(FLOATS, labels)).classes == ("0", "1", "2")

    def test_names_of_classes(self):
        named = parts(FLOATS, LABELS, classes=["no", "yes"])
        assert as_dataset("my:data", named).classes == ("no", "yes")


class TestScaling:
    def test_or_standardized_by_the_training_columns(self):
        dataset = as_dataset("my:data", parts(FLOATS, LABELS, standardize=True))
        columns = FLOATS[:6].numpy().astype(np.float64)
        assert dataset.mean == pytest.approx(columns.mean(0))
        assert dataset.std == pytest.approx(columns.std(0))
        assert dataset.scale == 1

    def test_numbers_are_rounded_after_they_are_standardized(self):
        """Seconds since 1970, of which float32 keeps minutes alone."""
        times = 1.7e9 + np.random.default_rng(0).uniform(0, 1800, size=(8, 1))
        dataset = as_dataset("my:data", parts(times, LABELS, standardize=True))
        expected = (times - times[:6].mean()) / times[:6].std()
        scaling = {"mean": dataset.mean, "std": dataset.std, "scale": dataset.scale}
        batches = Batches(
            dataset.test_inputs, dataset.test_targets, batch_size=2, seed=0, **scaling
        )
        (samples,) = batches.sample(1, epoch=0)
        assert samples.inputs.dtype == torch.float32
        assert sorted(samples.inputs[:, 0].tolist()) == pytest.approx(sorted(expected[6:, 0]), 1e-5)
        raw = Scaling(dataset.mean, dataset.std, dataset.scale, ndim=2)(dataset.test_inputs)
        assert raw.numpy() == pytest.approx(expected[6:], 1e-5)

    def test_and_are_float32_as_they_are_else(self):
        dataset = as_dataset("my:data", parts(FLOATS.double(), LABELS))
        assert dataset.train_inputs.dtype == torch.float32

    def test_a_column_without_spread_is_only_centered(self):
        flat = FLOATS.clone()
        flat[:, 1] = 5
        dataset = as_dataset("my:data", parts(flat, LABELS, standardize=True))
        assert (dataset.mean[1], dataset.std[1]) == (5, 1)

    def test_pixels_are_normalised_by_the_training_images(self):
        dataset = as_dataset("my:data", parts(PIXELS, LABELS))
        pixels = PIXELS[:6].numpy() / 255
        assert dataset.mean == pytest.approx([pixels.mean()])
        assert dataset.std == pytest.approx([pixels.std()])
        assert dataset.scale == 255

    def test_grey_images_may_lack_their_channel(self):
        assert as_dataset("my:data", parts(PIXELS[:, 0], LABELS)).task.input_shape == (1, 3, 4)

    @pytest.mark.parametrize("shape", [(3, 5, 3), (4, 3, 1), (2, 6, 5)])
    def test_narrow_images_and_those_of_two_channels(self, shape):
        images = torch.zeros(8, *shape, dtype=torch.uint8)
        assert as_dataset("my:data", parts(images, LABELS)).task.input_shape == shape

    def test_bytes_in_a_row_are_numbers(self):
        dataset = as_dataset("my:data", parts(PIXELS.flatten(1), LABELS))
        assert dataset.task.input_type == "float32"
        assert torch.equal(dataset.train_inputs, PIXELS.flatten(1)[:6].float())


NAN = FLOATS.clone()
NAN[4, 1] = torch.nan
BYTES = torch.zeros(8, 6, 5, 3, dtype=torch.uint8)
WRONG = [
    (None, "must return a pair .* got NoneType"),
    ((FLOATS, LABELS), r"train must be a tuple \(inputs, targets\)"),
    ({"train": (FLOATS, LABELS)}, "must return a pair .* got dict"),
    (parts(FLOATS, LABELS, clases=2), "clases: unknown key; did you mean 'classes'"),
    (parts(FLOATS, LABELS, standardize=1), "standardize: .* got 1"),
    (parts(FLOATS, VALUES, kind="ranking"), "kind: .* got 'ranking'"),
    (parts(FLOATS, LABELS + 1, classes=2), "train_targets.* got 2, first in sample 1"),
    (parts(FLOATS, 1 - LABELS * 2), "train_targets.*got -1"),
    (parts(5 - TOKENS, LABELS), "train_inputs.*got -1"),
    (parts(FLOATS, VALUES, kind="classification"), "whole numbers for classification.*float32"),
    (parts(TOKENS, LABELS, standardize=True), "tokens are no numbers"),
    (parts(FLOATS, VALUES, classes=2), "classes: regression"),
    (parts(FLOATS, LABELS, vocabulary=2), "vocabulary: classification"),
    (parts(FLOATS, LABELS.view(8, 1)), "the kind cannot be told"),
    (parts(BYTES, LABELS), r"channels first.*got \(6, 6, 5, 3\)"),
    (parts(NAN, LABELS), "train_inputs.*NaN or infinity in 1 of 6 samples, first in sample 4"),
    (((FLOATS[:5], LABELS[:6]), (FLOATS, LABELS)), r"train_targets.*\(5,\), got \(6,\)"),
    (((FLOATS, LABELS), (FLOATS[:0], LABELS[:0])), "at least one sample"),
    (((FLOATS, LABELS), (FLOATS[:, :2], LABELS)), r"test_inputs.*\(3,\).*\(2,\)"),
    (((np.array([["a", "b"]] * 2), LABELS[:2]),) * 2, "train inputs must be numbers"),
    ((([[1.0], [2.0, 3.0]], [0, 1]),) * 2, "train inputs must be numbers in rows of one length"),
]


class TestIds:
    """Whole numbers so high that a model for them would fill the memory."""

    @pytest.mark.parametrize("place", [4, 7])
    def test_are_no_labels(self, place):
        labels = LABELS.clone()
        labels[place] = 500_000_000
        with pytest.raises(DataError, match="labels must be"):
            as_dataset("my:data", parts(FLOATS, labels))
        as_numbers = as_dataset("my:data", parts(FLOATS, labels, kind="regression"))
        assert as_numbers.task.output_shape == (1,)

    def test_as_many_classes_as_samples_or_as_told(self):
        inputs, labels = torch.zeros(1500, 1), torch.arange(1500)
        made = as_dataset("my:data", ((inputs, labels), (inputs, labels)))
        assert len(made.classes) == 1500
        told = parts(FLOATS, LABELS + 2000, classes=2002)
        assert len(as_dataset("my:data", told).classes) == 2002

    def test_are_no_tokens(self):
        ids = TOKENS.clone()
        ids[3, 1] = 500_000_000
        with pytest.raises(DataError, match="vocabulary"):
            as_dataset("my:data", parts(ids, LABELS))
        told = parts(ids, LABELS, vocabulary=500_000_001)
        assert as_dataset("my:data", told).vocabulary == 500_000_001


@pytest.mark.parametrize(("returned", "message"), WRONG, ids=[words for _, words in WRONG])
def test_what_cannot_be_trained_on_is_refused(returned, message):
    with pytest.raises(DataError, match=message) as caught:
        as_dataset("my:data", returned)
    assert str(caught.value).startswith("data = 'my:data': ")
    assert "\n" not in str(caught.value)


# --- Torch Datasets, read into memory ---


class Listed(TorchDataset):
    """The samples of a list."""

    def __init__(self, samples, **attributes):
        self.samples = samples
        vars(self).update(attributes)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, number):
        return self.samples[number]


def test_samples_are_stacked_in_their_order():
    samples = Listed([(torch.tensor([1.0, 2.0]), 0), (torch.tensor([3.0, 4.0]), 1)])
    part = read_part("train", samples, None)
    assert part.inputs.tolist() == [[1, 2], [3, 4]]
    assert part.targets.tolist() == [0, 1]
    assert (part.inputs.dtype, part.targets.dtype) == (torch.float32, torch.int64)


def test_names_of_classes_are_found():
    samples = Listed([([1.0], 0), ([2.0], 1)], classes=["cat", "dog"])
    assert read_part("train", samples, None).class_names == ("cat", "dog")


def test_pictures_become_channels_first():
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    samples = Listed([(Image.fromarray(pixels), 0)])
    part = read_part("train", samples, None)
    assert torch.equal(part.inputs[0], torch.from_numpy(pixels).permute(2, 0, 1))
    grey = Listed([(Image.fromarray(pixels[:, :, 0]), 0)])
    assert read_part("train", grey, None).inputs.shape == (1, 1, 2, 3)


class Endless(IterableDataset):
    def __iter__(self):
        yield 1


class Broken(Listed):
    def __getitem__(self, number):
        raise OSError("disk on fire")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (Endless(), TypeError, "got Endless"),
        (DataLoader(TensorDataset(torch.zeros(2, 1))), TypeError, "got DataLoader"),
        (3, TypeError, "train must be a torch Dataset or a tuple"),
        (Listed([]), ValueError, "train must hold samples"),
        (Listed([1.0]), ValueError, r"train\[0\] must be a pair \(input, target\)"),
        (Listed([([1.0], 0), ([1.0, 2.0], 0)]), ValueError, "train must hold samples of one shape"),
        (Listed([("text", 0)]), ValueError, r"train\[0\].*the input must be numbers"),
        (Broken([1]), ValueError, r"train\[0\].*OSError: disk on fire"),
    ],
)
def test_what_cannot_be_read(given, error, message):
    with pytest.raises(error, match=message):
        read_part("train", given, None)
