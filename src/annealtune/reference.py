"""Algorithms 2 and 3 to be read: plain torch, deep copies, nothing clever.

`EmbeddedTuner` and `SelfTuner` do the same without copying nets, and are tested to agree with this
file bit for bit: every loss, decision, weight and buffer (tests/test_reference.py). Left out here
are what a run on one CPU does not need and what happens to runs that go wrong.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

# Computes the loss of a net on a minibatch, and the loss (or error) of a net on the validation set.
LossOf = Callable[[nn.Module, Any, Any], Tensor]
ScoreOf = Callable[[nn.Module], float]


@dataclasses.dataclass
class Move:
    """One move of Algorithm 2: what was tried and what became of it."""

    setting: Mapping[str, Any]
    loss: float
    new_loss: float
    accepted: bool


@dataclasses.dataclass
class Output:
    """What Algorithm 2 returns: the best net on the validation set, the last one, every move."""

    best: nn.Module
    last: nn.Module
    moves: list[Move]


def algorithm_2(
    net: nn.Module,
    optimizer: Optimizer,
    loss_of: LossOf,
    minibatches: Sequence[tuple[Any, Any]],
    settings: Sequence[Mapping[str, Any]],
    *,
    epochs: int,
    temperature: float = 1.0,
    cooling: float = 0.8,
    seed: int = 0,
    validation_loss: ScoreOf,
) -> Output:
    """Train by Algorithm 2 of the paper; the marks are its lines.

    The paper's optimizer is plain SGD and its settings are learning rates; here both may be any.

    Args:
        net: the initial net w(0); it is copied.
        optimizer: of the net's parameters; it is copied with it.
        loss_of: L(w, x, y).
        minibatches: the training set, divided into N minibatches.
        settings: H, such as ``[{"lr": 0.9}, {"lr": 0.8}]``.
        epochs: nEpochs.
        temperature: T0, positive.
        cooling: alpha.
        seed: of the random numbers, two a step: the setting, then u.
        validation_loss: of a net in evaluation mode.
    """
    rng, ratios = random.Random(seed), _ratios(optimizer)
    net, optimizer = copy.deepcopy((net, optimizer))
    moves: list[Move] = []
    best, lowest = net, math.inf
    for _ in range(epochs):  #                                                                  l. 3
        for x, y in minibatches:  #                                                           l. 4-5
            start = torch.get_rng_state()
            loss = _with_gradient(net, optimizer, loss_of, x, y)  #                             l. 6
            setting = settings[int(rng.random() * len(settings))]  #                            l. 7
            before = copy.deepcopy((net, optimizer))  # BatchNorm has seen the minibatch once
            _write(optimizer, setting, ratios)
            optimizer.step()  #                                                                 l. 8
            new_loss = _same_look(net, loss_of, x, y, start)  #                                 l. 9
            worsening = new_loss - loss  #                                                     l. 10
            u = rng.random()
            is_finite = math.isfinite(new_loss)
            accepted = is_finite and (worsening <= 0 or u < math.exp(-worsening / temperature))
            if not accepted:  #                                                             l. 11-16
                net, optimizer = before
            moves.append(Move(setting, loss, new_loss, accepted))
        temperature = cooling * temperature  #                                                 l. 19
        value = validation_loss(copy.deepcopy(net).eval())
        if value < lowest:  #                                                                 Output
            best, lowest = copy.deepcopy(net), value
    return Output(best, net, moves)


def _with_gradient(net: nn.Module, optimizer: Optimizer, loss_of: LossOf, x: Any, y: Any) -> float:
    """Compute the loss in training mode and its gradient."""
    optimizer.zero_grad()
    loss = loss_of(net, x, y)
    loss.backward()
    return loss.item()


@torch.no_grad()
def _same_look(net: nn.Module, loss_of: LossOf, x: Any, y: Any, start: Tensor) -> float:
    """Compute the loss with the random numbers (dropout) of before; leave no trace of it."""
    after = torch.get_rng_state()
    torch.set_rng_state(start)
    loss = loss_of(copy.deepcopy(net), x, y).item()
    torch.set_rng_state(after)
    return loss


def _ratios(optimizer: Optimizer) -> list[float]:
    """Return the learning rate of each group in units of the largest."""
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    return [rate / max(rates) for rate in rates]


def _write(optimizer: Optimizer, setting: Mapping[str, Any], ratios: Sequence[float]) -> None:
    """Give every group a setting; the ratios between the learning rates stay."""
    for group, ratio in zip(optimizer.param_groups, ratios, strict=True):
        group.update(setting)
        if "lr" in setting:
            group["lr"] = setting["lr"] * ratio


# Algorithm 3. Rates of arms are half a decade apart; a race looks at the second half of its losses.
HALF_DECADE = 10.0**0.5
GRACE, LEAST_WINDOW = 10, 4
ADAMS = (
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.SparseAdam,
)


@dataclasses.dataclass(eq=False)
class Arm:
    """A copy of the run with its own learning rate, and its losses so far."""

    rate: float
    net: nn.Module
    optimizer: Optimizer
    losses: list[float] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Finished:
    """A race that is over: its arms, those that were not dropped, the winner, what it cost."""

    arms: list[Arm]
    live: list[Arm]
    winner: Arm
    extra_steps: int


class Algorithm3:
    """Train with a learning rate that races find; the marks are the lines in docs/method.md.

    Args:
        net: the initial net; it is copied.
        optimizer: of the net's parameters; it is copied with it.
        loss_of: the loss of a net on a minibatch.
        total_steps: the length of the run, at least 134, so that there is room for a race.
        centre: the rate in the middle of the first race; 3e-3 is that of torch's Adams.

    Attributes:
        net: as it is trained now; in a race that of the arm which leads.
        best: the output: the best net on the validation set, averaged or last.
        races: those that are over.
    """

    def __init__(
        self,
        net: nn.Module,
        optimizer: Optimizer,
        loss_of: LossOf,
        *,
        total_steps: int,
        centre: float = 3e-3,
    ) -> None:
        self.loss_of, self.total_steps, self.centre = loss_of, total_steps, centre
        self.first = copy.deepcopy((net, optimizer))  # where every arm starts, and the run again
        self.ratios = _ratios(optimizer)
        self.net, self.optimizer = copy.deepcopy(self.first)
        self.races: list[Finished] = []
        self.steps = 0
        self.rate: float | None = None  # until the races have found one
        self.mean: list[Tensor] = []  # the average of weights and BatchNorm's statistics
        self.averaged = 0
        self.best, self.lowest = self.net, math.inf
        lowest, highest = (-1, 2) if isinstance(optimizer, ADAMS) else (-2, 1)
        extra, *_ = self._allowance()
        if extra < 3 * 8:  # every arm must be able to make eight steps
            highest -= 1
        self._start_race([centre * HALF_DECADE**n for n in range(lowest, highest + 1)])  #   l. 1-2

    def step(self, x: Any, y: Any) -> float:
        """Make one step on one minibatch, with every live arm in a race; return the loss."""
        loss = self._race_on(x, y) if self.rate is None else self._plain_step(x, y)
        self.steps += 1
        return loss

    def _start_race(self, rates: Sequence[float]) -> None:
        self.arms = [Arm(rate, *copy.deepcopy(self.first)) for rate in rates]
        self.live = list(self.arms)
        self.minibatches = self.extra_steps = 0

    def _race_on(self, x: Any, y: Any) -> float:
        """Let every live arm make its own step on the same minibatch, with the same dropout."""
        start, leader, found = torch.get_rng_state(), self.leader, {}
        for arm in self.live:  #                                                             l. 3-4
            torch.set_rng_state(start)
            found[arm.rate] = _with_gradient(arm.net, arm.optimizer, self.loss_of, x, y)
            if math.isfinite(found[arm.rate]):
                _write(arm.optimizer, {"lr": arm.rate}, self.ratios)
                arm.optimizer.step()
                arm.losses.append(found[arm.rate])
        loss = found[leader.rate]
        self.minibatches += 1
        self.extra_steps += len(self.live) - 1
        self.live = [arm for arm in self.live if math.isfinite(found[arm.rate])]  #             l. 5
        if self.minibatches >= GRACE:  #                                                        l. 6
            leader = self.leader
            self.live = [a for a in self.live if a is leader or not self._is_lost(a, leader)]
        self.net = self.leader.net
        if self._is_over():
            self._finish_race()
        return loss

    def _is_over(self) -> bool:  #                                                              l. 7
        """Tell whether one arm is left, or what the race may cost is spent."""
        extra, patient, minibatches = self._allowance()
        if len(self.live) == 1:
            return self.minibatches >= LEAST_WINDOW
        # On a plateau it is too early to judge.
        allowed = patient if self._trend(self.leader) == 0 else extra
        is_spent = self.extra_steps + len(self.live) - 1 > allowed
        return is_spent or self.minibatches >= minibatches

    def _finish_race(self) -> None:
        """Choose the rate and start again with it, or race on below."""
        present = self.races[-1].winner.rate if self.races else self.centre
        incumbent = min(self.arms, key=lambda arm: abs(math.log(arm.rate / present)))
        winner = min(self.live, key=lambda arm: (self._score(arm), arm is not incumbent))  #    l. 8
        if isinstance(self.optimizer, ADAMS) and winner.rate < incumbent.rate:
            is_sound = incumbent in self.live and self._trend(incumbent) <= 0
            if is_sound and not self._is_clear(incumbent, winner):
                winner = incumbent
        is_lowest = winner is min(self.arms, key=lambda arm: arm.rate)
        self.races.append(Finished(self.arms, self.live, winner, self.extra_steps))
        has_room = len(self.races) == 1 and self._allowance()[0] >= 2 * 8
        does_harm = is_lowest and self._trend(winner) > 0
        if does_harm and has_room:  #                                                           l. 9
            self._start_race([winner.rate * HALF_DECADE**n for n in range(-2, 1)])
            return
        self.rate, self.began = winner.rate, self.steps + 1
        self.net, self.optimizer = copy.deepcopy(self.first)  #                                l. 10
        self._average(1.0)

    def _plain_step(self, x: Any, y: Any) -> float:  #                                         l. 11
        """Make one step of the optimizer: the rate is warmed up, held, decayed to zero."""
        assert self.rate is not None
        loss = _with_gradient(self.net, self.optimizer, self.loss_of, x, y)
        since, warm_up = self.steps + 1 - self.began, round(0.05 * self.total_steps)
        left = min(1.0, (self.total_steps - self.steps) / (0.25 * self.total_steps))
        if since % 8 == 0:
            self._average(left)
        _write(self.optimizer, {"lr": self.rate * (min(1.0, since / warm_up) * left)}, self.ratios)
        self.optimizer.step()
        if self.steps + 1 == self.total_steps:
            self._average(0.0)
        return loss

    @torch.no_grad()
    def _average(self, left: float) -> None:
        """Take the weights into a mean over about the last tenth of the run; less as it decays."""
        self.averaged += 1
        share = 10 / (self.averaged + 9)
        share = 1.0 if share >= left else share / left
        if not self.mean:
            self.mean = [tensor.clone() for tensor in _averaged_of(self.net)]
        for mean, tensor in zip(self.mean, _averaged_of(self.net), strict=True):
            mean.lerp_(tensor, share)

    @torch.no_grad()
    def look(self, validation_loss: ScoreOf) -> None:  #                                       l. 12
        """Look at the validation set with the averaged weights and with the last; keep the best."""
        average = copy.deepcopy(self.net)
        if self.mean:
            for tensor, mean in zip(_averaged_of(average), self.mean, strict=True):
                tensor.copy_(mean)
        for net in (average, self.net):
            value = validation_loss(copy.deepcopy(net).eval())
            if value < self.lowest:
                self.best, self.lowest = copy.deepcopy(net), value

    @property
    def leader(self) -> Arm:
        """The live arm with the lowest score."""
        return min(self.live, key=self._score)

    def _score(self, arm: Arm) -> float:
        """Return the mean loss of an arm over the second half of the race."""
        losses = self._window(arm)
        return math.fsum(losses) / len(losses) if losses else math.inf

    def _window(self, arm: Arm) -> list[float]:
        return arm.losses[-max(LEAST_WINDOW, self.minibatches // 2) :]

    def _is_lost(self, arm: Arm, other: Arm) -> bool:
        """Tell whether an arm is clearly worse than another, and does not catch up."""
        last = arm.losses[-1] - other.losses[-1]
        return self._is_clear(arm, other) and last >= 2 / 3 * self._difference(arm, other)[0]

    def _is_clear(self, arm: Arm, other: Arm) -> bool:
        """Tell whether an arm is worse than another by 4 standard errors."""
        mean, error = self._difference(arm, other)
        return mean > 0 and mean > 4 * error

    def _difference(self, arm: Arm, other: Arm) -> tuple[float, float]:
        """Return the mean of the paired differences of two arms, and its standard error."""
        pairs = zip(self._window(arm), self._window(other), strict=True)
        differences = [loss - its_loss for loss, its_loss in pairs]
        bound = 3 * statistics.median(map(abs, differences))  # one explosion does not decide
        clipped = [max(-bound, min(bound, difference)) for difference in differences]
        mean = math.fsum(clipped) / len(clipped)
        return mean, statistics.stdev(clipped) / math.sqrt(len(clipped))

    def _trend(self, arm: Arm) -> int:
        """Return 1 if the losses of an arm lie two deviations above the first, -1 if below."""
        first, last = arm.losses[0], arm.losses[1:][-max(LEAST_WINDOW, self.minibatches // 2) :]
        if len(last) < LEAST_WINDOW:
            return 0
        error = 2 * statistics.stdev(last) * math.sqrt(1 + 1 / len(last))
        rise = statistics.fmean(last) - first
        return (rise > error) - (rise < -error)

    def _allowance(self) -> tuple[int, int, int]:
        """Return the extra steps a race may make, those on a plateau, and its minibatches."""
        length, spent = self.total_steps, sum(race.extra_steps for race in self.races)
        extra = max(min(0.12 * length, 32), min(0.04 * length, 100))
        extra = math.floor(extra / (2 if self.races else 1))
        left = math.floor(max(min(0.12 * length, 240), 0.06 * length) - spent)
        return min(extra, left), min(2 * extra, left), min(40, length // 4)


def _averaged_of(net: nn.Module) -> list[Tensor]:
    """Return what is averaged: the running statistics of BatchNorm, then the weights."""
    norms = [m for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    statistics = [t for norm in norms for t in (norm.running_mean, norm.running_var)]
    return [*(t for t in statistics if t is not None), *net.parameters()]
