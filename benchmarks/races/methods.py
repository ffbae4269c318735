"""The methods: the tuner, fixed rates, and controls that do not tune. All at equal cost."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from annealtune import SelfTuner
from annealtune.annealing.race import Outcome
from annealtune.errors import NonFiniteLossError
from annealtune.optim import self_tuner
from annealtune.optim.averaging import WeightAverage
from annealtune.optim.centre import known_centre, relative_centre
from annealtune.optim.group_rates import GroupRates
from annealtune.optim.loss_watch import EVERY
from annealtune.optim.race import Race

from .task import Task

BASES: dict[str, Callable[[nn.Module], Optimizer]] = {
    "adamw": lambda network: AdamW(network.parameters(), fused=True),  # the same, sooner
    "sgd": lambda network: SGD(network.parameters(), lr=0.01, momentum=0.9),
}
# Half decades. SGD's best rates lie a decade higher.
GRIDS = {
    "adamw": (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
    "sgd": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0),
}
# Minibatches from which the statistics of BatchNorm are computed at the averaged weights.
CALIBRATION = 15

Record = dict[str, Any]


class Gradients:
    """Computes losses of a task and counts them: each is for a gradient."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.network = task.network()
        self.count = 0

    def loss(self, minibatch: Any) -> Tensor:
        self.count += 1
        return self.task.loss(self.network, minibatch)

    def calibration(self) -> Iterator[Any]:
        """Yield the minibatches after those of the run."""
        steps = self.task.steps
        return (self.task.minibatch(index) for index in range(steps, steps + CALIBRATION))


def fixed(task: Task, base_name: str, rate: float) -> Record:
    """Train at one rate, held, decayed and averaged as SelfTuner does it, without its guard."""
    gradients = Gradients(task)
    base = BASES[base_name](gradients.network)
    average = WeightAverage("fixed", base, gradients.network)
    average.add()
    for step in range(task.steps):
        loss = gradients.loss(task.minibatch(step))
        if step % EVERY == EVERY - 1:
            if not math.isfinite(loss.item()):
                return _outcome(gradients, math.nan, rate, minibatches=step)
            average.add()
        loss.backward()
        left = (task.steps - step) / (self_tuner._DECAY * task.steps)
        for group in base.param_groups:
            group["lr"] = rate * min(1.0, left)
        base.step()
        base.zero_grad()
    with average.swapped_in(gradients.calibration()):
        test = task.test(gradients.network)
    return _outcome(gradients, test, rate, minibatches=task.steps)


def centre(task: Task, base_name: str, *, relative: bool) -> float:
    """Return the middle of a first race, or where it would be by the relative update."""
    gradients = Gradients(task)
    base = BASES[base_name](gradients.network)
    known = None if relative else known_centre(base)
    if known is not None:
        return known
    gradients.loss(task.minibatch(0)).backward()
    return relative_centre(base, GroupRates("centre", base))


def tuned(task: Task, base_name: str) -> Record:
    """Train with SelfTuner, which knows the length.

    Extra steps are taken off the planned length until both together cost no more than a run
    without a race. The race hardly changes with the length, so one or two attempts are enough.
    """
    planned = task.steps
    while True:
        run = TunedRun(task, base_name, planned)
        run.race()
        excess = planned + run.tuner.extra_steps - task.steps
        if excess <= 0:
            return run.finish(planned)
        planned -= excess


def anytime(task: Task, base_name: str) -> Record:
    """Train with SelfTuner, which does not know the length; stop when the cost is reached."""
    run = TunedRun(task, base_name, None)
    run.race()
    return run.finish(task.steps - run.tuner.extra_steps)


class TunedRun:
    """One run of SelfTuner.

    Args:
        task: what is trained.
        base_name: over which base.
        planned: the length that the tuner is told.
    """

    def __init__(self, task: Task, base_name: str, planned: int | None) -> None:
        self.gradients = Gradients(task)
        network = self.gradients.network
        self.tuner = SelfTuner(
            BASES[base_name](network), model=network, total_steps=planned, seed=task.seed
        )
        self._recorded = self.tuner.record(self.gradients.loss)
        self._task = task

    def step(self) -> None:
        self._recorded(self._task.minibatch(self.tuner.steps)).backward()
        self.tuner.step()
        self.tuner.zero_grad()

    def race(self) -> None:
        """Go on until the races are over."""
        while self.tuner.is_racing and self.tuner.steps < self._task.steps:
            self.step()

    def finish(self, minibatches: int) -> Record:
        """Go on to the end; return what came of it."""
        rate = self.tuner.races[-1].rate if self.tuner.races else self.tuner.rate
        test = math.nan
        with contextlib.suppress(NonFiniteLossError):
            while self.tuner.steps < minibatches:
                self.step()
            with self.tuner.averaged(self.gradients.calibration()):
                test = self._task.test(self.gradients.network)
        return _outcome(
            self.gradients,
            test,
            rate,
            minibatches=self.tuner.steps,
            extra_steps=self.tuner.extra_steps,
            races=len(self.tuner.races),
            reason=self.tuner.races[-1].reason if self.tuner.races else "",
            restarted=any(info.restarted for info in self.tuner.races),
            cuts=self.tuner._guard._cuts,
        )


def random_arm(task: Task, base_name: str) -> Record:
    """Train with SelfTuner, but any arm may win, also one that was dropped."""
    names = list(BASES)

    def verdict(race: Race, *_: Any) -> Outcome:
        # The same arm however often the race is held to find the length.
        seed = f"{type(task).__name__} {task.seed} {names.index(base_name)} {race.began > 0}"
        return Outcome(random.Random(seed).randrange(len(race.settings)), "drawn blindly")

    with mock.patch.object(Race, "verdict", verdict):
        return tuned(task, base_name)


def _outcome(gradients: Gradients, test: float, rate: float, **counts: Any) -> Record:
    return {
        "test": test if math.isfinite(test) else None,
        "rate": rate,
        "cost": gradients.count,
        "budget": gradients.task.steps,
        "extra_steps": 0,
        **counts,
    }


# What tunes; only these have variants.
TUNERS = {"self-tuned": tuned, "anytime": anytime, "random-arm": random_arm}
CONTROLS = {
    "held-3e-3": lambda task, base: fixed(task, base, 3e-3),
    "held-centre": lambda task, base: fixed(task, base, centre(task, base, relative=True)),
    "held-quarter": lambda task, base: fixed(task, base, centre(task, base, relative=False) / 4),
}
METHODS = {**TUNERS, **CONTROLS}


def at_rate(rate: float) -> str:
    """Return the name of the method that trains at a fixed rate."""
    return f"rate-{rate:g}"


def run(task: Task, base_name: str, method: str) -> Record:
    """Make one run, by the name of its method."""
    torch.set_num_threads(1)
    started = time.perf_counter()
    if method.startswith("rate-"):
        outcome = fixed(task, base_name, float(method.removeprefix("rate-")))
    else:
        outcome = METHODS[method](task, base_name)
    return {**outcome, "seconds": round(time.perf_counter() - started, 2)}
