"""What there is to learn: losses by hand, shapes, and what a model is told."""

import json
import math

import pytest
import torch

from annealtune.training.task import Task

IMAGES = Task.of_images(channels=3, image_size=(4, 6), classes=5)
TABLE = Task("regression", (7,), "float32", (2, 3))
NUMBER = Task("regression", (7,), "float32", (1,))
TEXT = Task("tokens", (4,), "int64", (4, 9), vocabulary=9)
REVIEWS = Task("classification", (4,), "int64", (2,), ("bad", "good"), vocabulary=9)
WAVES = Task("classification", (2, 50), "float32", (2,), ("a", "b"))


@pytest.mark.parametrize(
    ("task", "told"),
    [
        (IMAGES, {"input_shape": (3, 4, 6), "channels": 3, "image_size": (4, 6), "classes": 5}),
        (
            TABLE,
            {"input_shape": (7,), "features": 7, "outputs": 6, "output_shape": (2, 3)},
        ),
        (TEXT, {"input_shape": (4,), "vocabulary": 9, "length": 4}),
        (REVIEWS, {"input_shape": (4,), "vocabulary": 9, "length": 4, "classes": 2}),
        (WAVES, {"input_shape": (2, 50), "classes": 2}),
    ],
)
def test_what_a_model_is_told(task, told):
    assert task.told() == told


def test_regression_is_the_mean_squared_error():
    outputs, targets = torch.tensor([1.0, 4.0]), torch.tensor([[0.0], [1.0]])
    arranged = NUMBER.arranged(outputs)
    assert NUMBER.loss(arranged, targets).item() == (1 + 9) / 2
    assert NUMBER.loss(arranged, targets, reduction="sum").item() == 10
    assert not NUMBER.has_accuracy


def test_one_number_a_sample_never_spreads_over_the_others():
    """(3,) against (3, 1) would be nine differences."""
    outputs = torch.tensor([1.0, 2.0, 3.0])
    assert NUMBER.loss(NUMBER.arranged(outputs), outputs[:, None]).item() == 0


def test_tokens_are_judged_one_by_one():
    """Scores that leave two tokens equally likely at every position: ln 2 each."""
    outputs = torch.full((3, 4, 9), -1e9)
    outputs[:, :, :2] = 0.0
    targets = torch.zeros(3, 4, dtype=torch.int64)
    arranged = TEXT.arranged(outputs)
    assert arranged.shape == (3, 9, 4)
    assert TEXT.loss(arranged, targets).item() == pytest.approx(math.log(2))
    assert TEXT.loss(arranged, targets, reduction="sum").item() == pytest.approx(12 * math.log(2))


@pytest.mark.parametrize(
    ("task", "shape", "fits"),
    [
        (IMAGES, (2, 5), True),
        (IMAGES, (2, 4), False),
        (IMAGES, (2,), False),
        (NUMBER, (2,), True),
        (NUMBER, (2, 1), True),
        (NUMBER, (2, 2), False),
        (TABLE, (2, 2, 3), True),
        (TABLE, (2, 6), False),
        (TEXT, (2, 4, 9), True),
        (TEXT, (2, 9, 4), False),
    ],
)
def test_which_outputs_fit(task, shape, fits):
    assert task.accepts(shape) is fits


@pytest.mark.parametrize("task", [IMAGES, TABLE, TEXT])
def test_the_same_after_json(task):
    assert Task.from_dict(json.loads(json.dumps(task.to_dict()))) == task
