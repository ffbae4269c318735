"""The manners of torch.optim.Optimizer for an optimizer that wraps another one."""

from __future__ import annotations

import copy
from typing import Any

from torch.optim import Optimizer

from annealtune.annealing import Strategy
from annealtune.optim.annealing_state import AnnealingState
from annealtune.optim.step_info import StepInfo, Summary

# The key in the first parameter group of a state dict. Groups are the one place that survives
# dtype casts, deep copies and distributed checkpoints unchanged.
STATE_KEY = "annealtune"


class OptimizerWrapper(Optimizer):
    """Groups, state and defaults are the base's own; saving and copying include both.

    The base's state dict carries the wrapper's state in its first group, so that whatever saves an
    optimizer saves all of it.

    Args:
        base: the optimizer that is wrapped.
    """

    # Scratch that a copy or a checkpoint does not need; subclasses list theirs.
    _scratch: tuple[str, ...] = ()

    def __init__(self, base: Optimizer) -> None:
        self.base = base
        super().__setstate__({})  # torch's hooks and its wrapper of step, without groups of our own

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The base's own groups; every step writes the picked setting into them."""
        return self.base.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The base's own state."""
        return self.base.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """The base's own defaults."""
        return self.base.defaults

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of all parameters of the base."""
        self.base.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base; the next step writes its setting into it too."""
        self._refuse_pending("add_param_group")
        self.base.add_param_group(param_group)
        self._reset_scratch()

    def state_dict(self) -> dict[str, Any]:
        """Return the base's state dict with the wrapper's own state in its first group."""
        self._refuse_pending("state_dict")
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        state = self.base.state_dict()
        state["param_groups"][0][STATE_KEY] = self._own_state()
        for after in self._optimizer_state_dict_post_hooks.values():
            state = after(self, state) or state
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load both, or nothing; a state dict of the bare base leaves the wrapper's own state.

        Raises:
            ValueError: if it does not fit the groups or the strategy.
        """
        self._refuse_pending("load_state_dict")
        state_dict = state_dict.copy()  # hooks may write into it
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = before(self, state_dict) or state_dict
        own = next((g[STATE_KEY] for g in state_dict["param_groups"] if STATE_KEY in g), None)
        if own is not None:
            self._check_own_state(own)
        bare = [{k: v for k, v in g.items() if k != STATE_KEY} for g in state_dict["param_groups"]]
        self.base.load_state_dict({**state_dict, "param_groups": bare})
        if own is not None:
            self._load_own_state(own)
        self._reset_scratch()
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def __getstate__(self) -> dict[str, Any]:
        self._refuse_pending("__getstate__")
        return {
            key: value
            for key, value in self.__dict__.items()
            # "step" is there when a scheduler has wrapped it; hooks stay with the original.
            if key not in (*self._scratch, "step") and not key.startswith("_optimizer_")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset_scratch()
        super().__setstate__({})

    def _is_asked_to_initialise(self) -> bool:
        """Tell torch.distributed.checkpoint's idiom: a bare step with zero gradients."""
        gradients = [
            p.grad for group in self.param_groups for p in group["params"] if p.requires_grad
        ]
        return (
            not self.state
            and all(float(group.get("lr", 0)) == 0 for group in self.param_groups)
            and all(g is not None and not g.any() for g in gradients)
        )

    def _own_state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold besides the base's state dict."""
        return {}

    def _check_own_state(self, state: dict[str, Any]) -> None:
        """Raise ValueError if the state belongs to a wrapper of another kind."""

    def _load_own_state(self, state: dict[str, Any]) -> None:
        """Continue where `_own_state` was taken."""

    def _reset_scratch(self) -> None:
        """Make the scratch anew."""

    def _refuse_pending(self, method: str) -> None:
        """Raise if the weights are those of a tentative step."""


class AnnealedWrapper(OptimizerWrapper):
    """A wrapper whose moves a strategy accepts or undoes.

    Args:
        base: the optimizer that is wrapped.
        annealing: strategy, generator and counts of the run.
    """

    def __init__(self, base: Optimizer, annealing: AnnealingState) -> None:
        super().__init__(base)
        self._annealing = annealing
        self.last_step: StepInfo | None = None

    @property
    def temperature(self) -> float:
        """The temperature of the next decision."""
        return self._annealing.strategy.temperature

    @property
    def strategy(self) -> Strategy:
        """The optimizer's own copy of its metaheuristic."""
        return self._annealing.strategy

    def cool(self) -> None:
        """Note the end of an epoch: T = alpha T for schedules that cool per epoch (l. 19)."""
        self._annealing.tick("epoch")

    def summary(self) -> Summary:
        """Return how often each setting was tried, improved the loss and was accepted."""
        return self._annealing.summary()

    def _own_state(self) -> dict[str, Any]:
        return self._annealing.state_dict()

    def _check_own_state(self, state: dict[str, Any]) -> None:
        copy.deepcopy(self._annealing).load_state_dict(state)

    def _load_own_state(self, state: dict[str, Any]) -> None:
        self._annealing.load_state_dict(state)
        self.last_step = None
