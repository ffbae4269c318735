"""Brings a run back that has diverged: to the averaged weights, with a quarter of the rate.

A loss that rises is only a suspicion: a task may have changed, returns may grow. So before anything
is done, the same minibatches are computed at the averaged weights too. If the loss is clearly lower
there, the run has diverged; if not, the loss rises for another reason, and nothing is done.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from annealtune.annealing.race import can_be_summed, paired_difference
from annealtune.errors import NonFiniteLossError
from annealtune.optim.average import WeightAverage
from annealtune.optim.context import Context, Part
from annealtune.optim.history import History
from annealtune.optim.run_state import is_out_of_reach

# The loss is read once in this many steps.
EVERY = 8
# Progress is certain when it exceeds this many deviations of a single loss ...
_CERTAIN = 8.0
# ... and lost when this share of it is gone.
_LOST = 0.9
# Before that, a loss this many deviations above the first ones is too high.
_ABOVE_START = 4.0
# The deviation of a normal distribution over its median distance from the median.
_NORMAL = 1.4826
# How much the newest losses count in the deviation.
_SMOOTHING = 0.2
# What is left of the rate after a cut, and how often it may be cut.
_CUT, _MOST_CUTS = 0.25, 2
# How often a run may go back in all: a minibatch whose loss is not finite cuts nothing.
_MOST_RETURNS = 20
_NOT_RESET = ("params", "param_names", "lr", "lr_scale", "name")
# After this many sound looks in a row the data is blamed for a loss that is not finite, once.
_TRUSTED = 8


class Look(NamedTuple):
    """What a reading of the losses has shown: their mean, NaN if one is not finite."""

    loss: float
    is_high: bool  # all that was learned seems to be lost


class LossWatch:
    """Reads the loss now and then, and tells when it is suspiciously high.

    The rule knows neither the unit nor the zero of the loss. With the median of the last eight
    losses, the first such median (start), the lowest one, and the deviation s of single losses, it
    is too high above ``lowest + 0.9 (start - lowest)`` after a progress of more than 8 s, and above
    ``start + 4 s`` before. Medians, also for the deviation, because one loss of a hundred times the
    usual size, as minibatches of one sample have it, means nothing. Losses that are all the same at
    first (zeros, say) are no start.

    Args:
        sign: -1 where the loss is maximized.
        measures: whether the loss measures progress; else it may rise as it likes.

    Attributes:
        steps: since it was read.

    Example:
        >>> watch = LossWatch()
        >>> for loss in (2.0, 2.5, 1.5, 2.0, 2.0, 2.5, 1.5, 2.0):
        ...     watch.see([torch.tensor(loss)])
        >>> watch.look()
        Look(loss=2.0, is_high=False)
    """

    def __init__(self, sign: float = 1.0, *, measures: bool = True) -> None:
        self._sign = sign
        self._measures = measures
        self.start_again()

    def start_again(self) -> None:
        """Forget the losses seen so far."""
        self._unread: list[Tensor] = []
        self.steps = 0
        self._start: float | None = None
        self._lowest = math.inf
        self._deviation = 0.0

    def see(self, losses: list[Tensor]) -> None:
        """Take in the losses of one step, unread."""
        self._unread += losses
        self.steps += 1

    def look(self) -> Look | None:
        """Read the losses and judge them; None if there was none."""
        unread, self._unread, self.steps = self._unread, [], 0
        if not unread:
            return None
        # Those of a checkpoint may lie elsewhere; half precision is read in single.
        device = unread[-1].device
        wide = any(loss.dtype == torch.float64 for loss in unread)
        kind = torch.float64 if wide else torch.float32
        flat = torch.stack([loss.reshape(()).to(device, kind) for loss in unread])
        losses = [self._sign * loss for loss in flat.tolist()]
        if not all(map(can_be_summed, losses)):
            return Look(math.nan, is_high=True)
        is_high = self._is_too_high(statistics.median(losses))
        if not is_high:
            self._learn(losses)
        return Look(self._sign * math.fsum(losses) / len(losses), is_high)

    def _is_too_high(self, median: float) -> bool:
        if self._start is None or not self._measures:
            return False
        progress = self._start - self._lowest
        if progress > _CERTAIN * self._deviation:
            return median > self._lowest + _LOST * progress
        return median > self._start + _ABOVE_START * self._deviation

    def _learn(self, losses: list[float]) -> None:
        median = statistics.median(losses)
        spread = statistics.median(abs(loss - median) for loss in losses)
        deviation = _NORMAL * spread or statistics.pstdev(losses)
        if self._start is not None:
            self._deviation += _SMOOTHING * (deviation - self._deviation)
        elif deviation > 0:
            self._start, self._deviation = median, deviation
        else:
            return
        self._lowest = min(self._lowest, median)

    def state_dict(self) -> dict[str, Any]:
        """Return everything; reading the unread losses is left to whoever loads it."""
        return {
            "unread": [loss.clone() for loss in self._unread],
            "steps": self.steps,
            "start": self._start,
            "lowest": self._lowest,
            "deviation": self._deviation,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._unread = list(state["unread"])
        self.steps = state["steps"]
        self._start = state["start"]
        self._lowest = state["lowest"]
        self._deviation = state["deviation"]


class LossGuard(Part):
    """Looks at the loss now and then and keeps the weights to go back to: their average.

    Weights enter the average only when the loss at them is known to be sound. So it costs no copy
    of its own to be safe, and no step waits for the device but one in eight. When the loss seems
    too high, the minibatches until the next look are computed at the average too; only if the loss
    is clearly lower there does the run go back, at a quarter of the rate, at most twice. A loss
    that is not finite after many sound ones is put down to the data of a minibatch: the run goes
    back, but the rate is not cut.

    Args:
        context: the run.
        history: is told what happens.
        average: whether the weights are averaged, or the last sound ones kept as they are.
        sign: -1 where the loss is maximized.
        measures: whether the loss measures progress; else only one that is not finite is broken.
        is_on: whether it ever goes back; if not, a loss that is not finite is an error.

    Attributes:
        average: the average.
        cuts: how often the rate was cut.
        doubt: losses here and at the average, where the run may have diverged: minibatches are
            computed at the average too, for `weigh`.
    """

    def __init__(
        self,
        context: Context,
        history: History,
        *,
        average: bool,
        sign: float = 1.0,
        measures: bool = True,
        is_on: bool = True,
    ) -> None:
        self._context = context
        self._history = history
        self._watch = LossWatch(sign, measures=measures and is_on)
        self._sign = sign
        self._is_on = is_on
        self._given = [_options(group) for group in context.base.param_groups]  # at the start
        self._options: list[dict[str, Any]] = []  # of the groups, at the last sound look
        self._buffers: dict[str, Tensor] = {}  # at the last sound look
        self.cuts = 0
        self._returns = 0
        self._sound = 0  # looks in a row
        self.doubt: tuple[list[float], list[float]] | None = None
        self.average = WeightAverage(context.owner, context.base, context.model, latest=not average)

    @property
    def pending(self) -> str:  # type: ignore[override]
        """Why the optimizer must not be used now, if the average is in the model."""
        return self.average.pending

    @property
    def share(self) -> float:
        """The part of the rate that is left."""
        return _CUT**self.cuts

    def begin(self) -> None:
        """Take in the weights that the run goes on from.

        Raises:
            NonFiniteLossError: if they are none to go back to.
        """
        if not self._context.weights_are_finite():
            raise NonFiniteLossError(
                "SelfTuner.step: the weights must be finite, got NaN or infinity in at least one "
                "of them; look at how they are initialised or loaded"
            )
        self._keep(1.0)

    def is_sound(self, losses: list[Tensor], step: int, rate: float, left: float) -> bool:
        """Take in the losses of one step; tell whether it may be made.

        A run that has diverged is put back to its safe weights, with no optimizer state.

        Args:
            losses: at the present weights; may be empty.
            step: number of the step.
            rate: of the step.
            left: how much of the decay of the rate is left.

        Raises:
            NonFiniteLossError: if a loss is not finite and the run may not go back any more.
        """
        self._watch.see(losses)
        if self._watch.steps < EVERY:
            return True
        look = self._watch.look()
        if look is None:
            self._history.say(
                step,
                "no loss is known, so nobody notices a run that diverges: wrap the function that "
                "computes it by opt.record(fn)",
                once="blind",
            )
        else:
            self._history.add(step, rate, look.loss)
        if (look is not None and math.isnan(look.loss)) or not self._context.weights_are_finite():
            self._go_back_from_nan(step, rate)
            return False
        if look is not None and look.is_high:
            return not self._has_diverged(look.loss, step, rate)
        self.doubt = None
        self._sound += 1
        if self._keep(left):
            self._history.say(step, "the running statistics of BatchNorm broke: they begin anew")
        return True

    def at_safe_weights(self) -> AbstractContextManager[None]:
        """Give the model the average meanwhile, to compute a minibatch for `weigh`."""
        return self.average.swapped_in()

    def weigh(self, loss: float, at_average: float) -> None:
        """Take in the loss of one minibatch at the present weights and at the average."""
        assert self.doubt is not None
        if can_be_summed(loss) and can_be_summed(at_average):
            self.doubt[0].append(self._sign * loss)
            self.doubt[1].append(self._sign * at_average)

    def end(self, step: int, rate: float) -> None:
        """Leave no broken weights behind at the last step of a plan: nobody looks after it."""
        if not self._context.weights_are_finite():
            self._go_back_from_nan(step, rate)
        elif self.doubt is None:
            self.average.add(0.0)  # the rate has decayed: these are the weights to keep
        self.average.heal()

    def _has_diverged(self, loss: float, step: int, rate: float) -> bool:
        """Tell, after a second look that is too high, whether the weights are to blame."""
        if self.doubt is None:
            self.doubt = ([], [])  # these weights are not taken for safe; wait for the evidence
            return False
        here, there = self.doubt
        self.doubt = None
        if len(here) > 1 and paired_difference(here, there).is_clear and self.cuts < _MOST_CUTS:
            self._go_back(loss, step, rate, is_cut=True)
            return True
        self._watch.start_again()
        reason = "is no lower at the averaged weights" if here else "could not be computed again"
        self._history.note(step, f"the loss rose to {loss:.4g}; it {reason}: nothing was done")
        return False

    def _go_back_from_nan(self, step: int, rate: float) -> None:
        is_cut = self._sound < _TRUSTED
        is_worn = self._returns >= _MOST_RETURNS or (is_cut and self.cuts >= _MOST_CUTS)
        if not self._is_on or is_worn:
            told = "guard=False" if not self._is_on else f"{self._returns} returns to safe weights"
            raise NonFiniteLossError(
                f"SelfTuner.step: loss and weights must be finite, got NaN or infinity at step "
                f"{step} with {told}; look at the data and the loss, or give a smaller around=..."
            )
        self._go_back(math.nan, step, rate, is_cut=is_cut)

    def _go_back(self, loss: float, step: int, rate: float, *, is_cut: bool) -> None:
        self.cuts += is_cut
        self._returns += 1
        self._sound = 0
        self.doubt = None
        self.average.put_all(self._buffers)
        self._context.base.state.clear()
        # Some bases count their steps in the groups: what has moved since the last look starts
        # again. What somebody has set by hand stays.
        triples = zip(self._context.base.param_groups, self._options, self._given, strict=False)
        for group, seen, given in triples:
            for key, value in _options(group).items():
                if key not in seen or not _are_same(value, seen[key]):
                    group.pop(key) if key not in given else group.update({key: given[key]})
        self._watch.start_again()
        self._history.say(
            step,
            f"the loss broke ({loss:.4g}): back to the averaged weights, with a rate of "
            f"{rate * (_CUT if is_cut else 1.0):.3g}. If your loss does not measure progress, give "
            "objective=...; guard=False switches this off",
        )

    def _keep(self, left: float) -> bool:
        """Take in the present weights, buffers and options as sound ones."""
        was_healed = self.average.add(left)
        self._buffers = {name: buffer.clone() for name, buffer in self._live_buffers()}
        self._options = [_options(group) for group in self._context.base.param_groups]
        return was_healed

    def _live_buffers(self) -> list[tuple[str, Tensor]]:
        named = self._context.model.named_buffers()
        return [(name, buffer) for name, buffer in named if not is_out_of_reach(buffer)]

    def state_dict(self) -> dict[str, Any]:
        """Return the average and what was seen of the loss."""
        guard = {
            "watch": self._watch.state_dict(),
            "cuts": self.cuts,
            "returns": self._returns,
            "sound": self._sound,
            "doubt": None if self.doubt is None else [list(losses) for losses in self.doubt],
            "options": copy.deepcopy(self._options),
            **self.average.state_dict(),
            "buffers": {name: buffer.clone() for name, buffer in self._buffers.items()},
        }
        return {"guard": guard}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        state = state["guard"]
        self._watch, self.average = copy.copy(self._watch), copy.copy(self.average)
        self.average.pending = ""  # if it was shown, that is over
        self._watch.load_state_dict(state["watch"])
        self.cuts, self._returns, self._sound = state["cuts"], state["returns"], state["sound"]
        doubt = state["doubt"]
        self.doubt = None if doubt is None else (list(doubt[0]), list(doubt[1]))
        self._options = copy.deepcopy(state["options"])
        self.average.load_state_dict(state)
        self._buffers = dict(state["buffers"])


def _are_same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return bool(one == other)


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a group holds besides weights and rate."""
    return {key: copy.deepcopy(value) for key, value in group.items() if key not in _NOT_RESET}
