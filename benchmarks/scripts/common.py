"""What the scripts share: the methods, the loop with its looks, the output, the record of a run."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, ReduceLROnPlateau

from annealtune import SelfTuner
from annealtune.errors import NonFiniteLossError
from annealtune.optim.averaging import recalibrate
from benchmarks.quality.records import Record
from benchmarks.quality.tasks.task import Sources

HAND_TUNED = "hand-tuned"
PRODIGY = "prodigy"
SCHEDULE_FREE = "schedule-free-adamw"
SELF_TUNED = "self-tuned"
METHODS = (HAND_TUNED, PRODIGY, SCHEDULE_FREE, SELF_TUNED)

LOOKS = 20
WARM_UP = 0.05
WEIGHT_DECAY = 0.01  # of the peers
CALIBRATION = 15  # minibatches, for the statistics of BatchNorm

Part = Literal["validation", "test"]
Tuned = tuple[Optimizer, LRScheduler | None]


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
        return within(self.steps, functools.partial(self.attempt, method))

    def attempt(self, method: str, planned: int) -> Record:
        """Train for a number of steps.

        Raises:
            TooLongError: if that costs more than the recipe.
        """
        torch.manual_seed(self.seed)
        model = self.model().train()
        optimizer, scheduler = self.optimizer(method, model, planned)
        keeper = keeper_of(optimizer, model)
        compute_loss: Callable[..., Tensor] = functools.partial(self.loss, model)
        if isinstance(optimizer, SelfTuner):
            compute_loss = optimizer.record(compute_loss)
            optimizer.before_step(lambda: self.clip_gradients(model))
        looks: list[float] = []
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
                    recalibrate_if(method, model, self.minibatch)
                    looks.append(keeper.validate(lambda: self.evaluate(model, "validation")))
                if isinstance(scheduler, ReduceLROnPlateau):
                    scheduler.step(looks[-1])
        with evaluating(optimizer):
            return self.record(model, optimizer, keeper, looks, planned)

    def optimizer(self, method: str, model: nn.Module, planned: int) -> Tuned:
        """Return the optimizer of a method, and its scheduler."""
        if method == HAND_TUNED:
            return self.hand_tuned(model)
        if method == SELF_TUNED:
            tuner = SelfTuner(self.adamw(model), model=model, total_steps=planned)
            return tuner, None
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
        self,
        model: nn.Module,
        optimizer: Optimizer,
        keeper: Keeper | SelfTuner,
        looks: list[float],
        planned: int,
    ) -> Record:
        """Return what a run came to."""
        final = self.evaluate(model, "test")
        with keeper.best():
            test = self.evaluate(model, "test")
        tuner = optimizer if isinstance(optimizer, SelfTuner) else None
        races = tuner.races if tuner else ()
        finite = [look for look in looks if math.isfinite(look)]
        return {
            "test": test if math.isfinite(test) and finite else None,
            "final_test": final if math.isfinite(final) else None,
            "validation": min(finite, default=None),
            "looks": [look if math.isfinite(look) else None for look in looks],
            "rate": chosen_rate(optimizer),
            "reason": races[-1].reason if races else "",
            "races": len(races),
            "extra_steps": tuner.extra_steps if tuner else 0,
            "minibatches": planned,
            "budget": self.steps,
        }


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
    """Tell whether the validation set is looked at after so many steps; after the last it is."""
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


def recalibrate_if(method: str, model: nn.Module, minibatch: Callable[[], Any]) -> None:
    """Compute the statistics of BatchNorm at the weights of Schedule-Free, if there are any."""
    if method == SCHEDULE_FREE:
        recalibrate(model, (minibatch() for _ in range(CALIBRATION)))


class Keeper:
    """Remembers the weights with the lowest validation loss, as SelfTuner does by itself."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._lowest = math.inf
        self._weights = copy.deepcopy(model.state_dict())

    def validate(self, score: Callable[[], float]) -> float:
        value = score()
        if value < self._lowest:
            self._lowest = value
            self._weights = copy.deepcopy(self.model.state_dict())
        return value

    @contextlib.contextmanager
    def best(self) -> Iterator[None]:
        last = copy.deepcopy(self.model.state_dict())
        self.model.load_state_dict(self._weights)
        yield
        self.model.load_state_dict(last)


def keeper_of(optimizer: Optimizer, model: nn.Module) -> Keeper | SelfTuner:
    """Return what remembers the best weights: SelfTuner does so by itself."""
    return optimizer if isinstance(optimizer, SelfTuner) else Keeper(model)


def batched(*tensors: Tensor, size: int) -> Iterator[tuple[Tensor, ...]]:
    """Cut tensors of the same length into minibatches."""
    return zip(*(tensor.split(size) for tensor in tensors), strict=True)
