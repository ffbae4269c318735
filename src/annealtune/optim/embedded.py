"""The paper's method around any torch optimizer: read `EmbeddedTuner.step` first.

One iteration is Algorithm 2 of Fischetti and Stringher (2019): gradient, pick, tentative step,
second evaluation, accept or go back. The marks ``(l. n)`` at the right are its line numbers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from annealtune.annealing import Neighborhood, Schedule, Setting, Strategy
from annealtune.optim import compatibility
from annealtune.optim.annealing_state import AnnealingState, choose_strategy
from annealtune.optim.minibatch import Minibatch, scalar
from annealtune.optim.probe import Probe, ProbeMode
from annealtune.optim.random_state import RandomState
from annealtune.optim.snapshot import Snapshot
from annealtune.optim.step_info import StepInfo
from annealtune.optim.wrapper import OptimizerWrapper


@dataclasses.dataclass(frozen=True)
class _Trial:
    """A tentative step that waits for its verdict."""

    setting: Setting
    loss: float
    start: RandomState  # before the forward of this minibatch
    end: RandomState  # after it


class EmbeddedTuner(OptimizerWrapper):
    r"""Tune the options of any optimizer inside the run, by simulated annealing.

    At every step a setting is picked from H, the base optimizer makes a tentative step with it,
    the loss is measured again on the same minibatch, and the step is kept with probability
    :math:`\min(1, e^{-worsening/T})` or undone bit for bit.

    Args:
        base: the optimizer whose steps are tried; any whose ``step`` needs no closure.
        model: the module that is trained; guards its buffers and replays its dropout.
        buffers: tensors to put back after an evaluation, where there is no module to give.
        neighborhood: H; by default seven multiples of the base's learning rate.
        temperature: a number (constant; 0 is greedy, ``math.inf`` accepts everything finite) or a
            schedule; by default `Automatic`, in units of the worsenings that occur.
        strategy: another metaheuristic instead of simulated annealing.
        epochs: planned number of epochs, each ended by `cool`: the length of the default schedule.
        total_steps: planned number of steps, instead of ``epochs``. With neither, the default
            schedule is the anytime one.
        seed: of the tuner's own generator.
        probe_in: ``"train"`` measures the loss again as the model stands, ``"eval"`` takes both
            losses of the accept test in evaluation mode, at the price of a third forward.

    Raises:
        TypeError: if the base is no optimizer or needs a closure.
        ValueError: if an argument breaks its rule.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> base = torch.optim.AdamW(model.parameters(), lr=1e-2)
        >>> opt = EmbeddedTuner(base, model=model, total_steps=10)
        >>> x, y = torch.randn(8, 2), torch.randn(8, 1)
        >>> for _ in range(10):
        ...     loss = opt.step(lambda: nn.functional.mse_loss(model(x), y))
        >>> opt.summary().total.tried
        10

    Reference:
        Fischetti and Stringher (2019), Section 3 and Algorithm 2.
    """

    _scratch = ("_trial", "_before", "_spares_gradients", "_left")
    _trial: _Trial | None

    def __init__(
        self,
        base: Optimizer,
        *,
        model: nn.Module | None = None,
        buffers: Iterable[Tensor] = (),
        neighborhood: Neighborhood | Iterable[Mapping[str, Any]] | None = None,
        temperature: float | Schedule | None = None,
        strategy: Strategy | None = None,
        epochs: int | None = None,
        total_steps: int | None = None,
        seed: int = 0,
        probe_in: ProbeMode = "train",
    ) -> None:
        owner = type(self).__name__
        compatibility.check_base(owner, base)
        self.neighborhood = compatibility.check_neighborhood(owner, neighborhood, base)
        compatibility.refuse_schedulers(owner, self.neighborhood, base)
        strategy = choose_strategy(owner, strategy, temperature, epochs, total_steps)
        super().__init__(base, AnnealingState(owner, strategy, seed, tuple(self.neighborhood)))
        self.model = model
        self._probe = Probe(owner, model, buffers, base, probe_in)
        self._reset_scratch()

    @torch.no_grad()
    def step(
        self,
        closure: Callable[[], Any] | None = None,
        *,
        loss: Tensor | float | None = None,
        probe: Callable[[], Any] | None = None,
        objective: Callable[[], Any] | None = None,
        rng_state: Tensor | None = None,
    ) -> Any:
        """Make one iteration of Algorithm 2 on one minibatch and return its loss.

        Either ``step(closure)``, where the closure returns the loss and may call ``zero_grad`` and
        ``backward`` itself; or, with the gradient in place, ``step(loss=loss, probe=fn)``, where
        ``fn`` returns the loss on the same minibatch again.

        Args:
            closure: computes the loss.
            loss: the loss, where there is no closure.
            probe: computes the loss again, where there is no closure.
            objective: what the accept test compares instead of the loss, any scalar function.
            rng_state: ``torch.get_rng_state()`` before the forward of ``loss``, to repeat its
                dropout where the tuner was given no model.

        Raises:
            NonFiniteLossError: if the loss at the current point is not finite.
            TypeError, ValueError: if there is no loss, or it is no scalar, or needs no gradient.
        """
        if closure is None and loss is None and self._is_asked_to_initialise():
            return self.base.step()
        minibatch = self._minibatch(closure, loss, probe, objective, rng_state)
        training_loss = minibatch.backpropagate(self.zero_grad)  # L(w) and its gradient v  (l. 6)
        self.propose(minibatch.before(), rng_state=minibatch.start)  # eta from H, w_new  (l. 7-8)
        with self._undone_on_error():
            new_loss = minibatch.after()  # L(w_new) on the same minibatch                  (l. 9)
        self.resolve(new_loss)  # worsening, prob, accept or go back                    (l. 10-17)
        return training_loss

    @torch.no_grad()
    def propose(
        self, loss: Tensor | float, *, rng_state: Tensor | RandomState | None = None
    ) -> Setting:
        """Pick a setting and make the tentative step; the gradient of ``loss`` is in place."""
        self._refuse_pending("propose")
        owner = type(self).__name__
        start = self._probe.take_start(rng_state)
        compatibility.refuse_schedulers(owner, self.neighborhood, self.base, self._left)
        compatibility.check_gradients(owner, self._parameters())
        value = scalar(owner, "loss", loss)
        if not math.isfinite(value):
            raise self._annealing.non_finite(value)
        setting = self._annealing.pick(self.neighborhood)  # eta from H                     (l. 7)
        self._before.take(gradients=setting not in self._spares_gradients)
        self._trial = _Trial(setting, value, start, RandomState.capture())
        with self._undone_on_error():
            self._tentative_step(setting)  # w_new = w - eta v                              (l. 8)
        return setting

    @torch.no_grad()
    def resolve(self, new_loss: Tensor | float) -> StepInfo:
        """Keep the tentative step or go back, by the loss at the tentative point."""
        trial = self._pending("resolve")
        value = scalar(type(self).__name__, "new_loss", new_loss)
        info = self._annealing.decide(trial.setting, trial.loss, value)  # Metropolis   (l. 10-12)
        if info.accepted:
            self._end_trial()  # w = w_new                                                 (l. 13)
        else:
            self._undo()  # w stays                                                        (l. 15)
        self._probe.take_start()  # whatever was noted meanwhile belongs to this step
        self.last_step = info
        return info

    def probing(self) -> AbstractContextManager[None]:
        """Evaluate as the accept test does: same dropout, buffers and ``.grad`` kept.

        Between `propose` and `resolve` this is the loss at the tentative point. Before `propose`
        it is the one to propose where ``probe_in="eval"``, which compares other losses than that
        of the training forward.
        """
        return self._probe.replay(self._trial.start if self._trial else self._probe.start())

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base; the next step writes its setting into it too."""
        compatibility.check_group(type(self).__name__, param_group)
        super().add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of all parameters of the base."""
        self._probe.forget_abandoned()
        super().zero_grad(set_to_none)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({type(self.base).__name__}, {len(self.neighborhood)} settings "
            f"of {', '.join(self.neighborhood.options)}, {self.strategy!r})"
        )

    def _minibatch(
        self,
        closure: Callable[[], Any] | None,
        loss: Tensor | float | None,
        probe: Callable[[], Any] | None,
        objective: Callable[[], Any] | None,
        rng_state: Tensor | None,
    ) -> Minibatch:
        self._refuse_pending("step")
        if closure is not None:
            compatibility.refuse_scaled_closure(type(self).__name__)
        start = self._probe.take_start(rng_state if closure is None else RandomState.capture())
        return Minibatch(
            type(self).__name__,
            self._probe,
            closure=closure,
            loss=loss,
            probe=probe,
            objective=objective,
            start=start,
        )

    def _tentative_step(self, setting: Setting) -> None:
        for group in self.base.param_groups:
            for option, value in setting.items():
                if isinstance(group[option], Tensor):
                    group[option].fill_(value)
                else:
                    group[option] = value
        self.base.step()
        # Some bases write into the gradients (SGD with foreach and Nesterov). Whether this one
        # does under this setting is found out at its first try, which paid for a copy of them.
        if self._before.gradients_are_untouched():
            self._spares_gradients.add(setting)
        else:
            self._spares_gradients.discard(setting)

    def _undo(self) -> None:
        self._before.restore()
        self._pending("resolve").end.restore()
        self._end_trial()

    def _end_trial(self) -> None:
        self._trial = None
        self._before.release()
        self._left = compatibility.options_in_groups(self.neighborhood, self.base)

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:  # an interrupted trial leaves no trace either
            self._undo()
            raise

    def _parameters(self) -> Iterator[Tensor]:
        return (p for group in self.base.param_groups for p in group["params"])

    def _pending(self, method: str) -> _Trial:
        if self._trial is None:
            raise RuntimeError(f"{type(self).__name__}.{method}() must follow propose(loss)")
        return self._trial

    def _refuse_pending(self, method: str) -> None:
        if self._trial is not None:
            raise RuntimeError(
                f"{type(self).__name__}.{method}() must not come between propose and resolve: "
                f"{self._trial.setting!r} waits for its verdict, call resolve(new_loss) first"
            )

    def _reset_scratch(self) -> None:
        self._trial = None
        self._before = Snapshot(self.base)
        self._spares_gradients: set[Setting] = set()
        self._left = compatibility.options_in_groups(self.neighborhood, self.base)
