"""Runs of our methods, at the cost of a run without a race: SelfTuner, and that of the paper."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator
from typing import Any
from unittest import mock

from annealtune import SGDSA, SelfTuner
from annealtune.annealing import Setting
from annealtune.annealing.race import Outcome
from annealtune.errors import NonFiniteLossError
from annealtune.optim.annealing_state import Preset
from annealtune.optim.race import Race, Races
from annealtune.optim.self_tuner import Holding, Run, Waiting

from .bases import base_of
from .gradients import Gradients, Looks, Record
from .tasks.task import Task


def with_length(task: Task, base_name: str) -> Record:
    """Train with SelfTuner, which knows the length.

    What races cost is taken off the planned length until all
    together cost no more than a run without them. A race hardly changes with the length, so one or
    two attempts are enough.
    """
    planned = task.steps
    while True:
        run = TunedRun(task, base_name, planned)
        run.race()
        excess = run.gradients.cost + planned - run.tuner.steps - task.steps
        if excess <= 0:
            record = run.finish(planned)
            excess = run.gradients.cost - task.steps
            if excess <= 0:
                return record
        planned -= math.ceil(excess)


def anytime(task: Task, base_name: str) -> Record:
    """Train with SelfTuner, which does not know the length; stop when the cost is reached."""
    over = 0
    while True:
        run = TunedRun(task, base_name, None)
        run.race()
        left = math.floor(task.steps - run.gradients.cost) - over
        record = run.finish(run.tuner.steps + left)
        if run.gradients.cost <= task.steps:
            return record
        over += math.ceil(run.gradients.cost - task.steps)


def random_arm(task: Task, base_name: str) -> Record:
    """Train with SelfTuner, but any arm may win, also one that was dropped."""
    with drawn_blindly(f"{type(task).__name__} {task.seed} {base_name}"):
        return with_length(task, base_name)


@contextlib.contextmanager
def drawn_blindly(name: str) -> Iterator[None]:
    """Let chance decide the races of SelfTuner meanwhile.

    Args:
        name: of the run: it has the same winner however often it is begun to find the length.
    """

    def verdict(race: Race, *_: Any) -> Outcome:
        chance = random.Random(f"{name} {race.began > 0}")
        return Outcome(chance.randrange(len(race.settings)), "drawn blindly")

    with (
        mock.patch.object(Race, "verdict", verdict),
        # These would look at the losses.
        mock.patch.object(Races, "_cautious", lambda _, __, outcome: outcome),
        mock.patch.object(Races, "_further", return_value=()),
    ):
        yield


@contextlib.contextmanager
def held_without_race(rate: float) -> Iterator[None]:
    """Let SelfTuner hold a rate from its first step on: all it does but the races."""

    def begun(_: Waiting, run: Run) -> Holding:
        return Holding(Setting({"lr": rate}), run.steps)

    with mock.patch.object(Waiting, "begun", begun):
        yield


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
            base_of(base_name, task, network),
            model=network,
            total_steps=planned,
            objective=self.gradients.objective if task.has_objective else None,
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
        rate = self.tuner.races[-1].rate if self.tuner.races else self.tuner.lr
        looks = Looks(self.gradients, minibatches)
        with contextlib.suppress(NonFiniteLossError):
            while self.tuner.steps < minibatches:
                self.step()
                looks.look(self.tuner.steps, self.tuner.averaged)
        return looks.outcome(rate, **self._counts())

    def _counts(self) -> dict[str, Any]:
        races = self.tuner.races
        return {
            "minibatches": self.tuner.steps,
            "extra_steps": self.tuner.extra_steps,
            "races": len(races),
            "reason": races[-1].reason if races else "",
            "cuts": self.tuner._run.guard.cuts,
        }


def paper_text(task: Task, _: str = "") -> Record:
    """SGD-SA to the letter: a step costs a gradient and a forward."""
    return _sgd_sa(task, "paper-text", forwards=1)


def paper_code(task: Task, _: str = "") -> Record:
    """SGD-SA as published experiments ran it: both losses of the accept test cost a forward."""
    return _sgd_sa(task, "paper-code", forwards=2)


def _sgd_sa(task: Task, preset: Preset, forwards: int) -> Record:
    """Train until the cost is reached.

    One rate is picked for all parameters: the paper knows no groups.
    """
    gradients = Gradients(task)
    steps = 3 * task.steps // (3 + forwards)
    per_epoch = task.steps_per_epoch
    tuner = SGDSA(
        gradients.network,
        preset=preset,
        epochs=math.ceil(steps / per_epoch),
        batch_size=task.batch_size,
        seed=task.seed,
    )
    looks = Looks(gradients, steps)
    for step in range(steps):
        try:
            tuner.step(gradients.closure(task.minibatch(step)))
        except NonFiniteLossError:
            break
        if (step + 1) % per_epoch == 0:
            tuner.cool()
        looks.look(step + 1)
    return looks.outcome(None, minibatches=step + 1)
