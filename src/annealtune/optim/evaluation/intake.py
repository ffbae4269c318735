"""Takes in the minibatch of a step, whichever way the caller tells it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from annealtune.optim.evaluation import foreign
from annealtune.optim.evaluation.grad_scaler import active_scaler, scaled_closure
from annealtune.optim.evaluation.guards import Buffers
from annealtune.optim.evaluation.minibatch import (
    ClosureMinibatch,
    GivenMinibatch,
    Minibatch,
    RecordedMinibatch,
    UnknownMinibatch,
)
from annealtune.optim.evaluation.random_state import ForwardRecorder, RandomState
from annealtune.optim.evaluation.recorder import Recorder
from annealtune.optim.evaluation.wrappers import Wrappers, unwrapped
from annealtune.optim.parameters import modules_of, parameters_of
from annealtune.optim.ranks import Ranks


class Intake:
    """Turns the arguments of ``step`` into a minibatch whose loss can be computed again.

    Args:
        model: whose forwards are noticed, if known; DDP may be around it.
        ranks: the processes that train it.
        buffers: whether to note the buffers of the model before the forward.
        differentiates: whether only recorded calls count that lead to a backward.

    Attributes:
        recorder: remembers the calls of recorded functions.
        forward: notes where the random numbers stood before the forward.
        wrappers: DDP and FSDP2 around the model, as far as they were seen.
        buffers: those of the model before the forward of this minibatch, as far as is known.

    Raises:
        TypeError: if the model is no module.
    """

    def __init__(
        self,
        owner: str,
        base: Optimizer,
        model: nn.Module | None,
        ranks: Ranks,
        *,
        buffers: bool = False,
        differentiates: bool = True,
    ) -> None:
        if model is not None and not isinstance(model, nn.Module):
            raise TypeError(f"{owner}(model=...) must be a torch.nn.Module, got {model!r}")
        self._owner = owner
        self._base = base
        self._ranks = ranks
        self._notes_buffers = buffers
        self.wrappers = Wrappers(model)
        model = self._model = unwrapped(model)
        self.forward = ForwardRecorder(self.wrappers, buffers=buffers)
        # A recorded call may use parts of the model without the whole.
        begins = None if model is None else functools.partial(self.forward.__call__, model, ())
        self.recorder = Recorder(owner, base, self.wrappers, begins, differentiates=differentiates)
        self.buffers: Buffers | None = None
        self._knows_closures = False  # whether one was looked at: the others are like it
        self._own_gradients: list[tuple[Tensor, int, int]] = []  # made by us for a closure
        self.begin_replays()

    def take(
        self,
        closure: Callable[[], Any] | None,
        loss: Tensor | float | None,
        probe: Callable[[], Any] | None,
        rng_state: Tensor | None,
        *,
        again: bool = True,
    ) -> Minibatch:
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
        self.forward.expected = None
        if distributed.is_available() and distributed.is_initialized():
            self._ranks.begin()
        if loss is not None:
            if again and probe is None:
                raise TypeError(
                    f"{self._owner}.step(loss=...) must be given probe=... too, a function that "
                    "computes the loss on the same minibatch again, for the accept test or the "
                    "arms of a race, got none"
                )
            start = self._start(noted, rng_state)
            if noted is not None:
                self.forward.expect()
            self.recorder.forget()
            after = self.recorder.after_replay
            around = self.forward.comparing
            return GivenMinibatch(self._owner, loss, probe, start, self._base, after, around)
        if closure is not None:
            if not self._knows_closures:
                foreign.refuse_closure(self._owner, closure)
                self._knows_closures = True
            if active_scaler() is not None:
                raise scaled_closure(self._owner)
            if self.recorder.used:
                self.recorder.forget()
            if again and self._notes_buffers:
                self.buffers = Buffers(modules_of(self._model))
            self._drop_own_gradients()
            return ClosureMinibatch(self._owner, closure, self._base, self._note_own_gradients)
        if not again:
            return UnknownMinibatch(self.recorder.take_losses())
        calls = self.recorder.take()
        if not calls:
            raise TypeError(
                f"{self._owner}.step() must be given a closure or loss=..., or follow the backward "
                f"of a recorded function, got {self._what_is_missing()}; wrap the function by "
                "compute_loss = opt.record(fn) and call compute_loss(...).backward() before "
                f"step(), or call step(closure){foreign.line_to_write()}"
            )
        return RecordedMinibatch(calls, self._base, self.recorder.after_replay)

    def take_start(self, rng_state: Tensor | RandomState | None) -> RandomState:
        """Return the random state before this step's forward, and forget it.

        Args:
            rng_state: the state itself, or that of the CPU generator, where the caller knows it;
                otherwise it is what the model's forward noted, or else the present state.
        """
        if distributed.is_available() and distributed.is_initialized():
            self._ranks.begin()
        noted, self.buffers = self.forward.take()
        return rng_state if isinstance(rng_state, RandomState) else self._start(noted, rng_state)

    def start(self) -> RandomState:
        """Return the random state before this step's forward, and go on remembering it."""
        return self._start(self.forward.state, None)

    def _start(self, noted: RandomState | None, rng_state: Tensor | None) -> RandomState:
        start = noted or RandomState.capture()
        if rng_state is None:
            return start
        given: Any = rng_state
        if not isinstance(given, Tensor) or (
            (given.dtype, given.shape) != (start.cpu.dtype, start.cpu.shape)
        ):
            raise ValueError(
                f"{self._owner}.step(rng_state=...) must be what torch.get_rng_state() returned "
                f"before the forward, got {rng_state!r}"
            )
        return start._replace(cpu=rng_state)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Remember nothing meanwhile: the step itself runs the caller's functions."""
        before = self.recorder.paused, self.forward.paused
        try:
            self.recorder.paused = self.forward.paused = True
            yield
        finally:
            self.recorder.paused, self.forward.paused = before

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
        """Hear that gradients are about to be reset: what led to them belongs to no step."""
        self.recorder.forget_done()
        if self._model is not None and self.forward.state is not None:
            self.forward.forget_abandoned(self._model)

    def _note_own_gradients(self) -> None:
        """Hear that the gradients were made by us, for a closure that did not."""
        self._own_gradients = [
            (p, id(p.grad), p.grad._version)
            for p in parameters_of(self._base)
            if p.grad is not None
        ]

    def _drop_own_gradients(self) -> None:
        """Free them before the next forward, unless somebody has touched them since."""
        for p, identity, version in self._own_gradients:
            if p.grad is not None and (id(p.grad), p.grad._version) == (identity, version):
                p.grad = None
        self._own_gradients = []

    def _what_is_missing(self) -> str:
        if not self.recorder.used:
            return "nothing, none of these"
        return (
            "none of these, no call of a recorded function that led to a backward since the last "
            "step (calls under torch.no_grad() do not count)"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "buffers": None, "_own_gradients": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.recorder.remembers:
            self.begin_replays()
