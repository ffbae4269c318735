"""Brings a run back whose loss or weights are no longer finite: to the averaged weights.

A loss that rises but stays finite is left alone: it may rise for a good reason, such as a changed
task or growing returns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from annealtune.annealing.race import mean_of
from annealtune.errors import NonFiniteLossError
from annealtune.optim.average import WeightAverage
from annealtune.optim.context import Context, Part
from annealtune.optim.history import History
from annealtune.optim.run_state import Surroundings, write

EVERY = 8  # steps from one look at the loss to the next
_CUT = 0.25  # what is left of the rate after a cut
_MOST_CUTS = 2
_MOST_RETURNS = 20  # in all: where the data of a minibatch is to blame, nothing is cut
_TRUSTED = 8  # sound looks in a row, after which the data is blamed, once


class LossGuard(Part):
    """Looks at the loss now and then and keeps the weights to go back to: their average.

    Weights enter the average only when the loss at them is known to be finite. So it costs no copy
    of its own to be safe, and no step waits for the device but one in eight. A run that breaks goes
    back at a quarter of the rate, at most twice; after many sound looks the data of a minibatch is
    to blame, and the rate is not cut.

    Args:
        context: the run.
        history: is told what happens.
        average: whether the weights are averaged, or the last sound ones kept as they are.
        is_on: whether it ever goes back; if not, a loss that is not finite is an error.

    Attributes:
        average: a part of the run for itself.
        cuts: how often the rate was cut.
        steps: since the last look.
    """

    def __init__(self, context: Context, history: History, *, average: bool, is_on: bool) -> None:
        self._context = context
        self._history = history
        self._is_on = is_on
        self._around: Surroundings | None = None  # at the last sound look
        self._unread: list[Tensor] = []  # losses since the last look
        self.steps = 0
        self._sound = 0  # looks in a row
        self._returns = 0
        self.cuts = 0
        self._averages = average
        self.average = WeightAverage(context.owner, context.base, context.model)

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
        """Take in the losses of one step; if it may not be made, the run was put back.

        Args:
            losses: at the present weights; may be empty.
            step: its number.
            rate: of the step.
            left: how much of the decay of the rate is left.

        Raises:
            NonFiniteLossError: if a loss is not finite and the run may not go back any more.
        """
        self._unread += losses
        self.steps += 1
        if self.steps < EVERY:
            return True
        if not (self._losses_are_finite(step, rate) and self._context.weights_are_finite()):
            self._go_back(step, rate)
            return False
        self._sound += 1
        if self._keep(left):
            self._history.say(step, "the running statistics of BatchNorm broke: they begin anew")
        return True

    def end(self, step: int, rate: float) -> None:
        """Leave no broken weights behind at the last step of a plan: nobody looks after it."""
        if self._context.weights_are_finite():
            self.average.add(0.0)  # the rate has decayed: these are the weights to keep
        else:
            self._go_back(step, rate)
        self.average.heal()

    def _losses_are_finite(self, step: int, rate: float) -> bool:
        """Read the losses since the last look and tell the history; True if none is known."""
        unread, self._unread, self.steps = self._unread, [], 0
        if not unread:
            self._history.say(
                step,
                "no loss is known, so nobody notices a run that diverges: wrap the function that "
                "computes it by opt.record(fn)",
                once="blind",
            )
            return True
        # Those of a checkpoint may lie elsewhere; half precision is read in single.
        device = unread[-1].device
        wide = any(loss.dtype == torch.float64 for loss in unread)
        kind = torch.float64 if wide else torch.float32
        losses = torch.stack([loss.reshape(()).to(device, kind) for loss in unread]).tolist()
        mean = mean_of(losses)
        self._history.add(step, rate, mean)
        return math.isfinite(mean)

    def _go_back(self, step: int, rate: float) -> None:
        """Put the run back to its safe weights, with no optimizer state; raise if it may not be."""
        is_cut = self._sound < _TRUSTED
        is_worn = self._returns >= _MOST_RETURNS or (is_cut and self.cuts >= _MOST_CUTS)
        if not self._is_on or is_worn:
            told = "guard=False" if not self._is_on else f"{self._returns} returns to safe weights"
            raise NonFiniteLossError(
                f"SelfTuner.step: loss and weights must be finite, got NaN or infinity at step "
                f"{step} with {told}; look at the data and the loss, or give a smaller around=..."
            )
        self.cuts += is_cut
        self._returns += 1
        self._sound = 0
        self._unread, self.steps = [], 0
        if self._around is not None:
            self._around.put_back()
        write(self.average.pairs(), self._context.model.modules())
        self._context.base.state.clear()
        self._history.say(
            step,
            "the loss broke, or a weight did (NaN or infinity): back to the averaged weights, with "
            f"a rate of {rate * (_CUT if is_cut else 1.0):.3g}. If it breaks again, give a smaller "
            "around=...; guard=False makes it an error",
        )

    def _keep(self, left: float) -> bool:
        """Take in the present weights, and what a forward changes beside them, as sound ones."""
        was_healed = self.average.add(left if self._averages else 0.0)
        self._around = Surroundings.of(self._context)
        return was_healed

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the average; whoever loads it reads the losses."""
        around, model = self._around, self._context.model
        guard = {
            "unread": [loss.clone() for loss in self._unread],
            "counts": [self.steps, self._sound, self._returns, self.cuts],
            "around": None if around is None else around.state_dict(model),
        }
        return {"guard": guard}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        state = state["guard"]
        self._unread = list(state["unread"])
        self.steps, self._sound, self._returns, self.cuts = state["counts"]
        self._around = None
        if state["around"] is not None:
            self._around = Surroundings.of(self._context)
            self._around.load_state_dict(self._context.model, state["around"])
