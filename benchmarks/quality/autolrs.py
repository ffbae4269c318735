"""AutoLRS, whose program is a server for a loop of one's own: written from its paper.

Short runs and a benchmark ask for some simplifications:

- stages are as long as the budget permits, not 1,000 to 8,000 steps; each is still twice as long as
  the one before, and half of all gradients go into trials;
- the training loss is forecast throughout, which the authors do until the longest stage is reached;
- losses are not smoothed by splines before an exponential is fitted, and its time constant is at
  most the length of a trial, so that a few noisy losses are not extrapolated too far;
- a trial that rises above the first loss of the run is judged by its last losses, which the authors
  do in their longest stages;
- the kernel has a fixed length of one decade.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np

from .average import Average
from .bases import base_of, write_rate
from .gradients import Gradients, Looks, Record
from .tasks.task import Task

# As in the paper: trials in a stage, how many of them a stage is long, weight of the uncertainty,
# lengths of stages.
_TRIALS, _SHARE, _KAPPA, _STAGES = 10, 10, 1000.0, 4
# An exponential is hardly to be seen in fewer losses; runs that are too short have fewer stages.
_LEAST_TRIAL = 8
# Logarithms of the rates that it is given to search: 1e-5 to 1e-1.
_LOGARITHMS = -5.0, -1.0


def autolrs(task: Task, _: str = "") -> Record:
    """Find the rate of AdamW for each stage by Bayesian optimization. Groups keep their ratio.

    A rate is tried for a tenth of a stage, the loss at the end of the stage is forecast by an
    exponential, and all is put back. After ten such trials, at the rates with the least lower
    confidence bound, the stage is run at that with the lowest forecast.

    Reference:
        Jin et al., *AutoLRS: automatic learning-rate schedule by Bayesian optimization on the fly*
        (2021), Algorithm 1, and https://github.com/YuchenJin/autolrs.
    """
    run = _Run(task)
    gradients = run.gradients
    lengths = trial_lengths(task.steps)
    # Half of the gradients are trials: the steps that remain are looked at, at even parts.
    looks = Looks(gradients, task.steps - sum(_TRIALS * length for length in lengths))
    average = Average(gradients, run.base)
    minibatches = 0

    def after_step() -> None:
        nonlocal minibatches
        minibatches += 1
        average.take(minibatches)
        looks.look(minibatches, average.swapped_in)

    for length in lengths:
        run.choose_rate(length)
        is_last = length == lengths[-1]
        steps = task.steps - round(gradients.cost) if is_last else _SHARE * length
        losses = run.train(steps, after_step)
        counts = {
            "minibatches": minibatches,
            "extra_steps": round(gradients.cost) - minibatches,
        }
        if not math.isfinite(losses[-1]):
            break
    return looks.outcome(run.rate, **counts)


def trial_lengths(steps: int) -> list[int]:
    """Return the steps of a trial in each stage."""
    for stages in range(_STAGES, 0, -1):
        first = steps // ((_TRIALS + _SHARE) * (2**stages - 1))
        if first >= _LEAST_TRIAL or stages == 1:
            return [max(first, 1) * 2**stage for stage in range(stages)]
    raise AssertionError


class _Run:
    def __init__(self, task: Task) -> None:
        self.task = task
        self.gradients = Gradients(task)
        self.base = base_of("adamw", task, self.gradients.network)
        self.rate = self._first_loss = math.nan
        self._random = np.random.default_rng(task.seed)

    def choose_rate(self, length: int) -> None:
        network, base = self.gradients.network, self.base
        kept = copy.deepcopy((network.state_dict(), base.state_dict()))
        tried: list[float] = []
        forecasts: list[float] = []
        for _ in range(_TRIALS):
            tried.append(self._next_to_try(tried, forecasts))
            self.rate = 10 ** tried[-1]
            losses = self.train(length)
            self._first_loss = losses[0] if math.isnan(self._first_loss) else self._first_loss
            forecasts.append(forecast(losses, _SHARE * length, self._first_loss))
            weights, state = copy.deepcopy(kept)
            network.load_state_dict(weights)
            base.load_state_dict(state)
        self.rate = 10 ** tried[int(np.argmin(forecasts))]

    def _next_to_try(self, tried: list[float], forecasts: list[float]) -> float:
        """Return the logarithm of the rate with the least lower confidence bound."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import Matern

        lowest, highest = _LOGARITHMS
        if not tried:
            return self._random.uniform(lowest, highest)
        values = np.array(forecasts)
        is_finite = np.isfinite(values)
        values[~is_finite] = values[is_finite].max() if is_finite.any() else 0.0
        process = GaussianProcessRegressor(Matern(nu=2.5), alpha=1e-6, optimizer=None)
        spread = values.std() or 1.0
        process.fit(np.array(tried)[:, None], (values - values.mean()) / spread)
        candidates = np.linspace(lowest, highest, 401)
        means, deviations = process.predict(candidates[:, None], return_std=True)
        return float(candidates[np.argmin(means - _KAPPA * deviations)])

    def train(self, steps: int, after_step: Callable[[], None] = lambda: None) -> list[float]:
        """Go on at the rate; return the losses, which end with the first that is not finite."""
        network = self.gradients.network
        write_rate(self.base, self.rate, self.task, network)
        losses: list[float] = []
        for _ in range(steps):
            loss = self.gradients.loss(self.task.minibatch(round(self.gradients.cost)))
            losses.append(loss.item())
            if not math.isfinite(losses[-1]):
                break
            self.base.zero_grad()
            loss.backward()
            self.base.step()
            after_step()
        return losses


def forecast(losses: list[float], step: int, highest: float = math.inf) -> float:
    """Return what the loss will be at a step, by the exponential that fits best.

    Of losses that rise above the highest, an exponential does not tell where they go.
    """
    values = np.array(losses)
    if not np.isfinite(values).all():
        return math.inf
    if len(values) < 4 or values.max() > highest:
        return float(values[-math.ceil(len(values) / 4) :].mean())
    steps = np.arange(len(values))
    best = (math.inf, math.inf)
    for constant in np.geomspace(1.0, len(values), 100):
        columns = np.stack([np.exp(-steps / constant), np.ones(len(values))], axis=1)
        (slope, end), *_ = np.linalg.lstsq(columns, values, rcond=None)
        error = float(np.square(columns @ (slope, end) - values).sum())
        best = min(best, (error, slope * math.exp(-step / constant) + end))
    return float(best[1])
