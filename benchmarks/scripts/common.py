"""What the scripts share: their names, the methods, the loop with its looks, the output."""

from __future__ import annotations

import contextlib
import functools
import io
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, ReduceLROnPlateau

from annealtune import SelfTuner
from annealtune.errors import DataError, NonFiniteLossError
from annealtune.optim.average import WeightAverage, recalibrate
from annealtune.optim.guard import EVERY
from annealtune.optim.keeper import Keeper
from annealtune.optim.parameters import are_finite, parameters_of
from benchmarks.quality.gradients import CALIBRATION, LOOKS
from benchmarks.quality.peers import WARM_UP, WEIGHT_DECAY
from benchmarks.quality.plan import CENTRE
from benchmarks.quality.tasks.task import Sources
from benchmarks.quality.tuned import drawn_blindly, held_without_race
from benchmarks.records import Record, provenance

# Module and class: those of frameworks are imported when they are run.
SCRIPTS = {
    "nanogpt": "NanoGPT",
    "makemore": "Makemore",
    "resnet": "ResNet",
    "lstm": "LSTM",
    "vae": "VAE",
    "gcn": "GCN",
    "huggingface": "TinyGPT2",
    "autoencoder": "LitAutoencoder",
}

HAND_TUNED = "hand-tuned"
PRODIGY = "prodigy"
SCHEDULE_FREE = "schedule-free-adamw"
SELF_TUNED = "self-tuned"
RIVALS = (HAND_TUNED, PRODIGY, SCHEDULE_FREE, SELF_TUNED)
# What would make a race worthless if it were as good: SelfTuner without one, and with a blind one.
HELD, RANDOM_ARM = "adamw-3e-3", "random-arm"
CONTROLS = (HELD, RANDOM_ARM)
METHODS = (*RIVALS, *CONTROLS)
BY_TUNER = (SELF_TUNED, *CONTROLS)
# What has no average of its own is given SelfTuner's: a peer gets every aid that we have.
AVERAGED = (HAND_TUNED, PRODIGY)

Part = Literal["validation", "test"]
Tuned = tuple[Optimizer, LRScheduler | None]


class Key(NamedTuple):
    """What tells runs apart."""

    script: str
    method: str
    seed: int


def run(key: Key, sources: Sources, steps: int | None = None) -> Record:
    """Make one run; one that raises is a record too."""
    torch.set_num_threads(1)
    script = script_of(key.script)(sources, key.seed, steps)
    started = time.process_time()  # of one thread: other programs do not disturb it
    try:
        record = script.train(key.method)
    except (DataError, ImportError):
        raise  # something to install or to fetch, and then to start again
    except Exception as error:  # noqa: BLE001  (nothing is lost: the table shows it)
        record = {"failure": f"{type(error).__name__}: {error}"}
    seconds = round(time.process_time() - started, 2)
    return {**key._asdict(), **record, "seconds": seconds, **provenance()}


def script_of(name: str) -> type[Script]:
    return getattr(import_module(f"{__package__}.{name}"), SCRIPTS[name])


class Script:
    """A net, its data, its loss and the recipe that it is used with.

    Attributes:
        steps: of the recipe, and gradients that every other method may compute.
        clip: the largest norm of a gradient, for every method.
    """

    steps: int
    clip: float | None = None

    def __init__(self, sources: Sources, seed: int = 0, steps: int | None = None) -> None:
        self.sources = sources
        self.seed = seed
        self.steps = steps or type(self).steps
        self.load()

    def load(self) -> None:
        """Put the data in place; the same for every seed."""
        raise NotImplementedError

    def model(self) -> nn.Module:
        """Return a new net."""
        raise NotImplementedError

    def minibatch(self) -> tuple[Tensor, ...]:
        """Draw a minibatch to train on."""
        raise NotImplementedError

    def held_out(self, part: Part) -> Iterator[tuple[Tensor, ...]]:
        """Yield the minibatches of a part that is not trained on."""
        raise NotImplementedError

    def loss(self, model: nn.Module, *minibatch: Tensor) -> Tensor:
        """Return the mean loss of a minibatch."""
        inputs, targets = minibatch
        return nn.functional.cross_entropy(model(inputs), targets)

    def hand_tuned(self, model: nn.Module) -> Tuned:
        """Return the usual optimizer with its scheduler, one for every step or for every look."""
        raise NotImplementedError

    def adamw(self, model: nn.Module) -> Optimizer:
        """Return what SelfTuner tunes."""
        return AdamW(model.parameters())

    def train(self, method: str) -> Record:
        """Train by a method; return what came of it."""
        with controlled(method, f"{type(self).__name__} {self.seed}"):
            record = within(self.steps, functools.partial(self.attempt, method))
        return {**record, "rate": CENTRE} if method == HELD else record

    def attempt(self, method: str, planned: int) -> Record:
        """Train for a number of steps.

        Raises:
            TooLongError: if that costs more than the recipe.
        """
        torch.manual_seed(self.seed)
        model = self.model().train()
        optimizer, scheduler = self.optimizer(method, model, planned)
        output = Output(optimizer, model)
        if method in AVERAGED:
            output.average = averaged(optimizer, model)
        compute_loss: Callable[..., Tensor] = functools.partial(self.loss, model)
        if isinstance(optimizer, SelfTuner):
            compute_loss = optimizer.record(compute_loss)
            optimizer.before_step(lambda: self.clip_gradients(model))
        for step in range(planned):
            torch.manual_seed(1_000_003 * self.seed + step)  # the same for every method
            loss = compute_loss(*self.minibatch())
            loss.backward()
            if not isinstance(optimizer, SelfTuner):
                self.clip_gradients(model)
            try:
                optimizer.step()
            except NonFiniteLossError:
                break
            optimizer.zero_grad()
            check_length(optimizer, planned, self.steps)
            if scheduler is not None and not isinstance(scheduler, ReduceLROnPlateau):
                scheduler.step()
            if is_look(step + 1, planned):
                with evaluating(optimizer):
                    if method == SCHEDULE_FREE:  # its weights are not those BatchNorm has seen
                        recalibrate(model, (self.minibatch() for _ in range(CALIBRATION)))
                    last = output.look(lambda: self.evaluate(model, "validation"), step + 1)
                if isinstance(scheduler, ReduceLROnPlateau):
                    scheduler.step(last)
        return self.record(model, optimizer, output, planned)

    def optimizer(self, method: str, model: nn.Module, planned: int) -> Tuned:
        """Return the optimizer of a method, and its scheduler."""
        if method == HAND_TUNED:
            return self.hand_tuned(model)
        if method in BY_TUNER:
            return SelfTuner(self.adamw(model), model, total_steps=planned), None
        return peer(method, model, planned)

    def clip_gradients(self, model: nn.Module) -> None:
        if self.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), self.clip)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, part: Part) -> float:
        """Return the mean loss over a part, in evaluation mode."""
        was_training = model.training
        model.eval()
        total = count = 0.0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            for minibatch in self.held_out(part):
                total += float(self.loss(model, *minibatch)) * len(minibatch[0])
                count += len(minibatch[0])
        model.train(was_training)
        return total / count

    def record(
        self, model: nn.Module, optimizer: Optimizer, output: Output, planned: int
    ) -> Record:
        """Return what a run came to."""
        with evaluating(optimizer):
            final = self.evaluate(model, "test")
            with output.best():
                test = self.evaluate(model, "test")
        tuner = optimizer if isinstance(optimizer, SelfTuner) else None
        races = tuner.races if tuner else ()
        finite = [look for look in output.looks if math.isfinite(look)]
        return {
            "test": test if math.isfinite(test) and finite else None,
            "final_test": final if math.isfinite(final) else None,
            "validation": min(finite, default=None),
            "looks": [look if math.isfinite(look) else None for look in output.looks],
            "rate": chosen_rate(optimizer),
            "reason": races[-1].reason if races else "",
            "races": len(races),
            "extra_steps": tuner.extra_steps if tuner else 0,
            "minibatches": planned,
            "budget": self.steps,
        }


class Output:
    """The output rule of the library, for every method: the best weights, averaged or last.

    Args:
        optimizer: SelfTuner keeps them by itself; for all others its keeper does. None is a
            framework, which looks at what is in the model, ours or not.
        model: what is trained.

    Attributes:
        average: the second weights of a look, where the optimizer has none of its own.
        looks: the losses so far, of the better weights.
    """

    def __init__(self, optimizer: Optimizer | None, model: nn.Module) -> None:
        self._tuner = optimizer if isinstance(optimizer, SelfTuner) else None
        self._keeper = Keeper("benchmarks.scripts", None, model)
        self.average: WeightAverage | None = None
        self.looks: list[float] = []

    def look(self, score: Callable[[], float], step: int) -> float:
        """Score the weights, ours by `SelfTuner.validate`; return the loss of the last ones."""
        losses = []

        def noted() -> float:
            losses.append(score())
            return losses[-1]

        if self._tuner is not None:
            self.looks.append(self._tuner.validate(noted))
        else:
            found = self._keeper.look(noted, step=step, maximize=False, average=self.average)
            self.looks.append(found)
        return losses[-1]

    def take(self, value: float, score: Callable[[], float]) -> None:
        """Take in what a framework has found for the weights in the model, and score the average.

        Args:
            value: what it has found.
            score: the same for other weights.
        """
        step = len(self.looks)
        losses = [value]
        self._keeper.take(value, step=step)
        if self.average is not None:
            with self.average.swapped_in():
                losses.append(score())
                self._keeper.take(losses[-1], step=step, weights="average")
        self.looks.append(min(losses, key=lambda loss: (not math.isfinite(loss), loss)))

    def best(self) -> AbstractContextManager[None]:
        """Give the model the weights that are kept."""
        return self._keeper.shown() if self._tuner is None else self._tuner.best()


def averaged(optimizer: Optimizer, model: nn.Module) -> WeightAverage:
    """Return an average of the weights that is kept from here on, as SelfTuner keeps its own.

    Once in eight steps the weights enter it, if they are finite. Where the rate decays, the window
    shrinks with it.
    """
    average = WeightAverage("benchmarks.scripts", optimizer, model)
    average.add()
    steps, highest = 0, 0.0

    def add(*_: Any) -> None:
        nonlocal steps, highest
        rate = optimizer.param_groups[0]["lr"]
        steps, highest = steps + 1, max(highest, rate)
        if steps % EVERY == 0 and are_finite(parameters_of(optimizer)):
            average.add(rate / highest)

    optimizer.register_step_pre_hook(add)
    return average


@contextlib.contextmanager
def controlled(method: str, name: str) -> Iterator[None]:
    """Make SelfTuner what a control asks for meanwhile.

    Args:
        method: any; most ask for nothing.
        name: of the run, by which a blind race is decided.
    """
    with contextlib.ExitStack() as stack:
        if method == HELD:
            stack.enter_context(held_without_race(CENTRE))
        elif method == RANDOM_ARM:
            stack.enter_context(drawn_blindly(name))
        yield


class TooLongError(Exception):
    """A run whose steps and extra steps cost more than the budget."""

    def __init__(self, excess: int) -> None:
        super().__init__(f"{excess} gradients too many")
        self.excess = excess


def within(budget: int, attempt: Callable[[int], Record]) -> Record:
    """Try shorter lengths until a run costs no more than the budget.

    Races hardly change with the length, so one or two attempts are enough.
    """
    planned = budget
    while True:
        try:
            return attempt(planned)
        except TooLongError as error:
            planned -= error.excess


def check_length(optimizer: Optimizer, planned: int, budget: int) -> None:
    """Raise TooLongError once the races are over and cost more than was left for them."""
    if isinstance(optimizer, SelfTuner) and not optimizer.is_racing:
        excess = planned + optimizer.extra_steps - budget
        if excess > 0:
            raise TooLongError(excess)


def is_look(steps: int, planned: int) -> bool:
    """Tell whether the validation set is looked at after this step; after the last it always is."""
    return steps * LOOKS // planned > (steps - 1) * LOOKS // planned


def peer(method: str, model: nn.Module, planned: int) -> Tuned:
    """Return Prodigy or Schedule-Free AdamW, as their authors recommend them."""
    if method == SCHEDULE_FREE:
        from schedulefree import AdamWScheduleFree

        warm_up = round(WARM_UP * planned)
        optimizer = AdamWScheduleFree(
            model.parameters(), warmup_steps=warm_up, weight_decay=WEIGHT_DECAY
        )
        optimizer.train()
        return optimizer, None
    from prodigyopt import Prodigy

    with contextlib.redirect_stdout(io.StringIO()):  # it announces itself
        optimizer = Prodigy(
            model.parameters(),
            weight_decay=WEIGHT_DECAY,
            safeguard_warmup=True,
            use_bias_correction=True,
        )
    return optimizer, CosineAnnealingLR(optimizer, planned)


def warm_up_and(
    decay: Callable[[float], float], optimizer: Optimizer, warm_up: int, steps: int
) -> LambdaLR:
    """Return a scheduler that rises linearly, then follows a function of the share that is over."""

    def multiple(step: int) -> float:
        if step < warm_up:
            return (step + 1) / (warm_up + 1)
        return decay((step - warm_up) / max(1, steps - warm_up))

    return LambdaLR(optimizer, multiple)


def cosine(lowest: float = 0.0) -> Callable[[float], float]:
    """Return the multiple of the rate along half a cosine."""
    return lambda share: lowest + (1 - lowest) * (1 + math.cos(math.pi * share)) / 2


def chosen_rate(optimizer: Optimizer) -> float:
    """Return the rate that a method has found or was given, before its schedule."""
    if isinstance(optimizer, SelfTuner):
        return optimizer.races[-1].rate if optimizer.races else optimizer.lr
    return float(optimizer.param_groups[0].get("d", optimizer.defaults["lr"]))  # d: Prodigy's


@contextlib.contextmanager
def evaluating(optimizer: Optimizer) -> Iterator[None]:
    """Give the model the weights that Schedule-Free is evaluated with."""
    if type(optimizer).__name__ != "AdamWScheduleFree":
        yield
        return
    optimizer.eval()
    yield
    optimizer.train()


def batched(*tensors: Tensor, size: int) -> Iterator[tuple[Tensor, ...]]:
    """Cut tensors of the same length into minibatches."""
    return zip(*(tensor.split(size) for tensor in tensors), strict=True)
