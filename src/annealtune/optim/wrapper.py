"""The manners of torch.optim.Optimizer for an optimizer that wraps another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from torch import nn
from torch.optim import Optimizer

from annealtune.optim import trained_weights
from annealtune.optim.averaging import WeightAverage
from annealtune.optim.evaluation.intake import Intake
from annealtune.optim.evaluation.recorder import Function
from annealtune.optim.parameters import gathered, parameters_of
from annealtune.optim.part import Part, way_back_of
from annealtune.optim.ranks import Ranks
from annealtune.optim.trained_weights import PutAside

# The key in the first parameter group of a state dict. Groups are the one place that survives
# dtype casts, deep copies and distributed checkpoints unchanged.
STATE_KEY = "annealtune"
# The key therein of weights that are trained, where the model held their average.
_TRAINED = "trained_weights"
# The key therein of the class that saved it; not in version 0.2.0.
_CLASS = "class"
# What may be called between eval() and train().
_ALLOWED_IN_EVALUATION = ("state_dict", "load_state_dict", "__getstate__")


class OptimizerWrapper(Optimizer):
    """Groups, state and defaults are the base's own; saving and copying include both.

    The base's state dict carries the states of our parts in its first group, so that whatever saves
    an optimizer saves all of it.
    """

    averages = False  # whether an average of the weights is kept
    model: nn.Module | None = None
    _average: WeightAverage | None = None  # the one that is kept
    _evaluation: PutAside | None = None  # what is trained, while the model holds the average

    def __init__(self, base: Optimizer, intake: Intake, ranks: Ranks, *parts: Part) -> None:
        self.base = base
        self._intake = intake
        self._ranks = ranks
        self._parts = parts
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

    def record(self, function: Function) -> Function:
        """Wrap the function that computes the loss of a minibatch; it does what it did before.

        Calls with gradients on are remembered until the next `step`, so that the same loss can be
        computed again: same arguments, random numbers, autocast and factor on the loss. The
        function returns a scalar, a tuple that begins with one, or a dict with one under
        ``"loss"``; else its call is a TypeError.
        """
        return self._intake.recorder.wrap(function)

    @property
    def records(self) -> bool:
        """Whether a function was ever given to `record`."""
        return self._intake.recorder.used

    def averaged(self, loader: Iterable[Any] | None = None) -> AbstractContextManager[None]:
        """Give the model the average of its weights meanwhile, where one is kept."""
        raise NotImplementedError(f"{type(self).__name__} keeps no average of the weights")

    def eval(self) -> None:
        """Give the model its average until `train` is called; nothing where none is kept.

        Hugging Face's Trainer and Accelerate call both by themselves. A state dict that is taken in
        between holds the weights that are trained, and loading it gives them back to the model.
        Weights that are loaded into the model in between are the trained ones from then on.
        """
        if self._average is not None and self._evaluation is None:
            self._refuse_pending("eval")
            self._evaluation = self._average.swap_in()

    def train(self) -> None:
        """Give the model back the weights that are trained, after `eval`.

        If others were loaded into it since, it keeps those.
        """
        if self._evaluation is not None:
            assert self._average is not None
            self._average.swap_out(self._evaluation)
            self._evaluation = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of all parameters of the base; recorded calls are forgotten."""
        self._intake.forget_abandoned()
        self.base.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base; the next step writes its setting into it too."""
        self._refuse_pending("add_param_group")
        self.base.add_param_group(param_group)
        self._renew_parts()

    def state_dict(self) -> dict[str, Any]:
        """Return the base's state dict with the states of our parts in its first group."""
        self._refuse_pending("state_dict")
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        state = self.base.state_dict()
        own: dict[str, Any] = {_CLASS: self._family}
        for part in self._parts:
            own.update(part.state_dict())
        if self._evaluation is not None and not self._evaluation.is_overwritten():
            own[_TRAINED] = self._evaluation.state_dict()
        state["param_groups"][0][STATE_KEY] = own
        for after in self._optimizer_state_dict_post_hooks.values():
            state = after(self, state) or state
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load both, or nothing; a state dict of the bare base leaves our parts as they are.

        It ends what `eval` began, and the model keeps the weights that it has, or is given those of
        the state dict.

        Raises:
            ValueError: if `state_dict` did not return it, or it does not fit the groups or a part.
        """
        self._refuse_pending("load_state_dict")
        if not isinstance(state_dict, Mapping):
            raise self._no_state(f"a {type(state_dict).__name__}")
        state_dict = state_dict.copy()  # hooks may write into it
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = before(self, state_dict) or state_dict
        try:
            with ExitStack() as undo:
                for part in self._parts:
                    undo.callback(part.way_back())
                undo.callback(way_back_of(self.base))
                self._load(state_dict)
                undo.pop_all()
        except Exception as error:
            if str(error).startswith((type(self).__name__, self._family)):
                raise  # said in our words
            found = f"one that fails by {type(error).__name__}: {error}"
            raise self._no_state(found) from error
        if self._evaluation is not None:
            assert self._average is not None
            self._average.pending = ""
            self._evaluation = None
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def _load(self, state_dict: dict[str, Any]) -> None:
        """Check and load both; what fails in the middle is for the caller to undo."""
        groups = state_dict["param_groups"]
        own = next((g[STATE_KEY] for g in groups if STATE_KEY in g), None)
        if own is not None:
            if own.get(_CLASS, self._family) != self._family:
                raise self._no_state(f"that of {own[_CLASS]!r}")
            for part in self._parts:
                part.check(own)
            if _TRAINED in own:
                trained_weights.check(type(self).__name__, self.base, self.model, own[_TRAINED])
        bare = [{k: v for k, v in g.items() if k != STATE_KEY} for g in groups]
        options = [self.base.defaults.keys() & group.keys() for group in self.base.param_groups]
        self.base.load_state_dict({**state_dict, "param_groups": bare})
        for names, group in zip(options, self.base.param_groups, strict=True):
            if missing := names - group.keys():
                kind = type(self.base).__name__
                raise self._no_state(f"a group without {', '.join(sorted(missing))} of {kind}")
        if own is not None:
            for part in self._parts:
                part.load_state_dict(own)
        self._renew_parts()
        if own is not None and _TRAINED in own:
            trained_weights.restore(self.base, self.model, own[_TRAINED])

    @property
    def _family(self) -> str:
        """The class whose states can be loaded: ours, or the one that it is derived from."""
        lineage = [c for c in type(self).__mro__ if issubclass(c, OptimizerWrapper)]
        return lineage[-2].__name__

    def _no_state(self, found: str) -> ValueError:
        owner = type(self).__name__
        return ValueError(
            f"{owner}.load_state_dict: must be what state_dict() of {owner} returned, got {found}"
        )

    def __getstate__(self) -> dict[str, Any]:
        self._refuse_pending("__getstate__")
        return {
            key: value
            for key, value in self.__dict__.items()
            # "step" is there when a scheduler has wrapped it; hooks stay with the original.
            if key != "step" and not key.startswith("_optimizer_")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._renew_parts()
        super().__setstate__({})

    def _is_asked_to_initialise(self) -> bool:
        """Tell torch.distributed.checkpoint's idiom: a bare step with zero gradients."""
        if self.base.state or any(float(group.get("lr", 0)) for group in self.base.param_groups):
            return False
        gradients = [p.grad for p in parameters_of(self.base) if p.requires_grad]
        return all(g is not None and not gathered(g.any()) for g in gradients)

    def _refuse_pending(self, method: str) -> None:
        """Raise if the weights are not those that are trained: tentative ones, or an average."""
        in_evaluation = self._evaluation is not None and method in _ALLOWED_IN_EVALUATION
        for part in self._parts:
            if part.pending and not in_evaluation:
                raise RuntimeError(f"{type(self).__name__}.{method}() {part.pending}")

    def _renew_parts(self) -> None:
        for part in self._parts:
            part.renew()
