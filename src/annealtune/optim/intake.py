"""What a step is given: the minibatch, however the caller tells it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from annealtune.optim import compatibility, guards
from annealtune.optim.gradient import (
    ClosureGradient,
    GivenGradient,
    MinibatchGradient,
    RecordedGradient,
    UnknownGradient,
)
from annealtune.optim.random_state import ForwardRecorder, RandomState, checked_state
from annealtune.optim.recorder import Recorder


class Intake:
    """Turns the arguments of ``step`` into a minibatch whose loss can be computed again.

    Args:
        owner: name of the optimizer's class, for messages.
        base: whose gradients are meant.
        model: whose forwards are noticed, if known.

    Attributes:
        recorder: remembers the calls of recorded functions.
        buffers: those of the model before the forward of this minibatch, as far as is known.
    """

    def __init__(self, owner: str, base: Optimizer, model: nn.Module | None) -> None:
        self._owner = owner
        self._base = base
        self._model = model
        self.recorder = Recorder(owner, base, before_call=self._note_forward)
        self.forward = ForwardRecorder(buffers=True)
        self.buffers: guards.Buffers | None = None
        self._closure: ClosureGradient | None = None  # of the step that is being made
        self._made_by_us = False  # whether the gradients of the last closure were
        self.begin_replays()

    def take(
        self,
        closure: Callable[[], Any] | None,
        loss: Tensor | float | None,
        probe: Callable[[], Any] | None,
        rng_state: Tensor | None,
        *,
        again: bool,
    ) -> MinibatchGradient:
        """Return the minibatch of this step.

        Args:
            closure: as in ``step``.
            loss: as in ``step``; some frameworks always pass a closure of their own beside it.
            probe: as in ``step``.
            rng_state: as in ``step``.
            again: whether its loss will be computed again.

        Raises:
            TypeError: if it cannot be and must.
        """
        noted, self.buffers = self.forward.take()
        if loss is not None:
            if again and probe is None:
                raise TypeError(
                    f"{self._owner}.step(loss=...) must be given probe=... too while a race is on: "
                    "a function that computes the loss on the same minibatch again, got none"
                )
            start = noted or RandomState.capture()
            if rng_state is not None:
                start = start._replace(cpu=checked_state(self._owner, rng_state, start.cpu))
            self.recorder.forget()
            return GivenGradient(self._owner, loss, probe, start, self._base)
        if closure is not None:
            compatibility.refuse_scaled_closure(self._owner)
            self.recorder.forget()
            if again and self._model is not None:
                self.buffers = guards.Buffers(list(self._model.modules()), [])
            if self._made_by_us:
                self._base.zero_grad()  # nobody else's: it need not wait for the next forward
            self._closure = ClosureGradient(self._owner, closure, self._base)
            return self._closure
        if not again:
            return UnknownGradient(self.recorder.take_losses())
        calls = self.recorder.take()
        if not calls:
            raise TypeError(
                f"{self._owner}.step() must be told how the loss is computed, for it is computed "
                f"once more, got {self._what_is_missing()}; wrap the function by compute_loss = "
                "opt.record(fn) and call compute_loss(...).backward() before step(), or call "
                "step(closure)"
            )
        return RecordedGradient(calls, self._base)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Remember nothing meanwhile: the step itself runs the caller's functions."""
        try:
            with self.recorder.paused(), self.forward.pause():
                yield
        finally:  # a closure keeps its minibatch alive
            self._made_by_us = self._closure is not None and self._closure.made_by_us
            self._closure = None

    def begin_replays(self) -> None:
        """From here on losses are computed again."""
        self.recorder.remembers = True
        if self._model is not None:
            self.forward.attach(self._model, self)

    def end_replays(self) -> None:
        """From here on no loss is computed again: keep no minibatch alive, watch no forward."""
        self.recorder.remembers = False
        self.forward.detach()
        self.buffers = None

    def forget_abandoned(self) -> None:
        """Hear that gradients are about to be reset."""
        self.recorder.forget_done()
        if self._model is not None:
            self.forward.forget_abandoned(self._model)

    def _note_forward(self) -> None:
        """Hear that a recorded call begins: it may use parts of the model without the whole."""
        if self._model is not None:
            self.forward(self._model, ())

    def _what_is_missing(self) -> str:
        if not self.recorder.used:
            return "nothing"
        return (
            "no call of a recorded function that led to a backward since the last step (calls "
            "under torch.no_grad() do not count)"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_closure": None, "buffers": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.recorder.remembers:
            self.begin_replays()
