"""Code of a user that ends the program, moves it or gives what no run can hold: told, in a line."""

import textwrap

import pytest

FACTORIES = r"""
import math, os, sys
import numpy as np
import torch
from torch import nn

def pair(**options):
    x, y = torch.randn(40, 4), torch.arange(40) % 2
    return {"train": (x, y), "test": (x, y), **options}

class Unprintable(Exception):
    def __str__(self):
        raise ValueError("no words")

class Rows:
    def __len__(self):
        return 40
    def __getitem__(self, n):
        sys.exit(0)

class Extra(nn.Linear):
    def get_extra_state(self):
        return {"a": 1}
    def set_extra_state(self, state):
        pass

def good(): return pair()
def leaves(): sys.exit(0)
def leaves_in_colour(): sys.exit("\x1b[31mred")
def raises_base(): raise BaseException("odd")
def unprintable(): raise Unprintable
def leaves_later(): return Rows(), Rows()
def too_many(): return pair(classes=10**12)
def masked():
    x = np.ma.masked_array(np.ones((40, 2)), mask=[[0, 1]] * 40)
    return (x, np.arange(40) % 2), (x, np.arange(40) % 2)
def empty_images():
    x, y = torch.zeros(40, 1, 0, 8, dtype=torch.uint8), torch.arange(40) % 2
    return (x, y), (x, y)
def elsewhere():
    os.chdir("/")
    return pair()

def frozen(features, classes): return nn.Linear(features, classes).requires_grad_(False)
def extra(features, classes): return Extra(features, classes)
def model_leaves(features, classes): sys.exit(0)
def net(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), classes))
"""


@pytest.fixture
def train(program, place):
    (place / "mine.py").write_text(textwrap.dedent(FACTORIES))

    def train(data="good", model="net", **options):
        flags = ["--data", f"mine:{data}", "--model", f"mine:{model}", "--epochs", 1]
        setup = f"import sys; sys.path.insert(0, {str(place)!r})"
        return program("train", *flags, "--threads", 1, "--out", "run", setup=setup)

    return train


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("leaves", "it ended with SystemExit: 0"),
        ("leaves_in_colour", r"it ended with SystemExit: \x1b[31mred"),
        ("raises_base", "it ended with BaseException: odd"),
        ("unprintable", "failed: Unprintable"),
        ("leaves_later", "train[0] failed: RuntimeError: it ended with SystemExit: 0"),
        ("too_many", "up to 1,000,000, got 1000000000000"),
        ("masked", "must have no masked values"),
        ("empty_images", "at least one of them"),
    ],
)
def test_data(train, place, data, words):
    refused = train(data)
    assert refused.code == 1, refused.err
    assert words in refused.err
    assert "Traceback" not in refused.err
    assert [path.name for path in (place / "run").iterdir()] in ([], [".lock"])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("frozen", "must have a parameter to train"),
        ("extra", "must hold plain tensors alone"),
        ("model_leaves", "it ended with SystemExit: 0"),
    ],
)
def test_a_model(train, model, words):
    refused = train(model=model)
    assert refused.code == 2, refused.err
    assert words in refused.err
    assert "Traceback" not in refused.err


def test_a_factory_that_goes_elsewhere_leaves_the_run_where_it_is(train, place):
    finished = train("elsewhere")
    assert finished.code == 0, finished.err
    assert (place / "run" / "result.json").exists()
