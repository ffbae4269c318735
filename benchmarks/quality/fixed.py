"""Runs at one rate, by the two schedules that are tuned by hand: held, or along a cosine."""

from __future__ import annotations

import math

from annealtune.optim.averaging import WeightAverage
from annealtune.optim.held_setting import share_of_rate
from annealtune.optim.loss_watch import EVERY
from annealtune.optim.options.group_rates import GroupRates
from annealtune.optim.trial.centre import known_centre, relative_centre

from .bases import base_of, write_rate
from .gradients import Gradients, Record, broken, outcome
from .tasks.task import Task


def held(task: Task, base_name: str, rate: float) -> Record:
    """Train at one rate, held, decayed and averaged as SelfTuner does it, without its guard."""
    gradients = Gradients(task)
    base = base_of(base_name, task, gradients.network)
    average = WeightAverage("held", base, gradients.network)
    average.add()
    for step in range(task.steps):
        loss = gradients.loss(task.minibatch(step))
        if step % EVERY == EVERY - 1:
            if not math.isfinite(loss.item()):
                return broken(gradients, rate, minibatches=step)
            average.add()
        loss.backward()
        write_rate(base, rate * share_of_rate(step, task.steps), task, gradients.network)
        base.step()
        base.zero_grad()
    with average.swapped_in(gradients.calibration()):
        return outcome(gradients, rate, minibatches=task.steps)


def cosine(task: Task, base_name: str, rate: float) -> Record:
    """Train along a cosine from one rate to nothing; the last weights count."""
    gradients = Gradients(task)
    base = base_of(base_name, task, gradients.network)
    for step in range(task.steps):
        loss = gradients.loss(task.minibatch(step))
        if step % EVERY == EVERY - 1 and not math.isfinite(loss.item()):
            return broken(gradients, rate, minibatches=step)
        loss.backward()
        share = (1 + math.cos(math.pi * step / task.steps)) / 2
        write_rate(base, rate * share, task, gradients.network)
        base.step()
        base.zero_grad()
    return outcome(gradients, rate, minibatches=task.steps)


def centre(task: Task, base_name: str, *, relative: bool) -> float:
    """Return the middle of a first race, or where it would be by the relative update."""
    gradients = Gradients(task)
    base = base_of(base_name, task, gradients.network)
    known = None if relative else known_centre(base)
    if known is not None:
        return known
    gradients.loss(task.minibatch(0)).backward()
    return relative_centre(base, GroupRates("centre", base))
