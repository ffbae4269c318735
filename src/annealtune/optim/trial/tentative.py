"""The tentative step of Algorithm 2: made, then kept or undone bit for bit."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch.optim import Optimizer

from annealtune.annealing import Setting
from annealtune.optim.evaluation.random_state import RandomState
from annealtune.optim.options.controls import Controls
from annealtune.optim.options.miniature import make_late_state
from annealtune.optim.part import Part
from annealtune.optim.trial.snapshot import Snapshot
from annealtune.optim.trial.state_outside import StateOutside

_PENDING = (
    "must not come between propose and resolve: a tentative step waits for its verdict, call "
    "resolve(new_loss) first; resolve(math.nan) goes back"
)


@dataclasses.dataclass(frozen=True)
class Trial:
    """What is known of a tentative step before its verdict.

    Attributes:
        setting: what it was made with.
        value: of the accept test at the point it started from.
        start: random state before the forward of this minibatch.
        end: random state after it.
    """

    setting: Setting
    value: float
    start: RandomState
    end: RandomState


class TentativeStep(Part):
    """A step of the base optimizer that can be taken back."""

    def __init__(self, base: Optimizer, controls: Controls) -> None:
        self._base = base
        self._controls = controls
        self.trial: Trial | None = None  # the one that waits for its verdict
        self._is_settled = True  # whether the verdict of the last one has been carried out
        self.renew()

    def renew(self) -> None:
        """Forget what was found out about the base and its groups."""
        self._before = Snapshot(self._base)
        # The kinds of settings, whatever their rate, that leave the gradients alone.
        self._sparing: set[tuple[Any, ...]] = set()
        self._is_checked = False  # whether the base is known to keep nothing elsewhere
        self._controls.note()

    def make(self, trial: Trial) -> None:
        """Step with the setting of a trial."""
        kind = tuple(map(trial.setting.__getitem__, self._controls.options_but_rate))
        self._before.take(gradients=kind not in self._sparing)
        outside = None if self._is_checked else StateOutside(self._base)
        self.trial, self.pending = trial, _PENDING
        self._step(trial.setting)
        if outside is not None:
            outside.refuse_changes(self._controls.owner)
            self._is_checked = True
        # Some bases write into the gradients (SGD with foreach and Nesterov). Whether this one
        # does under such a setting is found out at the first try, which paid for a copy of them.
        if not self._before.gradients_are_untouched():
            self._sparing.discard(kind)
        elif kind not in self._sparing and trial.setting.get("lr") != 0:
            self._sparing.add(kind)  # at a rate of 0 a base may do nothing at all

    def _step(self, setting: Setting) -> None:
        self._controls.turn_base(setting)
        try:
            self._base.step()
        except KeyError:  # an option was switched on whose state the first step did not make
            self._before.restore()
            self._controls.turn_base(setting)
            if not make_late_state(self._base):
                raise
            self._base.step()

    def keep(self) -> None:
        """End the trial where it led to."""
        self.trial, self.pending, self._is_settled = None, "", False  # it cannot be undone now
        self._before.release()
        self._controls.keep()
        self._is_settled = True

    def undo(self) -> None:
        """End the trial where it began."""
        assert self.trial is not None
        self._before.restore()
        self.trial.end.restore()
        self._controls.put_back()
        self.keep()

    def recover(self) -> None:
        """Leave no trace of a trial that was cut off anywhere, nor a verdict half carried out."""
        if self.trial is not None:
            self.undo()
        elif not self._is_settled:
            self.keep()
