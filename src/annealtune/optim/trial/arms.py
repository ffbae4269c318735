"""The copies of a run that race against each other; one of them lives in the model."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer

from annealtune.optim.parameters import parameters_of
from annealtune.optim.trial.run_state import RunState


class Arms:
    """As many runs as there are arms, all starting where the model is now.

    The model holds one arm at a time, the others lie beside it: at most one copy of weights,
    optimizer state and buffers for each arm, the place to start again from included.

    Args:
        arms: their numbers; where there are none, the model stays where it is.
        on_host: whether those that are not in the model lie in host memory.

    Attributes:
        in_model: the one that the model holds, -1 if there is none.
    """

    def __init__(
        self, base: Optimizer, model: nn.Module | None, arms: list[int], *, on_host: bool
    ) -> None:
        self._base = base
        self._model = model
        self._on_host = on_host
        self.in_model = arms[0] if arms else -1
        self._origin = self._copy()
        self._idle = {arm: self._copy() for arm in arms[1:]}
        self._sealed: list[tuple[int, int]] | None = None

    def switch_to(self, arm: int) -> None:
        """Bring an arm into the model."""
        if arm == self.in_model:
            return
        state = self._idle[arm]
        idle = {**self._idle, self.in_model: state}
        del idle[arm]

        def note() -> None:
            self._idle, self.in_model = idle, arm

        state.exchange(note)

    def drop(self, arm: int, successor: int | None) -> None:
        """Forget an arm; if it is in the model, its successor takes its place, if there is one."""
        if arm == self.in_model and successor is not None:
            self.switch_to(successor)
        self._idle.pop(arm, None)

    def start_again(self) -> None:
        """Give the model the state that all arms started from."""
        self._origin.put()

    def include(self, group: dict[str, Any]) -> None:
        """Take in a group that was added to the base."""
        for state in (self._origin, *self._idle.values()):
            state.include(group["params"], group)
        self.unseal()

    def seal(self) -> None:
        """Note the weights as ours."""
        self._sealed = self._marks()

    def unseal(self) -> None:
        """Let the weights be written until they are sealed again."""
        self._sealed = None

    def refuse_others(self) -> None:
        """Refuse whoever else has written into the weights since, as far as can be seen."""
        if self._sealed is not None and self._sealed != self._marks():
            raise RuntimeError(
                "SelfTuner: weights must not be written by somebody else while a race is on, for "
                f"only one of {len(self._idle) + 1} arms would have them. Load weights before the "
                "first step, or after the race: opt.is_racing tells"
            )

    def _marks(self) -> list[tuple[int, int]]:
        weights = parameters_of(self._base)
        return [(p._version, getattr(p, "_local_tensor", p).data_ptr()) for p in weights]

    def _copy(self) -> RunState:
        return RunState(self._base, self._model, on_host=self._on_host)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sealed": None}  # the weights of a copy lie somewhere else

    def state_dict(self) -> dict[str, Any]:
        """Return the arms that are not in the model, and the place to start again from."""
        return {
            "in_model": self.in_model,
            "origin": self._origin.state_dict(),
            "idle": {arm: state.state_dict() for arm, state in self._idle.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken; the model's own state is loaded apart.

        Raises:
            ValueError: if it is the state of another model.
        """
        self.in_model = state["in_model"]
        self._origin.load_state_dict(state["origin"])
        self._idle = {}
        for arm, saved in state["idle"].items():
            self._idle[arm] = self._copy()
            self._idle[arm].load_state_dict(saved)
        self._sealed = None
