"""The method of the paper, as its text states it and as its experiments ran."""

from __future__ import annotations

import math

from annealtune import SGDSA
from annealtune.errors import NonFiniteLossError
from annealtune.optim.options.presets import Preset

from .gradients import Gradients, Looks, Record
from .tasks.task import Task


def text(task: Task, _: str = "") -> Record:
    """SGD-SA to the letter: a step costs a gradient and a forward."""
    return _run(task, "paper-text", forwards=1)


def code(task: Task, _: str = "") -> Record:
    """SGD-SA as published experiments ran it: both losses of the accept test cost a forward."""
    return _run(task, "paper-code", forwards=2)


def _run(task: Task, preset: Preset, forwards: int) -> Record:
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
