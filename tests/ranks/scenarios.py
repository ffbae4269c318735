"""What every rank of a test does; each function is called on all ranks with the same arguments."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from annealtune import SGDSA, EmbeddedTuner, SelfTuner, StochasticSA, grid

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
    if kind == "fsdp" and ranks() > 1:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (ranks(),))
        for layer in net:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        return fully_shard(net, mesh=mesh)
    return DistributedDataParallel(net) if ranks() > 1 else net


def exchanging(model: nn.Module, wanted: bool) -> contextlib.AbstractContextManager[Any]:
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(wanted)
    elif isinstance(model, DistributedDataParallel) and not wanted:
        return model.no_sync()
    return contextlib.nullcontext()


def make_tuner(kind: str, net: nn.Module, steps: int, **options: Any) -> Any:
    if kind == "sgd-sa":
        return SGDSA(net, RATES, total_steps=steps, **options)
    if kind == "adamw-h":
        rates = grid(lr=[1.0, 0.1, 1e-2, 1e-3])
        base = torch.optim.AdamW(net.parameters())
        return EmbeddedTuner(base, net, neighborhood=rates, total_steps=steps, **options)
    if kind == "ssa":
        return StochasticSA(net, radius=0.05, total_steps=steps, **options)
    base = {
        "self-adamw": lambda: torch.optim.AdamW(net.parameters()),
        "self-sgd": lambda: torch.optim.SGD(net.parameters(), momentum=0.9),
    }[kind]()
    return SelfTuner(base, net, total_steps=steps, **options)


def weights_of(net: nn.Module) -> list[Tensor]:
    values = [p.detach() for p in net.parameters()]
    return [v.full_tensor() if hasattr(v, "full_tensor") else v.clone() for v in values]


def decisions_of(tuner: Any) -> Any:
    if isinstance(tuner, SelfTuner):
        return [(i.settings, i.winner, i.reason, tuple(i.dropped)) for i in tuner.races]
    return tuner.moves


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
        else:
            parts = list(zip(x.chunk(accumulate), y.chunk(accumulate), strict=True))
            for number, part in enumerate(parts, 1):
                with exchanging(model, number == accumulate):
                    loss = compute_loss(*part)
                    if kind != "ssa":
                        (loss / accumulate).backward()
            tuner.step()
            tuner.zero_grad()
        if not isinstance(tuner, SelfTuner):
            verdicts.append((dict(tuner.last_step.setting), tuner.last_step.accepted))
    return {**found(net, tuner), "verdicts": verdicts, "rate": getattr(tuner, "lr", math.nan)}


def disagree(what: str) -> None:
    """Train ranks that have something in common no longer."""
    net = make_net()
    steps, seed, rates = 300, 0, RATES
    if what == "weights" and rank() == 1:
        net[0].weight.data[0, 0] += 1e-12
    if what == "H" and rank() == 1:
        rates = grid(lr=[30.0, 10.0, 1.0, 0.11])
    if what == "length":
        steps += 60 * rank()
    if what == "model" and rank() == 1:
        net = nn.Sequential(nn.Linear(6, 17), nn.Tanh(), nn.Linear(17, 3)).double()
    if what in ("H", "seed of a tuner with H"):
        seed = rank() if what != "H" else 0
        tuner = SGDSA(net, rates, total_steps=steps, seed=seed)
    else:
        arms = {"neighborhood": {"lr": [1e-3, 1e-2 + rank()]}} if what == "arms" else {}
        tuner = make_tuner("self-adamw", net, steps, **arms)
    for number, (x, y) in enumerate(minibatches(300, own=False)):
        tuner.step(lambda: F.cross_entropy(net(x), y))
        if what == "drift" and number == 100 and rank() == 1:
            net[0].weight.data[0, 0] += 1e-12


def break_on_one_rank(kind: str, places: list[int]) -> dict[str, Any]:
    """Give rank 1 a minibatch whose loss is NaN, at some steps."""
    net = make_net()
    model = wrapped(net, "ddp")
    tuner = make_tuner(kind, model, 300)
    compute_loss = tuner.record(lambda x, y: F.cross_entropy(model(x), y))
    raised = []
    for number, (x, y) in enumerate(minibatches(300)):
        if number in places and rank() == 1:
            x = x * math.nan
        try:
            compute_loss(x, y).backward()
            tuner.step()
        except ArithmeticError as error:
            raised.append((number, type(error).__name__))
        tuner.zero_grad()
    return {
        "digest": digest(net),
        "raised": raised,
        "decisions": decisions_of(tuner),
        "finite": all(bool(w.isfinite().all()) for w in weights_of(net)),
    }


def alone() -> dict[str, Any]:
    """Train a run of its own on every rank."""
    groups = [distributed.new_group([n]) for n in range(ranks())]
    net = make_net()
    torch.manual_seed(rank())
    nn.init.normal_(net[0].weight)
    tuner = make_tuner("sgd-sa", net, 60, seed=rank(), process_group=groups[rank()])
    for x, y in minibatches(60):
        tuner.step(lambda: F.cross_entropy(net(x), y))
    return found(net, tuner)


def uneven(kind: str) -> dict[str, Any]:
    """Train on parts of different sizes, each loss weighted by its share of the samples."""
    net = make_net()
    model = wrapped(net, "ddp")
    tuner = make_tuner(kind, model, 240)
    first = SAMPLES // 4 if ranks() > 1 else SAMPLES
    part = slice(0, first) if rank() == 0 else slice(first, None)

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y) * (len(x) * ranks() / SAMPLES)

    batches = ((x[part], y[part]) for x, y in minibatches(240, own=False))
    follow(tuner, tuner.record(loss_of), batches)
    return found(net, tuner)


def resume(kind: str, around: str, at: int, steps: int = 240) -> dict[str, str]:
    """Train at a stretch, and once more with everything saved and loaded in between."""
    digests = {}
    for way in ("at a stretch", "resumed"):
        batches, saved = list(minibatches(steps)), None
        for part in (batches[:at], batches[at:]):
            if way == "resumed" or saved is None:
                net = make_net()
                model = wrapped(net, around)
                tuner = make_tuner(kind, model, steps)
                compute_loss = tuner.record(lambda x, y: F.cross_entropy(model(x), y))
            if way == "resumed" and saved is not None:
                with torch.no_grad():
                    for p in net.parameters():
                        p.zero_()
                saved.seek(0)
                weights, state = torch.load(saved, weights_only=False)
                net.load_state_dict(weights)
                tuner.load_state_dict(state)
            follow(tuner, compute_loss, part)
            saved = io.BytesIO()
            torch.save((net.state_dict(), tuner.state_dict()), saved)
        digests[way] = digest(net)
    return digests


def with_batchnorm(steps: int = 40) -> dict[str, Any]:
    """Train with an accept test that accepts everything, and by plain SGD in DDP."""
    values = {}
    for kind in ("tuner", "plain"):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3))
        model = DistributedDataParallel(net.double())
        compute_loss = lambda x, y: F.cross_entropy(model(x), y)
        optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
        if kind == "tuner":
            optimizer = SGDSA(model, {"lr": [0.1]}, temperature=math.inf)
            compute_loss = optimizer.record(compute_loss)
        follow(optimizer, compute_loss, minibatches(steps))
        values[kind] = [value.clone() for value in net.state_dict().values()]
    return values


def inside_ddp(steps: int = 240) -> dict[str, Any]:
    """Record what DDP's own forward calls, as frameworks do that run a whole step in there."""
    net = make_net()

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return compute_loss(x, y)

    module = Step()
    model = wrapped(module, "ddp")
    tuner = make_tuner("self-adamw", module, steps)
    compute_loss = tuner.record(lambda x, y: F.cross_entropy(net(x), y))
    follow(tuner, model, minibatches(steps))
    return found(net, tuner)


def blind() -> None:
    """Make a plain step without any loss, in a run that is too short for a race."""
    net = make_net()
    tuner = make_tuner("self-adamw", net, 8)
    (x, y), *_ = minibatches(1, own=False)
    tuner.step(lambda: F.cross_entropy(net(x), y))
    F.cross_entropy(net(x), y).backward()
    tuner.step()


def run(out: str, **values: Any) -> dict[str, Any]:
    """Make a run of the program, with whoever else is there."""
    from pathlib import Path

    from annealtune.errors import RunStoppedError
    from annealtune.training import run as make_run
    from annealtune.training.config import from_values
    from annealtune.training.stopping import StopRequest

    stop = StopRequest(values.pop("stop_after", None))
    for_all = {"model": "mlp", "batch_size": 32, "threads": 1, "device": "cpu"}
    try:
        return make_run(from_values({**for_all, **values}), Path(out), stop=stop)
    except RunStoppedError as error:
        return {"stopped": str(error)}


def data_of_each() -> Any:
    """Return other samples on every rank."""
    inputs, labels = torch.arange(60.0)[:, None] + rank(), torch.arange(60) % 2
    return (inputs[:40], labels[:40]), (inputs[40:], labels[40:])


def run_on_data_of_each(out: str) -> dict[str, Any]:
    """Make a run whose data factory returns something else on every rank."""
    return run(out, data="scenarios:data_of_each", epochs=1)


def validate(kind: str, around: str = "ddp") -> dict[str, Any]:
    """Look three times; ranks have different scores, of which the mean decides."""
    net = make_net()
    model = net if kind == "ssa" else wrapped(net, around)
    tuner = make_tuner(kind, model, 120)
    # Rank 0 alone would keep the last, rank 1 the first.
    scores = [[3.0, 1.5, 1.0], [1.0, 1.5, 3.0]][rank()]
    seen, digests = [], []
    for look, value in enumerate(scores):
        for x, y in list(minibatches(60))[20 * look : 20 * look + 20]:
            tuner.step(lambda x=x, y=y: F.cross_entropy(model(x), y))

        def score(value: float = value) -> list[float]:
            digests.append(digest(net))
            return [value, value]

        seen.append(tuner.validate(score))
        digests = [*digests[: len(seen) - 1], digests[-1]]  # SelfTuner: the last weights
    last = digest(net)
    with tuner.best():
        best = digest(net)
        if not isinstance(tuner, SelfTuner):
            assert best == digests[1]
    assert digest(net) == last
    state = tuner.state_dict()
    tuner.load_best()
    tuner.load_state_dict(state)
    assert digest(net) == best
    return {"seen": seen, "looks": [tuple(look) for look in tuner.looks], "best": best}


def follow(tuner: Any, compute_loss: Any, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Make the steps of a plain loop."""
    for x, y in batches:
        compute_loss(x, y).backward()
        tuner.step()
        tuner.zero_grad()


def found(net: nn.Module, tuner: Any) -> dict[str, Any]:
    return {"digest": digest(net), "weights": weights_of(net), "decisions": decisions_of(tuner)}
