"""One run: train within the budget, evaluate once, say what came out."""

from __future__ import annotations

import contextlib
import functools
import io
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from annealtune.errors import AnnealtuneError
from annealtune.training.provenance import describe_provenance

from .methods import METHODS, Method
from .tasks import TASKS, Part, Score, Splits, Task, evaluate, minibatches
from .trainers import Setup

PLAIN_STEP = 3  # one forward, one backward
# As the authors of Schedule-Free do; less where it would be more than this share of the budget.
RECALIBRATION, RECALIBRATION_SHARE = 50, 0.05


@dataclass(frozen=True)
class Spec:
    """Which run.

    Attributes:
        task: a name of `TASKS`.
        method: a name of `METHODS`.
        seed: of weights, order and dropout.
        variant: what is changed: ``base-lr=F``, ``loss=F`` or ``length=F``; nothing if empty.
        scale: factor of the length, for smoke tests; runs of different scale never meet.
        lr: learning rate instead of the method's own.
        is_search: one of the runs by which the rate of a reference is chosen; it never sees the
            test part.
    """

    task: str
    method: str
    seed: int
    variant: str = ""
    scale: float = 1.0
    lr: float | None = None
    is_search: bool = False

    def factor(self, kind: str) -> float:
        """Return the factor of one kind of variant, 1 if the run is none."""
        name, _, number = self.variant.partition("=")
        return float(number) if name == kind else 1.0

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells runs apart. The rate does for a search alone: else it follows from one."""
        lr = self.lr if self.is_search else None
        return self.task, self.method, self.seed, self.variant, self.scale, self.is_search, lr


def reference_steps(task: Task, training_size: int, spec: Spec) -> int:
    """Return the steps of a plain optimizer, which decide the budget."""
    whole = task.epochs * (training_size // task.batch_size)
    return max(1, round(whole * spec.scale * spec.factor("length")))


def reserve(task: Task, method: Method, budget: int, steps_per_epoch: int) -> int:
    """Return how many forwards of the budget are set aside to recalibrate BatchNorm."""
    if not (task.has_batch_norm and method.recalibrates):
        return 0
    return max(1, min(RECALIBRATION, steps_per_epoch, int(RECALIBRATION_SHARE * budget)))


def planned_steps(method: Method, budget: int) -> int:
    """Return how many steps a method can plan with: its schedule shall end within the budget."""
    return max(1, int(budget / method.step_cost + 1e-9))


class Meter:
    """Counts what a run spends, by watching the loss: whoever calls it, and for whatever."""

    def __init__(self, *, probes_are_free: bool = False) -> None:
        self.forwards = self.backwards = self.probes = self.recalibrations = 0
        self._probe_price = 0 if probes_are_free else 1

    @property
    def cost(self) -> int:
        """Forwards spent, a backward counted as two."""
        probes = self._probe_price * self.probes
        return self.forwards + 2 * self.backwards + probes + self.recalibrations

    def watch(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Return a closure that computes the same and is counted."""

        def closure() -> Tensor:
            loss = compute()
            if loss.requires_grad:
                self.forwards += 1
                loss.register_hook(self._saw_backward)
            else:
                self.probes += 1
            return loss

        return closure

    def _saw_backward(self, gradient: Tensor) -> None:
        self.backwards += 1

    def watch_loader(self, parts: list[Part]) -> _CountedLoader:
        """Return a loader each of whose minibatches costs a forward when it is drawn."""
        return _CountedLoader(self, parts)


class _CountedLoader:
    def __init__(self, meter: Meter, parts: list[Part]) -> None:
        self.meter, self.parts = meter, parts

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[Part]:
        for part in self.parts:
            self.meter.recalibrations += 1
            yield part


class DivergedError(Exception):
    """The training loss is no number any more."""


@functools.cache
def _splits(task: str, text: Path | None) -> Splits:
    return TASKS[task].load(text)


def run(spec: Spec, text: Path | None = None) -> dict[str, Any]:
    """Make one run and return its record; a run that fails is a record that says why.

    Raises:
        DataError: if the data are not there, which is no result of the method.
    """
    record = blank_record(spec)
    splits = _splits(spec.task, text)  # outside: neither its time nor its failure is the method's
    started = time.process_time()
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # Prodigy and others announce themselves
            _train(spec, splits, record)
    except (DivergedError, AnnealtuneError) as error:
        record |= {"status": "failed", "reason": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever a method raises is its result
        record |= {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
    record["seconds"] = round(time.process_time() - started, 2)
    return record


def blank_record(spec: Spec) -> dict[str, Any]:
    """Return what is known of a run before it starts."""
    return {
        "task": spec.task,
        "method": spec.method,
        "seed": spec.seed,
        "variant": spec.variant,
        "scale": spec.scale,
        "is_search": spec.is_search,
        "status": "finished",
        "reason": "",
        "options": {} if spec.lr is None else {"lr": spec.lr},
        "versions": versions(),
    }


@functools.cache
def versions() -> dict[str, str]:
    """Return what the result may depend on besides the arguments."""
    found = describe_provenance()
    for name in ("prodigyopt", "schedulefree", "dadaptation", "dog-optimizer"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _train(spec: Spec, splits: Splits, record: dict[str, Any]) -> None:
    """Train and evaluate; what is known goes into the record as soon as it is."""
    task, method = TASKS[spec.task], METHODS[spec.method]
    per_epoch = len(splits.train.inputs) // task.batch_size
    budget = PLAIN_STEP * reference_steps(task, len(splits.train.inputs), spec)
    for_training = budget - (held_back := reserve(task, method, budget, per_epoch))
    steps = planned_steps(method, for_training)
    meter = Meter(probes_are_free=method.probes_are_free)
    lr = spec.lr if spec.lr is not None else method.lr
    if lr is not None:
        lr *= spec.factor("base-lr")
        record["options"] = {"lr": lr}

    torch.manual_seed(spec.seed)
    net = task.build()
    if task.is_image:
        net = net.to(memory_format=torch.channels_last)
    setup = Setup(
        net,
        steps,
        per_epoch,
        task.batch_size,
        spec.seed,
        lr,
        task.has_batch_norm,
        forwards_left=lambda: for_training - meter.cost,
    )
    trainer = method.start(setup)
    record |= {"budget": budget, "steps_planned": steps, "cost": 0, "steps": 0}
    net.train()
    done = 0
    for epoch in range(math.ceil(steps / per_epoch)):
        for part in minibatches(splits.train, task.batch_size, spec.seed, epoch):
            if done == steps or meter.cost + method.dearest_step > for_training:
                break
            loss = trainer.step(meter.watch(_loss(task, net, part, spec.factor("loss"))))
            done += 1
            record |= {"cost": meter.cost, "steps": done}
            if not math.isfinite(float(loss)):
                raise DivergedError(f"the training loss is {float(loss)} at step {done}")
        else:
            trainer.end_epoch()
            continue
        break
    if method.family in ("ours", "paper", "ablation"):
        record["probe_share"] = meter.probes / done if done else 0.0

    first = minibatches(splits.train, task.batch_size, spec.seed, epoch=0)
    loader = meter.watch_loader([part for part, _ in zip(first, range(held_back), strict=False)])
    with trainer.evaluated(loader) as evaluated:
        record["validation"] = _checked("validation", evaluate(task, evaluated, splits.validation))
        if not spec.is_search:
            record["test"] = _checked("test", evaluate(task, evaluated, splits.test))
    record["cost"] = meter.cost


def _loss(task: Task, net: nn.Module, part: Part, factor: float) -> Callable[[], Tensor]:
    def compute() -> Tensor:
        loss = task.loss(net(part.inputs), part.targets)
        return loss if factor == 1.0 else loss * factor

    return compute


def _checked(part: str, score: Score) -> dict[str, float]:
    if not all(map(math.isfinite, score)):
        raise DivergedError(f"the {part} loss is {score.loss}")
    return score._asdict()
