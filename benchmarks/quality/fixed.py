"""Runs at one rate, by the two schedules that are tuned by hand: held, or along a cosine."""

from __future__ import annotations

import math

from annealtune.optim.average import WeightAverage
from annealtune.optim.centre import ADAMS, CENTRE_OF_ADAMS, relative_centre
from annealtune.optim.guard import EVERY
from annealtune.optim.options import GroupRates
from annealtune.optim.schedule import default_warm_up, share_left, share_of_rate

from .average import Average
from .bases import base_of, write_rate
from .gradients import Gradients, Looks, Record
from .tasks.task import Task


def held(task: Task, base_name: str, rate: float) -> Record:
    """Train at one rate: warmed up, held, decayed and averaged as SelfTuner does, unguarded."""
    gradients = Gradients(task)
    base = base_of(base_name, task, gradients.network)
    average = WeightAverage("held", base, gradients.network)
    average.add()
    steps, warm_up = task.steps, default_warm_up(task.steps)
    looks = Looks(gradients, steps)
    for step in range(steps):
        loss = gradients.loss(task.minibatch(step))
        if step % EVERY == EVERY - 1:
            if not math.isfinite(loss.item()):
                break
            average.add(share_left(step, steps))
        loss.backward()
        share = share_of_rate(step, steps, warm_up=warm_up)
        write_rate(base, rate * share, task, gradients.network)
        base.step()
        base.zero_grad()
        if step + 1 == steps:
            average.add(0.0)
        looks.look(step + 1, average.swapped_in)
    return looks.outcome(rate, minibatches=round(gradients.cost))


def cosine(task: Task, base_name: str, rate: float) -> Record:
    """Train along a cosine to zero after the same warm-up, averaged as well."""
    gradients = Gradients(task)
    base = base_of(base_name, task, gradients.network)
    average = Average(gradients, base)
    warm_up = default_warm_up(task.steps)
    looks = Looks(gradients, task.steps)
    for step in range(task.steps):
        loss = gradients.loss(task.minibatch(step))
        if step % EVERY == EVERY - 1 and not math.isfinite(loss.item()):
            break
        loss.backward()
        share = min(1.0, (step + 1) / max(warm_up, 1)) * along_cosine(step, task.steps)
        write_rate(base, rate * share, task, gradients.network)
        base.step()
        base.zero_grad()
        average.take(step + 1, along_cosine(step + 1, task.steps))
        looks.look(step + 1, average.swapped_in)
    return looks.outcome(rate, minibatches=round(gradients.cost))


def along_cosine(step: int, steps: int) -> float:
    """Return the share of a rate that a cosine has left at a step, counted from 0."""
    return (1 + math.cos(math.pi * step / steps)) / 2


def centre(task: Task, base_name: str, *, relative: bool) -> float:
    """Return the middle of a first race, or where it would be by the relative update."""
    gradients = Gradients(task)
    base = base_of(base_name, task, gradients.network)
    if isinstance(base, ADAMS) and not relative:
        return CENTRE_OF_ADAMS
    gradients.loss(task.minibatch(0)).backward()
    return relative_centre(base, GroupRates("centre", base))
