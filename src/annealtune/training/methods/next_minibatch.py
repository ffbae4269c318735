"""Moves that are judged on the minibatch after the one that their gradient comes from."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from annealtune.optim import EmbeddedTuner, StepInfo
from annealtune.optim.evaluation.guards import Buffers, weights_kept
from annealtune.optim.evaluation.random_state import RandomState

from .annealed import Tuned
from .counted_minibatch import CountedMinibatch
from .criterion import Criterion
from .loop_options import LoopOptions


class NextMinibatch(Tuned):
    """A step made along the gradient of one minibatch and judged on the next.

    The forward that judges an accepted move is the one whose gradient the next move is made with:
    such a step costs two forwards and a backward, a rejected one a forward more. The first step of
    a run makes no move: it only leaves a gradient.
    """

    def __init__(
        self,
        optimizer: EmbeddedTuner,
        criterion: Criterion,
        loop: LoopOptions,
        model: nn.Module,
    ) -> None:
        super().__init__(optimizer, criterion, loop)
        self._model = model
        self._has_gradient = False

    def prepare(self) -> None:
        """Pick the next setting, unless the next step makes no move."""
        if self._has_gradient:
            super().prepare()

    def step(self, minibatch: CountedMinibatch) -> StepInfo | None:
        """Make a move with the gradient that the last step left, and leave one for the next."""
        if not self._has_gradient:
            self._leave_gradient(minibatch.loss())
            return None
        self._clip()
        if self._criterion.is_function:
            return self._told(self._judge_by_function(minibatch))
        return self._told(self._judge_by_forward(minibatch))

    def state_dict(self) -> dict[str, Any]:
        """Return the states of optimizer and gradient."""
        gradients = [p.grad for p in self._model.parameters()] if self._has_gradient else None
        return {**super().state_dict(), "gradients": gradients}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        super().load_state_dict(state)
        self._has_gradient = state["gradients"] is not None
        if self._has_gradient:
            for p, gradient in zip(self._model.parameters(), state["gradients"], strict=True):
                p.grad = None if gradient is None else gradient.to(p.device)

    def _judge_by_forward(self, minibatch: CountedMinibatch) -> StepInfo:
        start = RandomState.capture()
        with self._optimizer.probing():
            start.restore()  # this minibatch begins here, not where the last forward began
            value = self._criterion.value(*minibatch.parts())
        self._optimizer.propose(value, rng_state=start)
        buffers = Buffers(list(self._model.modules()), [])
        loss, outputs, targets = minibatch.parts()
        info: StepInfo = self._optimizer.resolve(self._criterion.value(loss, outputs, targets))
        if not info.accepted:
            buffers.put_back()  # torch's random numbers are, by the tuner
            del loss, outputs  # frees the graph before there is another one
            loss = minibatch.loss()
        self._leave_gradient(loss)
        return info

    def _judge_by_function(self, minibatch: CountedMinibatch) -> StepInfo:
        start, objective = RandomState.capture(), self._criterion.objective(minibatch)
        weights = list(self._model.parameters())
        with weights_kept(weights), self._optimizer.probing():
            start.restore()
            value = objective()
        self._optimizer.propose(value, rng_state=start)
        with weights_kept(weights), self._optimizer.probing():
            new_value = objective()
        # Broken weights show in a loss; the user's function might not tell.
        is_whole = all(bool(p.isfinite().all()) for p in weights)
        info: StepInfo = self._optimizer.resolve(new_value if is_whole else math.nan)
        self._leave_gradient(minibatch.loss())
        return info

    def _leave_gradient(self, loss: Tensor) -> None:
        self._optimizer.zero_grad()
        loss.backward()
        self._has_gradient = True
