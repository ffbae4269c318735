"""Base class for wrapping optimizers: what they share with torch.optim.Optimizer and each other."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from operator import methodcaller
from typing import Any

from torch.optim import Optimizer

from annealtune.optim.average import WeightAverage
from annealtune.optim.context import Context, Part, StateError
from annealtune.optim.hooks import Hook
from annealtune.optim.keeper import Keeper, Look, Score, Which
from annealtune.optim.minibatch import Function, Intake
from annealtune.optim.parameters import gathered, parameters_of
from annealtune.optim.run_state import Pairs, PutAside, check_named, kept, named_pairs, write

# The key in the first parameter group of a state dict. Groups are the one place that survives
# dtype casts, deep copies and distributed checkpoints unchanged.
STATE_KEY = "annealtune"
# The key therein of weights that are trained, where the model held their average.
_TRAINED = "trained_weights"
# The key therein of the class that saved it.
_CLASS = "class"
# What may be called between eval() and train().
_ALLOWED_IN_EVALUATION = ("state_dict", "load_state_dict", "__getstate__")


class OptimizerWrapper(Optimizer):
    """Groups, state and defaults are the base's own; saving and copying include both.

    The base's state dict carries the states of our parts in its first group, so that whatever saves
    an optimizer saves all of it. The output of all of them is that of Algorithm 2: the best weights
    on the validation set, by `validate`, `best` and `load_best`.
    """

    _family: str  # the class whose states can be loaded
    averages = False  # whether an average of the weights is kept
    _average: WeightAverage | None = None  # the one that is kept
    _evaluation: PutAside | None = None  # what is trained, between `eval` and `train`

    def __init__(self, context: Context, intake: Intake, *parts: Part) -> None:
        self.base = context.base
        self.model = context.model
        self._context = context
        self._ranks = context.ranks
        self._intake = intake
        self._keeper = Keeper(context.owner, context.base, context.model, context.ranks)
        self._parts = (self._keeper, *parts)
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

    def record(self, function: Function, *, scaler: Any = None) -> Function:
        """Wrap the function that computes the loss of a minibatch; its behaviour is unchanged.

        Calls with gradients on are remembered until the next `step`, so that the same loss can be
        computed again: same arguments, random numbers, autocast and factor on the loss. The
        function returns a scalar, a tuple that begins with one, or a dict with one under
        ``"loss"``; otherwise its call raises TypeError.

        Args:
            function: computes the loss.
            scaler: the ``torch.amp.GradScaler`` of the loop. Where there is one it must be given:
                its scale is taken out of the losses and gradients that are computed again.
        """
        return self._intake.record(function, scaler)

    def after_step(self, function: Callable[[], Any]) -> Any:
        """Have a function called after every step: clamp, project or mask the weights there.

        It is a part of the step: called for every arm of a race, and undone with a tentative step.
        A loop that writes into the weights by itself does so for one arm only.

        Returns:
            A handle whose ``remove()`` ends it.
        """
        return self.base.register_step_post_hook(Hook(function))

    def averaged(self, loader: Iterable[Any] | None = None) -> AbstractContextManager[None]:
        """Give the model the average of its last weights for as long as the context lasts.

        During a race that is the arm which leads, as it is.

        Args:
            loader: minibatches, or tuples that begin with them, from which the statistics of
                BatchNorm are computed anew; a dict is given to the model by its names. Without a
                loader their averages are taken.

        Raises:
            RuntimeError: if no average is kept.
        """
        self._refuse_pending("averaged")
        if self._average is None:
            raise RuntimeError(
                f"{self._context.owner}.averaged() needs an average of the weights, which "
                "SelfTuner(..., average=True) keeps, got none"
            )
        return self._swapped_in(self._average, loader)

    @contextmanager
    def _swapped_in(self, average: WeightAverage, loader: Iterable[Any] | None) -> Iterator[None]:
        with self._own_writes(), average.swapped_in(loader):
            yield

    def eval(self) -> None:
        """Give the model its average until `train` is called; nothing where there is none by now.

        Hugging Face's Trainer and Accelerate call both by themselves. A state dict that is taken in
        between holds the weights that are trained, and loading it gives them back to the model.
        Weights that are loaded into the model in between are the trained ones from then on.
        """
        if self._average is not None and self._evaluation is None:
            self._refuse_pending("eval")
            if self._shown_average is not None:
                self._evaluation = self._shown_average.put_aside().show()

    def train(self) -> None:
        """Give the model back the weights that are trained, after `eval`.

        If others were loaded into it since, it keeps those.
        """
        if self._evaluation is not None:
            self._evaluation.put_back_unless_overwritten()
            self._evaluation = None

    @property
    def steps(self) -> int:
        """Calls of `step` so far."""
        raise NotImplementedError

    def validate(self, score: Score, *, maximize: bool = False) -> float:
        r"""Score the weights on the validation set and remember them if they are the best so far.

        The score is called without gradients, the model in evaluation mode. Nothing but this
        memory changes: weights, gradients, buffers, training flags and torch's random numbers are
        put back, so a run with looks is bit for bit the run without. It costs one copy of the
        weights.

        `SelfTuner` with an average scores that and then the last weights, and the better ones
        compete; in a race it scores the arm that leads. All others score the weights as they are.
        Several processes decide by the mean of their scores.

        Args:
            score: returns a number, of which smaller is better, or several, one for each minibatch
                or sample, whose mean is compared. Where there are several, noise does not decide:
                a later look replaces an earlier one unless the best one is better by more than two
                standard errors of the paired differences.
            maximize: whether larger is better.

        Returns:
            The value, of the better weights where two were scored. One that is not finite is never
            the best.

        Raises:
            RuntimeError: if the model does not have the weights that are trained, as within `best`.
            TypeError: if the score is no function, or returns no numbers.
            ValueError: if ``maximize``, or how many numbers there are, is not what it was.

        Example:
            >>> import torch
            >>> from torch import nn
            >>> from annealtune import SGDSA
            >>> model, x = nn.Linear(2, 1), torch.ones(4, 2)
            >>> opt = SGDSA(model, {"lr": [0.1]})
            >>> for _ in range(3):
            ...     loss = opt.step(lambda: model(x).square().mean())
            ...     value = opt.validate(lambda: model(x).square().mean())
            >>> with opt.best():
            ...     model(x).square().mean().item() == min(look.value for look in opt.looks)
            True

        Reference:
            Fischetti and Stringher (2019), Algorithm 2, Output.
        """
        self._refuse_pending("validate")
        self._ranks.begin()
        average = self._shown_average if self._arms is None else None
        paused, self._intake.paused = self._intake.paused, True
        try:
            with kept(self._context.wrappers.present()), self._own_writes():
                return self._keeper.look(score, step=self.steps, maximize=maximize, average=average)
        finally:
            self._intake.paused = paused

    @contextmanager
    def best(self) -> Iterator[None]:
        """Give the model its best weights and buffers meanwhile.

        Afterwards it is bit for bit what it was. Without any `validate` they are the average, where
        one is kept, or the last weights.

        Raises:
            RuntimeError: if the model does not have the weights that are trained, as within `best`
                or `averaged`, or between `eval` and `train`.
        """
        self._refuse_pending("best")
        with self._own_writes(), self._keeper.shown(self._shown_average):
            yield

    def load_best(self) -> None:
        """Give the model its best weights and buffers for good; what `best` shows.

        The state of the base stays as it is. Steps from here on start from these weights.

        Raises:
            RuntimeError: as `best`, and in a race, where only one arm would have them.
        """
        self._refuse_pending("load_best")
        if self._arms is not None:
            raise RuntimeError(
                f"{type(self).__name__}.load_best() must not be called in a race: only one of its "
                "arms would have these weights; write with opt.best(): ..., or call it after the "
                "race: opt.is_racing tells"
            )
        self._keeper.load(self._shown_average)

    @property
    def looks(self) -> tuple[Look, ...]:
        """The calls of `validate` so far: step, value, whether it was kept, and which weights."""
        return self._keeper.looks

    def _take_look(self, value: float, *, maximize: bool = False) -> None:
        """Take in a validation that a framework has made of the weights in the model as they are.

        `validate` for those who have the value already; also between `eval` and `train`.
        """
        self._ranks.begin()
        average = self._shown_average
        weights: Which = "last" if average is None or not average.pending else "average"
        self._keeper.take(value, step=self.steps, weights=weights, maximize=maximize)

    def _finish(self) -> None:
        """Give the model its best weights until `train` is called: a framework's training is over.

        As `eval`, which shows the average, where there was no look. In a race the model keeps the
        arm that leads.
        """
        self.train()
        if self._keeper.has_weights and self._arms is None:
            self._refuse_pending("eval")
            self._evaluation = self._keeper.put_aside().show()
        else:
            self.eval()

    @property
    def _shown_average(self) -> WeightAverage | None:
        """The average, where there is one by now."""
        return None if self._average is None or self._average.count == 0 else self._average

    @property
    def _arms(self) -> Any:
        """Those of a race that is on."""
        return None

    @contextmanager
    def _own_writes(self) -> Iterator[None]:
        """Write into the weights of an arm, which nobody else may, and put them back."""
        if (arms := self._arms) is None:
            yield
            return
        arms.refuse_others()
        try:
            yield
        finally:
            arms.seal_weights()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of all parameters of the base; recorded calls are forgotten."""
        self._intake.forget_done()
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
            self._load(state_dict)
        except StateError:
            raise
        except Exception as error:
            found = f"one that fails by {type(error).__name__}: {error}"
            raise self._no_state(found) from error
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def _load(self, state_dict: dict[str, Any]) -> None:
        """Build new parts, then load the base, then put them in place: all of it or nothing."""
        groups = state_dict["param_groups"]
        own = next((g[STATE_KEY] for g in groups if STATE_KEY in g), None)
        loaded: list[Part] = []
        trained: Pairs = []
        if own is not None:
            if own[_CLASS] != self._family:
                raise self._no_state(f"that of {own[_CLASS]!r}")
            if _TRAINED in own:
                check_named(self._context.owner, self.base, self.model, own[_TRAINED])
                found = named_pairs(self.base, self.model, own[_TRAINED])
                trained = [(tensor, value.to(tensor, copy=True)) for tensor, value in found]
            loaded = [copy.copy(part) for part in self._parts]
            for part in loaded:
                part.load_state_dict(own)
        bare = [{k: v for k, v in g.items() if k != STATE_KEY} for g in groups]
        for saved, group in zip(bare, self.base.param_groups, strict=False):
            if missing := (self.base.defaults.keys() & group.keys()) - saved.keys():
                kind = type(self.base).__name__
                raise self._no_state(f"a group without {', '.join(sorted(missing))} of {kind}")
        attributes = dict(vars(self.base))
        try:
            self.base.load_state_dict({**state_dict, "param_groups": bare})
        except BaseException:
            vars(self.base).update(attributes)
            raise
        for part, new in zip(self._parts, loaded, strict=False):  # from here on nothing can fail
            vars(part).update(vars(new))
        if trained:
            write(trained, self.model.modules())
        self._renew_parts()
        if self._evaluation is not None:
            self._evaluation.leave()
            self._evaluation = None

    def _no_state(self, found: str) -> StateError:
        owner = type(self).__name__
        return StateError(
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
        rates = map(methodcaller("get", "lr", 0), self.base.param_groups)
        if self.base.state or any(map(float, rates)):
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
