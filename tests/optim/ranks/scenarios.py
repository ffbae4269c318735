"""What every rank of a test does; each function is called on all ranks with the same arguments."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from annealtune import SGDSA, EmbeddedTuner, SelfTuner, StochasticSA, grid
from annealtune.errors import RanksError

SAMPLES = 24  # of a global minibatch: 1, 2, 3 or 4 ranks have equal parts
RATES = grid(lr=[30.0, 10.0, 1.0, 0.1])  # the largest of them are rejected often


def rank() -> int:
    return distributed.get_rank() if distributed.is_initialized() else 0


def ranks() -> int:
    return distributed.get_world_size() if distributed.is_initialized() else 1


def make_net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double()


def minibatches(steps: int, *, own: bool = True) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield this rank's part of the same global minibatches, or all of them."""
    generator = torch.Generator().manual_seed(4)
    teacher = torch.ones(6, 3, dtype=torch.float64).tril()
    for _ in range(steps):
        x = torch.randn(SAMPLES, 6, generator=generator, dtype=torch.float64)
        noise = torch.randn(SAMPLES, 3, generator=generator, dtype=torch.float64)
        y = (x @ teacher + noise).argmax(1)
        part = slice(rank(), None, ranks()) if own else slice(None)
        yield x[part], y[part]


def wrapped(net: nn.Module, kind: str) -> nn.Module:
    if kind == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (ranks(),))
        for layer in net:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        return fully_shard(net, mesh=mesh)
    return DistributedDataParallel(net) if ranks() > 1 else net


def make_tuner(kind: str, net: nn.Module, steps: int, **options: Any) -> Any:
    if kind == "sgd-sa":
        return SGDSA(net, RATES, total_steps=steps, **options)
    if kind == "adamw-h":
        rates = grid(lr=[1.0, 0.1, 1e-2, 1e-3])
        base = torch.optim.AdamW(net.parameters())
        return EmbeddedTuner(base, model=net, neighborhood=rates, total_steps=steps, **options)
    if kind == "ssa":
        return StochasticSA(net, radius=0.05, total_steps=steps, **options)
    base = {
        "self-adamw": lambda: torch.optim.AdamW(net.parameters()),
        "self-sgd": lambda: torch.optim.SGD(net.parameters(), momentum=0.9),
    }[kind]()
    return SelfTuner(base, model=net, total_steps=steps, **options)


def weights_of(net: nn.Module) -> list[Tensor]:
    values = [p.detach() for p in net.parameters()]
    return [v.full_tensor() if hasattr(v, "full_tensor") else v.clone() for v in values]


def decisions_of(tuner: Any) -> Any:
    if isinstance(tuner, SelfTuner):
        return [(i.settings, i.winner, i.reason, tuple(i.dropped)) for i in tuner.races]
    return tuner.summary()


def digest(net: nn.Module) -> str:
    content = b"".join(w.numpy().tobytes() for w in weights_of(net))
    return hashlib.sha256(content).hexdigest()


def train(
    kind: str, steps: int, *, way: str = "record", around: str = "ddp", accumulate: int = 1
) -> dict[str, Any]:
    """Train on the same global minibatches with any number of ranks."""
    net = make_net()
    model = net if kind == "ssa" else wrapped(net, around)
    tuner = make_tuner(kind, model, steps)
    verdicts = []

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y)

    compute_loss = tuner.record(loss_of) if way == "record" else loss_of
    for x, y in minibatches(steps):
        if way == "closure":
            tuner.step(lambda: loss_of(x, y))
        elif way == "given":
            tuner.zero_grad()
            loss = loss_of(x, y)
            loss.backward()
            tuner.step(loss=loss, probe=lambda: loss_of(x, y))
        else:
            parts = list(zip(x.chunk(accumulate), y.chunk(accumulate), strict=True))
            for number, part in enumerate(parts, 1):
                quiet = isinstance(model, DistributedDataParallel) and number < accumulate
                with model.no_sync() if quiet else contextlib.nullcontext():
                    loss = compute_loss(*part)
                    if kind != "ssa":
                        (loss / accumulate).backward()
            tuner.step()
            tuner.zero_grad()
        if not isinstance(tuner, SelfTuner):
            info = tuner.last_step
            verdicts.append((dict(info.setting), info.accepted))
    return {
        "digest": digest(net),
        "weights": weights_of(net),
        "decisions": decisions_of(tuner),
        "verdicts": verdicts,
        "rate": getattr(tuner, "rate", math.nan),
    }
