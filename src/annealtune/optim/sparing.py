"""Steps that are kept unmeasured until the next loss, and the average that smooths them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from annealtune.annealing import Predicted, Setting
from annealtune.optim.averaging import WeightAverage
from annealtune.optim.held import Held
from annealtune.optim.probe import Probe
from annealtune.optim.step_info import ProbeCount, StepInfo, Summary
from annealtune.optim.surrogate import Surrogate
from annealtune.optim.tentative import TentativeStep
from annealtune.optim.wrapper import AnnealedWrapper


class SparingWrapper(AnnealedWrapper):
    """A wrapper that need not measure every step.

    A subclass sets the attributes; what they hold is saved and loaded here.
    """

    _scratch = ("_tentative", "_held")
    _tentative: TentativeStep
    _probe: Probe
    _surrogate: Surrogate
    _average: WeightAverage | None
    _held: Held | None  # the step before this one, if it was kept unmeasured

    def averaged(self, loader: Iterable[Any] | None = None) -> AbstractContextManager[None]:
        """Give the model the average of its last weights for as long as the context lasts.

        Args:
            loader: minibatches, or tuples that begin with them, to compute the statistics of
                BatchNorm anew; without one the averages of these statistics are taken.

        Raises:
            RuntimeError: if no average is kept.
            TypeError: if there is a loader but no model.
        """
        owner = type(self).__name__
        self._refuse_pending("averaged")
        if self._average is None:
            raise RuntimeError(
                f"{owner}.averaged() needs an average of the weights, which by default is kept "
                "only where no neighborhood, temperature, strategy or preset is given: write "
                f"{owner}(..., average=True)"
            )
        return self._average.swapped_in(loader)

    @property
    def averages(self) -> bool:
        """Whether an average of the weights is kept, for `averaged`."""
        return self._average is not None

    @property
    def probes(self) -> ProbeCount:
        """How many steps were measured so far, and whether the others were foretold rightly."""
        return dataclasses.replace(self._surrogate.count)

    def summary(self) -> Summary:
        """Return how often each setting was tried and accepted, and how many were measured."""
        return self._annealing.tally.summary(self.probes)

    def _foretell(self, setting: Setting, value: float) -> Predicted | None:
        """Return the value that the step leads to, where it need not be measured."""
        annealing = self._annealing
        return self._surrogate.foretell(
            annealing.strategy, setting, value, annealing.rng, self._tentative.slope
        )

    def _learn(self, info: StepInfo) -> None:
        """Take in a step after its verdict; one that was kept unmeasured can still be undone."""
        unsure = info.accepted and not info.probed
        self._held = Held(info, self._probe.buffers()) if unsure else None
        self._surrogate.learn(info)

    def _rolls_back(self, value: float, again: Callable[[], float]) -> bool:
        """Undo the step before this one, if it was kept unmeasured and this loss shows it broke.

        Args:
            value: of the accept test on this minibatch.
            again: measures it at the weights as they are then.

        Raises:
            NonFiniteLossError: if the minibatch has no finite loss without that step either.
        """
        held, self._held = self._held, None
        if held is None or not self._surrogate.is_broken(value):
            return False
        self._tentative.take_back()
        held.buffers.put_back()
        if not math.isfinite(value) and not math.isfinite(again()):
            raise self._annealing.non_finite(value)
        self.last_step = self._annealing.retract(held.info, value)
        self._surrogate.note_rollback()
        return True

    def _refuse_pending(self, method: str) -> None:
        if self._average is not None and self._average.is_swapped_in:
            raise RuntimeError(
                f"{type(self).__name__}.{method}() must not be called within averaged(): the "
                "weights are not those that are trained"
            )
        super()._refuse_pending(method)

    def __getstate__(self) -> dict[str, Any]:
        self._held = None  # as in `_own_state`
        return super().__getstate__()

    def _own_state(self) -> dict[str, Any]:
        # A loaded run could not undo the last step, so a run that was saved must not either.
        self._held = None
        return {
            **super()._own_state(),
            "surrogate": self._surrogate.state_dict(),
            "average": None if self._average is None else self._average.state_dict(),
        }

    def _check_own_state(self, state: dict[str, Any]) -> None:
        super()._check_own_state(state)
        if self._average is not None and state.get("average") is not None:
            self._average.check(state["average"])

    def _load_own_state(self, state: dict[str, Any]) -> None:
        super()._load_own_state(state)
        if state.get("surrogate") is not None:  # one of an older version has none
            self._surrogate.load_state_dict(state["surrogate"])
        if self._average is not None and state.get("average") is not None:
            self._average.load_state_dict(state["average"])
