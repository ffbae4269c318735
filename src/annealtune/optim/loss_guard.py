"""Brings a run back that has broken: to the averaged weights, with a quarter of the rate."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from annealtune.errors import NonFiniteLossError
from annealtune.optim.averaging import WeightAverage
from annealtune.optim.evaluation.guards import is_out_of_reach
from annealtune.optim.history import History
from annealtune.optim.loss_watch import LossWatch
from annealtune.optim.parameters import weights_are_finite
from annealtune.optim.part import Part, way_back_of

# What is left of the rate, and how often it may be cut.
_CUT, _MOST_CUTS = 0.25, 20
_NOT_RESET = ("params", "param_names", "lr", "lr_scale", "name")
# After this many sound looks in a row the data is blamed for a loss that is not finite, once.
_TRUSTED = 8


class LossGuard(Part):
    """Looks at the loss now and then and keeps the weights to go back to: their average.

    Weights enter the average only when the loss at them is known to be sound. So it costs no copy
    of its own to be safe, and no step waits for the device but one in eight. A loss that is not
    finite after many sound ones is put down to the data of a minibatch: the rate is not cut then.

    Args:
        model: whose BatchNorm statistics are averaged too, if known.
        history: is told what happens.
        average: whether the weights are averaged, or the last sound ones kept as they are.
        sign: -1 where the loss is maximized.
        measures: whether the loss measures progress; else only one that is not finite is broken.

    Attributes:
        average: the average.
    """

    def __init__(
        self,
        base: Optimizer,
        model: nn.Module | None,
        history: History,
        *,
        average: bool,
        sign: float = 1.0,
        measures: bool = True,
    ) -> None:
        self._base = base
        self._history = history
        self._watch = LossWatch(sign, measures=measures)
        self._model = model
        self._options = [_options(group) for group in base.param_groups]  # as they were given
        self._buffers: dict[str, Tensor] = {}  # at the last sound look
        self._cuts = 0
        self._sound = 0  # looks in a row
        self.average = WeightAverage("SelfTuner", base, model, latest=not average)

    @property
    def pending(self) -> str:  # type: ignore[override]
        """Why the optimizer must not be used now, if the average is in the model."""
        return self.average.pending

    @property
    def share(self) -> float:
        """The part of the rate that is left."""
        return _CUT**self._cuts

    def begin(self) -> None:
        """Take in the weights that the run goes on from.

        Raises:
            NonFiniteLossError: if they are none to go back to.
        """
        if not weights_are_finite(self._base):
            raise NonFiniteLossError(
                "SelfTuner.step: the weights must be finite, got NaN or infinity in at least one "
                "of them; look at how they are initialised or loaded"
            )
        self.keep()

    def keep(self) -> bool:
        """Take in the present weights and buffers as sound ones; tell what `average.add` tells."""
        was_healed = self.average.add()
        self._buffers = {name: buffer.clone() for name, buffer in self._live_buffers()}
        return was_healed

    def _live_buffers(self) -> list[tuple[str, Tensor]]:
        named = () if self._model is None else self._model.named_buffers()
        return [(name, buffer) for name, buffer in named if not is_out_of_reach(buffer)]

    def is_sound(self, losses: list[Tensor], step: int, rate: float) -> bool:
        """Take in the losses of one step; tell whether it may be made.

        A run that has broken is put back to its safe weights, with no optimizer state.

        Args:
            losses: at the present weights; may be empty.
            step: number of the step.
            rate: of the step.

        Raises:
            NonFiniteLossError: if that was done too often.
        """
        self._watch.see(losses)
        if not self._watch.is_due:
            return True
        look = self._watch.look()
        if look is None:
            self._history.say(
                step,
                "no loss is known, so nobody notices a run that breaks: wrap the function that "
                "computes it by opt.record(fn), or give step(loss=loss)",
                once="blind",
            )
        else:
            self._history.add(step, rate, look.loss)
            if look.is_broken and self._may_cut(look.loss, step):
                self._go_back(look.loss, step, rate)
                return False
            if not look.is_sound:
                return True  # perhaps chance: these weights are just not taken for safe
        if not weights_are_finite(self._base) and self._may_cut(math.nan, step):
            self._go_back(math.nan, step, rate)  # the loss does not show it, or is not known
            return False
        self._sound += 1
        if self.keep():
            self._history.say(step, "the running statistics of BatchNorm broke: they begin anew")
        return True

    def end(self, step: int, rate: float) -> None:
        """Leave no broken weights behind at the last step of a plan: nobody looks after it."""
        if not weights_are_finite(self._base):
            self._go_back(math.nan, step, rate)
        self.average.heal()

    def _may_cut(self, loss: float, step: int) -> bool:
        """Tell whether the rate may be cut once more; a loss that is finite can be lived with."""
        if self._cuts < _MOST_CUTS:
            return True
        if math.isfinite(loss):
            return False
        raise NonFiniteLossError(
            f"SelfTuner.step: the loss must be finite, got {loss} at step {step} after the rate "
            f"was cut {_MOST_CUTS} times; look at the data and the loss"
        )

    def _go_back(self, loss: float, step: int, rate: float) -> None:
        cut = 1.0 if self._sound >= _TRUSTED and not math.isfinite(loss) else _CUT
        self._cuts += cut < 1
        self._sound = 0
        self.average.put_all(self._buffers)
        self._base.state.clear()
        for group, options in zip(self._base.param_groups, self._options, strict=False):
            group.update(copy.deepcopy(options))  # some bases count their steps there
        self._watch.start_again()
        self._history.say(
            step,
            f"the loss broke ({loss:.4g}): back to the last safe weights, with a rate of "
            f"{rate * cut:.3g}",
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the average and what was seen of the loss."""
        guard = {
            "watch": self._watch.state_dict(),
            "cuts": self._cuts,
            "sound": self._sound,
            **self.average.state_dict(),
            "buffers": {name: buffer.clone() for name, buffer in self._buffers.items()},
        }
        return {"guard": guard}

    def check(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of another model."""
        self.average.check(state["guard"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        state = state["guard"]
        self._watch.load_state_dict(state["watch"])
        self._cuts, self._sound = state["cuts"], state["sound"]
        self.average.load_state_dict(state)
        self._buffers = dict(state["buffers"])

    def way_back(self) -> Callable[[], None]:
        """Return a function that makes it what it is now, watch and average too."""
        return way_back_of(self, self._watch, self.average)


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a group holds besides weights and rate."""
    return {key: copy.deepcopy(value) for key, value in group.items() if key not in _NOT_RESET}
