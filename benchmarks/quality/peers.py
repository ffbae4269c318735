"""Other methods that need no rate, or one for all tasks, each as its authors recommend it.

Weight decay is 0.01 where Adam is underneath, none over SGD. Where groups are to have different
multiples of a rate, each function says what becomes of them. What is scored is an average of the
weights, as with SelfTuner: DoG and Schedule-Free have their own, all others are given `Average`.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from annealtune.optim.average import recalibrate
from annealtune.optim.run_state import Surroundings, kept

from .average import Average
from .bases import has_batch_norm
from .fixed import along_cosine
from .gradients import Gradients, Looks, Record
from .line_search import StochasticLineSearch
from .tasks.task import Task

WEIGHT_DECAY = 0.01
WARM_UP = 0.05


def prodigy(task: Task, _: str = "") -> Record:
    """Prodigy along a cosine. It refuses different rates, so all groups have the same.

    https://github.com/konstmish/prodigy recommends lr = 1 and cosine annealing over all steps for
    all nets, and safeguard_warmup, use_bias_correction and weight decay 0.01 for diffusion models.
    Without the first two it was no better on nine of ten open tasks, worse on eight.
    """
    from prodigyopt import Prodigy

    gradients = Gradients(task)
    with _silenced():
        optimizer = Prodigy(
            _parameters(gradients),
            weight_decay=WEIGHT_DECAY,
            safeguard_warmup=True,
            use_bias_correction=True,
        )
    looks = _train(gradients, optimizer)
    return _came_to(looks, gradients, optimizer.param_groups[0]["d"])


def d_adaptation(task: Task, _: str = "") -> Record:
    """D-Adapted Adam along a cosine. Groups keep their ratio, by its ``layer_scale``.

    lr = 1, the schedule one would use anyway, and ``decouple`` for AdamW's weight decay are from
    https://github.com/facebookresearch/dadaptation.
    """
    from dadaptation import DAdaptAdam

    gradients = Gradients(task)
    groups = [
        {"params": parameters, "layer_scale": multiple}
        for parameters, multiple in task.groups(gradients.network)
    ]
    with _silenced():
        optimizer = DAdaptAdam(groups, weight_decay=WEIGHT_DECAY, decouple=True)
    looks = _train(gradients, optimizer)
    return _came_to(looks, gradients, optimizer.param_groups[0]["d"])


def schedule_free_adamw(task: Task, _: str = "") -> Record:
    """Schedule-Free AdamW at its default rate. Groups keep their ratio.

    https://github.com/facebookresearch/schedule_free recommends a warm-up, and statistics of
    BatchNorm that are computed again before an evaluation.
    """
    from schedulefree import AdamWScheduleFree

    return _schedule_free(task, AdamWScheduleFree, 0.0025, weight_decay=WEIGHT_DECAY)


def schedule_free_sgd(task: Task, _: str = "") -> Record:
    """Schedule-Free SGD at its default rate, otherwise as above."""
    from schedulefree import SGDScheduleFree

    return _schedule_free(task, SGDScheduleFree, 1.0, momentum=0.9)


def _schedule_free(task: Task, kind: Callable[..., Any], rate: float, **options: float) -> Record:
    gradients = Gradients(task)
    optimizer = kind(_groups(gradients, rate), warmup_steps=round(WARM_UP * task.steps), **options)
    optimizer.train()

    @contextlib.contextmanager
    def evaluated() -> Iterator[None]:
        with kept(Surroundings(gradients.network.modules())):
            optimizer.eval()
            recalibrate(gradients.network, gradients.calibration())
            yield
        optimizer.train()

    looks = _train(gradients, optimizer, given=evaluated)
    return _came_to(looks, gradients, rate)


def dog(task: Task, _: str = "") -> Record:
    """DoG with polynomial averaging, which its authors call crucial.

    It takes a group for one long vector with a distance of its own, so all parameters are in one.
    The first movement is 1e-6, or 1e-4 with BatchNorm, as in https://github.com/formll/dog.
    """
    from dog import DoG, PolynomialDecayAverager

    gradients = Gradients(task)
    movement = 1e-4 if has_batch_norm(gradients.network) else 1e-6
    optimizer = DoG(_parameters(gradients), reps_rel=movement)
    averager = PolynomialDecayAverager(gradients.network)
    averaged = averager.averaged_model

    @contextlib.contextmanager
    def recalibrated() -> Iterator[None]:
        recalibrate(averaged, gradients.calibration())
        yield

    looks = _train(
        gradients, optimizer, after_step=averager.step, given=recalibrated, network=averaged
    )
    eta = optimizer.param_groups[0].get("eta")
    return _came_to(looks, gradients, None if eta is None else float(eta[0]))


def mechanic(task: Task, _: str = "") -> Record:
    """Mechanic around AdamW along a cosine. Groups keep their ratio.

    lr = 1 and all options at their defaults, with whatever schedule: that is what
    https://github.com/optimizedlearning/mechanic recommends.
    """
    from mechanic_pytorch import mechanize

    gradients = Gradients(task)
    optimizer = mechanize(AdamW)(_groups(gradients, 1.0), weight_decay=WEIGHT_DECAY, fused=True)
    looks = _train(gradients, optimizer)
    state = optimizer.state.get("_mechanic")
    return _came_to(looks, gradients, None if state is None else float(state["s"].sum()))


def line_search(task: Task, _: str = "") -> Record:
    """Stochastic line search until its gradients and forwards cost a run. Groups keep their ratio.

    See `StochasticLineSearch` for where its numbers come from.
    """
    gradients = Gradients(task)

    def tries_left() -> int:
        return int(3 * (task.steps - gradients.cost) + 1e-6)

    search = StochasticLineSearch(
        gradients.network, task.groups(gradients.network), task.steps_per_epoch, tries_left
    )
    average = Average(gradients, SGD(_parameters(gradients)))  # its steps are those of the search
    looks = Looks(gradients, task.steps)
    step = looked = 0
    while tries_left() >= 4:
        if not math.isfinite(search.step(gradients.closure(task.minibatch(step)))):
            break
        step += 1
        average.take(step)
        # Steps cost more than one gradient: looks are at even parts of the cost.
        for mark in range(looked + 1, min(math.ceil(gradients.cost), task.steps) + 1):
            looks.look(mark, average.swapped_in)
            looked = mark
    return looks.outcome(search.rate, minibatches=step)


def _parameters(gradients: Gradients) -> list[nn.Parameter]:
    groups = gradients.task.groups(gradients.network)
    return [p for parameters, _ in groups for p in parameters]


def _groups(gradients: Gradients, rate: float) -> list[dict[str, Any]]:
    groups = gradients.task.groups(gradients.network)
    return [{"params": parameters, "lr": rate * multiple} for parameters, multiple in groups]


def _train(
    gradients: Gradients,
    optimizer: Optimizer,
    *,
    after_step: Callable[[], None] = lambda: None,
    given: Callable[[], AbstractContextManager[Any]] | None = None,
    network: nn.Module | None = None,
) -> Looks:
    """Make all steps and look at validation. A run ends where its loss is not finite.

    Args:
        gradients: of the run.
        optimizer: makes the steps.
        after_step: what is to be done after each.
        given: gives the net the optimizer's own average, for rates that are held. Without it, they
            fall along a cosine and `Average` is kept.
        network: which has the average, if it is not the net that is trained.
    """
    task = gradients.task
    looks = Looks(gradients, task.steps)
    rates = [group["lr"] for group in optimizer.param_groups]
    average = None if given else Average(gradients, optimizer)
    shown = average.swapped_in if average else given
    for step in range(task.steps):
        loss = gradients.loss(task.minibatch(step))
        if not math.isfinite(loss.item()):
            break
        if average:
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * along_cosine(step, task.steps)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after_step()
        if average:
            average.take(step + 1, along_cosine(step + 1, task.steps))
        looks.look(step + 1, shown, network)
    return looks


def _came_to(looks: Looks, gradients: Gradients, rate: float | None) -> Record:
    return looks.outcome(rate, minibatches=round(gradients.cost))


def _silenced() -> contextlib.AbstractContextManager[Any]:
    """Keep an optimizer from announcing itself."""
    return contextlib.redirect_stdout(io.StringIO())
