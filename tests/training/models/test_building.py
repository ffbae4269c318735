"""From a name to a net: every name, every image size, every way to get it wrong."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import annealtune
from annealtune.errors import ConfigError
from annealtune.training.config.names import ARCHITECTURES, parse
from annealtune.training.models import build
from annealtune.training.task import Task

FACTORY = f"{__name__}_factories"


class Lopsided(nn.Module):
    """In training mode it would fail, and it draws a random number."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.frozen = nn.BatchNorm2d(1).eval()
        self.classes = classes

    def forward(self, images):
        assert not self.training
        torch.rand(1)
        return torch.zeros(len(images), self.classes)


def fails(channels):
    raise ZeroDivisionError("no")


@pytest.fixture(autouse=True)
def factories(monkeypatch):
    """A module that can be imported by name, as a user's own would be."""
    module = type(sys)(FACTORY)
    module.fits = lambda *, channels, image_size, classes: Lopsided(classes)
    module.takes_size = lambda *, channels, image_size, classes: nn.Sequential(
        nn.Flatten(), nn.Linear(channels * image_size[0] * image_size[1], classes)
    )
    module.too_few = lambda *, channels, image_size, classes: Lopsided(classes - 1)
    module.too_wide = lambda **_: nn.Linear(99, 10)
    module.no_module = lambda **_: "a string"
    module.fails = fails
    module.wants_more = lambda channels, width, clases, depth=3: nn.Identity()
    module.number = 3
    monkeypatch.setitem(sys.modules, FACTORY, module)


@pytest.mark.parametrize("name", [*(f"{n}-w16" for n in ARCHITECTURES), "vgg16-w64", "mlp"])
@pytest.mark.parametrize(
    ("channels", "image_size"), [(1, (8, 8)), (1, (28, 28)), (3, (32, 32)), (3, (40, 64))]
)
def test_every_net_takes_every_sensible_image(name, channels, image_size) -> None:
    net = build(name, Task.of_images(channels=channels, image_size=image_size, classes=7))
    scores = net(torch.randn(4, channels, *image_size))
    assert scores.shape == (4, 7)
    scores.sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    assert net.training


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_widest_divisor_that_parses_is_the_widest_that_builds(name: str) -> None:
    narrowest = ARCHITECTURES[name].narrowest
    build(f"{name}-w{narrowest}", Task.of_images(channels=1, image_size=(8, 8), classes=2))
    with pytest.raises(ConfigError, match=f"use -w1 to -w{narrowest}"):
        parse(f"{name}-w{narrowest + 1}")
    with pytest.raises(ConfigError, match="-w0 divides"):
        parse(f"{name}-w0")


@pytest.mark.parametrize("name", ["vgg16-w16", "resnet34-w16", "small-cnn", "mlp"])
def test_the_same_seed_gives_the_same_weights(name: str) -> None:
    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        net = build(name, Task.of_images(channels=1, image_size=(8, 8), classes=10))
        return nn.utils.parameters_to_vector(net.parameters())

    with torch.random.fork_rng():
        assert torch.equal(weights(1), weights(1))
        assert not torch.equal(weights(1), weights(2))


def test_the_output_check_leaves_no_trace() -> None:
    before = torch.get_rng_state()
    net = build(f"{FACTORY}:fits", Task.of_images(channels=1, image_size=(8, 8), classes=3))
    assert torch.equal(torch.get_rng_state(), before)
    assert net.training
    assert not net.frozen.training


def test_vgg_pads_fashion_mnist_to_32_and_keeps_the_picture_in_the_middle() -> None:
    net = build("vgg16-w32", Task.of_images(channels=1, image_size=(28, 28), classes=10))
    padded = net.pad(torch.ones(1, 1, 28, 28))
    assert padded.shape == (1, 1, 32, 32)
    assert padded[0, 0, 2:30, 2:30].eq(1).all()
    assert padded.sum() == 28 * 28


def test_an_image_that_fits_gets_no_padding_layer() -> None:
    net = build("vgg16-w32", Task.of_images(channels=3, image_size=(32, 64), classes=10))
    assert not any(isinstance(m, nn.ZeroPad2d) for m in net.modules())


@pytest.mark.parametrize(
    ("name", "image_size", "pad", "expected"),
    [
        ("small-cnn", (28, 28), None, (28, 28)),
        ("small-cnn", (28, 28), 32, (32, 32)),
        ("small-cnn", (3, 9), 8, (8, 16)),
        ("vgg16-w64", (33, 32), None, (64, 32)),
        ("vgg16-w64", (33, 47), 0, (33, 47)),
    ],
)
def test_the_padded_size_follows_model_and_key(name, image_size, pad, expected) -> None:
    net = build(name, Task.of_images(channels=1, image_size=image_size, classes=2), pad=pad)
    padded = net.pad(torch.zeros(1, 1, *image_size)) if hasattr(net, "pad") else None
    assert (image_size if padded is None else tuple(padded.shape[2:])) == expected


def test_odd_padding_puts_the_rest_right_and_below() -> None:
    net = build("mlp", Task.of_images(channels=1, image_size=(3, 4), classes=2), pad=4)
    assert net.pad(torch.ones(1, 1, 3, 4))[0, 0].sum(1).tolist() == [4, 4, 4, 0]


@pytest.mark.parametrize(
    ("name", "image_size", "pad", "message"),
    [
        ("vgg16", (28, 28), 0, "'vgg16' needs images of at least 32x32.*got 28x28; set pad = 32"),
        ("resnet34", (4, 28), None, "at least 8x8.*got 4x28"),
        ("small-cnn", (2, 2), None, "at least 4x4"),
    ],
)
def test_images_that_make_no_sense_are_refused(name, image_size, pad, message) -> None:
    with pytest.raises(ConfigError, match=message):
        build(name, Task.of_images(channels=1, image_size=image_size, classes=10), pad=pad)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vg16", "model = 'vg16': unknown; did you mean 'vgg16'"),
        ("ResNet34", "did you mean 'resnet34'"),
        ("transformer-of-xyz", "unknown; known: mlp, small-cnn"),
        ("vgg16-w100", "vgg16 has 64 units; use -w1 to -w64"),
        (":factory", "form package.module:factory"),
        ("no.such.module:factory", "importing no.such.module failed: .*on PYTHONPATH"),
        ("my.py:cls", "importing my.py failed: .*without .py"),
        ("collections:Conter", "no 'Conter'; did you mean 'Counter'"),
        (f"{FACTORY}:number", "must be callable, got an object of type int"),
        (f"{FACTORY}:no_module", "must return a torch.nn.Module, got str"),
        (f"{FACTORY}:fails", "failed: ZeroDivisionError: no"),
        (
            f"{FACTORY}:wants_more",
            "input_shape=.*image_size=.*asks for width, clases",
        ),
        (f"{FACTORY}:too_few", r"shape \(2, 10\), got \(2, 9\)"),
        (f"{FACTORY}:too_wide", r"shape \(1, 8, 8\) do not pass through it: RuntimeError"),
    ],
)
def test_a_wrong_name_or_factory_is_explained(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        build(name, Task.of_images(channels=1, image_size=(8, 8), classes=10))
    assert "\n" not in str(caught.value)


def test_a_factory_is_told_the_padded_size() -> None:
    net = build(
        f"{FACTORY}:takes_size", Task.of_images(channels=3, image_size=(5, 6), classes=4), pad=8
    )
    assert net.net[1].in_features == 3 * 8 * 8


def test_names_are_known_without_torch() -> None:
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "sys.modules['numpy'] = None\n"
        "from annealtune.training.config.names import parse\n"
        "from annealtune.training import factories\n"
        "parse('vgg16-w8')\n"
    )
    source = str(Path(annealtune.__file__).parents[1])
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": source})
