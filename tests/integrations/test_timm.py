"""timm's optimizers as bases: the real ones, with the groups of its layer decay.

timm imports torchvision as soon as it is imported as a whole. Its optimizers and schedulers do not
need it: here they are loaded without running the three ``__init__`` files above them.
"""

from __future__ import annotations

import copy
import importlib
import math
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from annealtune import SelfTuner

PLACE = Path(sys.prefix) / "without-dependencies"  # the Makefile puts timm there
STEPS = 240


@pytest.fixture(scope="module")
def timm() -> Iterator[Any]:
    """Load what timm has to do with optimizers; not a line of it is replaced."""
    if not PLACE.joinpath("timm").is_dir():
        pytest.fail(f"timm is missing: pip install --no-deps --target {PLACE} timm")
    before = set(sys.modules)
    for name in ("timm", "timm.layers", "timm.models"):
        package = types.ModuleType(name)
        package.__path__ = [str(PLACE.joinpath(*name.split(".")))]
        sys.modules[name] = package
    # What two modules import by way of those __init__ files.
    for name, home in {"layers": "config", "models": "_manipulate"}.items():
        found = importlib.import_module(f"timm.{name}.{home}")
        vars(sys.modules[f"timm.{name}"]).update(vars(found))
    yield types.SimpleNamespace(
        optim=importlib.import_module("timm.optim"),
        scheduler=importlib.import_module("timm.scheduler"),
    )
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "timm":
            del sys.modules[name]


class Net(nn.Module):
    """A stem, two blocks and a head, named for timm as its own models do it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 16)
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.head = nn.Linear(16, 3)

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        return {"stem": r"^stem", "blocks": r"^blocks\.(\d+)"}

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        for block in self.blocks:
            x = x + block(x).relu()
        return self.head(x)


SCALES = {"stem": 0.125, "blocks.0": 0.25, "blocks.1": 0.5, "head": 1.0}  # layer_decay = 0.5


def make(timm: Any, name: str, rate: float = 123.0) -> tuple[Net, Any]:
    torch.manual_seed(3)
    net = Net()
    options = {"weight_decay": 0.01, "layer_decay": 0.5}
    return net, timm.optim.create_optimizer_v2(net, opt=name, lr=rate, **options)


def minibatches(count: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(4)
    for _ in range(count):
        x = torch.randn(16, 6, generator=generator)
        yield x, x[:, :3].argmax(1)


def train(net: Net, opt: Any, batches: Any) -> list[float]:
    """Train, and return the losses; a tuner is asked to record."""

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(net(x), y)

    compute_loss = opt.record(loss) if hasattr(opt, "record") else loss
    losses = []
    for x, y in batches:
        found = compute_loss(x, y)
        losses.append(found.item())
        found.backward()
        opt.step()
        opt.zero_grad()
    return losses


def rates_by_layer(net: Net, opt: Any) -> dict[str, float]:
    names = {id(p): name.rpartition(".")[0] for name, p in net.named_parameters()}
    return {names[id(p)]: g["lr"] for g in opt.param_groups for p in g["params"]}


MORE = ["adopt", "laprop", "madgrad", "mars", "nadamw", "novograd", "rmsproptf", "sgdw"]


@pytest.mark.parametrize(
    "name",
    ["adamw", "lamb", "lion", "muon", *(pytest.param(n, marks=pytest.mark.slow) for n in MORE)],
)
def test_a_base_with_layer_decay(timm, name):
    """The race picks a rate, every layer has its share; after it a step is timm's own."""
    net, base = make(timm, name)
    opt = SelfTuner(base, model=net, total_steps=STEPS, average=False)
    batches = list(minibatches(STEPS))
    losses = train(net, opt, batches[:80])
    assert len(opt.races) > 0
    assert not opt.is_racing
    for layer, rate in rates_by_layer(net, opt).items():
        assert math.isclose(rate, opt.lr * SCALES[layer]), layer
    other = copy.deepcopy(net)
    bare = timm.optim.create_optimizer_v2(
        other, opt=name, lr=opt.lr, weight_decay=0.01, layer_decay=0.5
    )
    bare.load_state_dict(copy.deepcopy(opt.base.state_dict()))
    more = train(net, opt, batches[80:120])
    assert more == train(other, bare, batches[80:120])
    assert all(map(torch.equal, net.parameters(), other.parameters()))
    assert sum(more) / len(more) < 0.9 * sum(losses[:10]) / 10
