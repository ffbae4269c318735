"""The paper's method around any torch optimizer: read `EmbeddedTuner.step` first.

One iteration is Algorithm 2 of Fischetti and Stringher (2019): gradient, pick, tentative step,
second evaluation, accept or go back. The marks ``(l. n)`` at the right are its line numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from annealtune.annealing import Schedule, Setting, Strategy
from annealtune.annealing.strategies.stored_settings import restored
from annealtune.optim import compatibility
from annealtune.optim.annealing_state import AnnealingState, choose_strategy
from annealtune.optim.averaging import WeightAverage, no_average
from annealtune.optim.controls import Choices, Controls, Scales
from annealtune.optim.gradient import RecordedGradient
from annealtune.optim.loop_options import LoopOption
from annealtune.optim.minibatch import Minibatch, scalar
from annealtune.optim.objectives import AcceptOn, judge
from annealtune.optim.probe import Probe, ProbeMode
from annealtune.optim.random_state import RandomState
from annealtune.optim.recorder import Function, Recorder
from annealtune.optim.step_info import StepInfo
from annealtune.optim.tentative import TentativeStep, Trial
from annealtune.optim.wrapper import AnnealedWrapper


class EmbeddedTuner(AnnealedWrapper):
    r"""Tune the options of any optimizer inside the run, by simulated annealing.

    At every step a setting is picked from H, the base optimizer makes a tentative step with it,
    the loss is measured again on the same minibatch, and the step is kept with probability
    :math:`\min(1, e^{-worsening/T})` or undone bit for bit, also by an exception or Ctrl-C.

    Args:
        base: the optimizer whose steps are tried; any whose ``step`` needs no closure.
        model: the module that is trained; guards its buffers and replays its dropout.
        buffers: tensors to put back after an evaluation, where there is no module to give.
        neighborhood: H, or for each option the values to choose from: ``{"lr": [...]}`` is
            ``grid(lr=[...])``; by default seven multiples of the base's learning rate. Groups keep
            the ratios of their rates, ``lr_scale`` too: a rate of H is that of the largest.
        temperature: a number (constant; 0 is greedy, ``math.inf`` accepts everything finite) or a
            schedule; by default `Automatic`, in units of the worsenings that occur. One that cools
            per epoch and is never told of one warns: call `cool`.
        strategy: another metaheuristic instead of simulated annealing: its name, such as
            ``"tabu"``, or an object.
        accept_on: what the accept test compares: ``"loss"``, ``"error"`` (one minus the accuracy)
            or a function of (outputs, targets); the closure returns ``(loss, outputs, targets)``.
        loop: options of the training loop that H may set too, by name: see `LoopOption`.
        group_scales: further factors for the groups of the base that have a ``"name"``: a number
            for their learning rate, or numbers by option.
        epochs: planned number of epochs, each ended by `cool`: the length of the default schedule.
        total_steps: planned number of steps, instead of ``epochs``. With neither, or one epoch,
            the default schedule is the anytime one.
        average: whether an average of the weights is kept, for `averaged`.
        seed: of the tuner's own generator.
        probe_in: ``"train"`` measures the loss again as the model stands, ``"eval"`` takes both
            losses of the accept test in evaluation mode, at the price of a third forward.

    Raises:
        TypeError: if the base is no optimizer or needs a closure; in the first step, if it keeps
            state elsewhere than in ``state`` and ``param_groups``.
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

    _scratch = ("_tentative",)

    def __init__(
        self,
        base: Optimizer,
        *,
        model: nn.Module | None = None,
        buffers: Iterable[Tensor] = (),
        neighborhood: Choices | None = None,
        temperature: float | Schedule | None = None,
        strategy: Strategy | str | None = None,
        accept_on: AcceptOn = "loss",
        loop: Mapping[str, LoopOption] | None = None,
        group_scales: Scales | None = None,
        epochs: int | None = None,
        total_steps: int | None = None,
        average: bool = False,
        seed: int = 0,
        probe_in: ProbeMode = "train",
    ) -> None:
        owner = type(self).__name__
        compatibility.check_base(owner, base)
        self._controls = Controls(owner, base, loop, group_scales)
        self.neighborhood = self._controls.fit(neighborhood)
        strategy = choose_strategy(owner, strategy, temperature, epochs, total_steps)
        super().__init__(base, AnnealingState(owner, strategy, seed, self.neighborhood, epochs))
        self._annealing.refuse_comparing_if(self._controls.loop_options)
        self.model = model
        self._judge = judge(owner, accept_on)
        self._picked: Setting | None = None  # ahead of its step
        self._probe = Probe(owner, model, buffers, base, probe_in)
        self._recorder = Recorder(owner, base)
        self.averages = average
        self._average = WeightAverage(owner, base, model) if average else None
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

        Either ``step()`` after the backward of a function that `record` has wrapped; or
        ``step(closure)``, where the closure returns the loss and may call ``zero_grad`` and
        ``backward`` itself; or, with the gradient in place, ``step(loss=loss, probe=fn)``, where
        ``fn`` returns the loss on the same minibatch again.

        Args:
            closure: computes the loss.
            loss: the loss, where there is no closure.
            probe: computes the loss again, where there is no closure.
            objective: what the accept test compares instead of the loss, any scalar function;
                what it does to the weights, such as rounding them, is undone.
            rng_state: ``torch.get_rng_state()`` before the forward of ``loss``, to repeat its
                dropout where the tuner was given no model.

        Raises:
            NonFiniteLossError: if the loss at the current point is not finite.
            TypeError, ValueError: if there is no loss, or it is no scalar, or needs no gradient.
        """
        if closure is None and loss is None and self._is_asked_to_initialise():
            return self.base.step()
        self._refuse_pending("step")
        try:
            minibatch = self._minibatch(closure, loss, probe, objective, rng_state)
            training_loss = minibatch.backpropagate(self.zero_grad)  # L(w), its gradient v (l. 6)
            value = self._checked(minibatch.before())
            setting, new_value = self._choose(value, minibatch)  # eta from H              (l. 7)
            self._make(setting, value, minibatch.start)  # w_new = w - eta v                (l. 8)
            if new_value is None:
                new_value = minibatch.after()  # L(w_new)                                   (l. 9)
            self.resolve(new_value)  # worsening, prob, accept or go back               (l. 10-17)
            return training_loss
        except BaseException:
            self._recover()
            raise

    def record(self, function: Function) -> Function:
        """Wrap the function that computes the loss, as `SelfTuner.record` does."""
        return self._recorder.wrap(function)

    @torch.no_grad()
    def propose(
        self, loss: Tensor | float, *, rng_state: Tensor | RandomState | None = None
    ) -> Setting:
        """Pick a setting and make the tentative step; the gradient of ``loss`` is in place.

        Where the accept test is to compare something else, give its value instead of the loss.
        """
        self._refuse_pending("propose")
        try:
            start = self._probe.take_start(rng_state)
            value = self._checked(scalar(type(self).__name__, "loss", loss))
            setting = self.prepare()
            self._make(setting, value, start)
            return setting
        except BaseException:
            self._recover()
            raise

    @torch.no_grad()
    def resolve(self, new_loss: Tensor | float) -> StepInfo:
        """Keep the tentative step or go back, by the loss at the tentative point."""
        trial = self._tentative.trial
        if trial is None:
            raise RuntimeError(f"{type(self).__name__}.resolve() must follow propose(loss)")
        value = scalar(type(self).__name__, "new_loss", new_loss)
        try:
            info = self._annealing.decide(trial.setting, trial.value, value)  # Metropolis (10-12)
            if info.accepted:
                self._tentative.keep()  # w = w_new                                        (l. 13)
            else:
                self._tentative.undo()  # w stays                                          (l. 15)
            self._probe.forget_start()  # whatever was noted meanwhile belongs to this step
            self.last_step = info
            return info
        except BaseException:
            self._recover()
            raise

    def prepare(self) -> Setting:
        """Pick the setting of the next step now, and give the loop its options of it.

        `step` with a closure does it by itself. Where the forward comes first and H holds options
        of the loop, call it before the forward; called twice, it does nothing more.
        """
        self._refuse_pending("prepare")
        if self._picked is None:
            picked = self._annealing.pick(self.neighborhood)
            self._controls.turn_loop(picked)
            self._picked = picked
        return self._picked

    def probing(self) -> AbstractContextManager[None]:
        """Evaluate as the accept test does: same dropout, buffers and ``.grad`` kept.

        Between `propose` and `resolve` this is the loss at the tentative point; before `propose` it
        is the one to propose where ``probe_in="eval"``, which compares other losses.
        """
        trial = self._tentative.trial
        return self._probe.replay(self._probe.start() if trial is None else trial.start)

    def averaged(self, loader: Iterable[Any] | None = None) -> AbstractContextManager[None]:
        """Give the model the average of its last weights meanwhile, as `SelfTuner.averaged` does.

        Raises:
            RuntimeError: if no average is kept: write ``average=True``.
        """
        self._refuse_pending("averaged")
        if self._average is None:
            raise no_average(type(self).__name__)
        return self._average.swapped_in(loader)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base; the next step writes its setting into it too."""
        compatibility.check_group(type(self).__name__, param_group)
        super().add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of all parameters of the base."""
        self._recorder.forget_done()
        self._probe.forget_abandoned()
        super().zero_grad(set_to_none)

    def _minibatch(
        self, closure: Any, loss: Any, probe: Any, objective: Any, rng_state: Tensor | None
    ) -> Minibatch:
        owner = type(self).__name__
        if closure is not None:
            compatibility.refuse_scaled_closure(owner)
            if self._controls.loop_options:
                self.prepare()  # the forward depends on it
        start = self._probe.take_start(rng_state if closure is None else RandomState.capture())
        calls = self._recorder.take()
        if calls and closure is None and loss is None:
            recorded = RecordedGradient(calls, self.base)
            start, loss, probe = recorded.start, recorded.compared(), recorded.evaluate
        ways = {"closure": closure, "loss": loss, "probe": probe, "objective": objective}
        return Minibatch(owner, self._probe, **ways, judge=self._judge, start=start)

    def _checked(self, value: float) -> float:
        """Return the value at the current point, if everything is in place for a trial."""
        self._controls.refuse_schedulers()
        compatibility.check_gradients(type(self).__name__, self.base)
        self._controls.refuse_late(self._picked)
        if not math.isfinite(value):
            raise self._annealing.non_finite(value)
        return value

    def _choose(self, value: float, minibatch: Minibatch) -> tuple[Setting, float | None]:
        """Return the setting of the move and, where several were compared, what it leads to."""
        if not self._annealing.compares:
            return self.prepare(), None
        measured: dict[Setting, float] = {}
        for setting in self._annealing.shortlist(self.neighborhood):
            self._tentative.make(Trial(setting, value, minibatch.start, RandomState.capture()))
            measured[setting] = minibatch.after()
            self._tentative.undo()
        selected = self._annealing.select(value, measured)
        return selected, measured[selected]

    def _make(self, setting: Setting, value: float, start: RandomState) -> None:
        if self._average is not None:
            self._average.add()  # weights enter it when their loss is known to be finite
        self._picked = None
        self._tentative.make(Trial(setting, value, start, RandomState.capture()))

    def _recover(self) -> None:
        """Undo whatever of a step was under way when it was cut off."""
        self._probe.end()
        self._tentative.recover()
        if self._picked is None:
            self._controls.put_back()  # what the loop was given of a pick that is lost

    def _refuse_pending(self, method: str) -> None:
        owner, trial = type(self).__name__, self._tentative.trial
        if trial is not None:
            raise RuntimeError(
                f"{owner}.{method}() must not come between propose and resolve: {trial.setting!r} "
                "waits for its verdict, call resolve(new_loss) first; resolve(math.nan) goes back"
            )
        if self._average is not None:
            self._average.refuse_swapped_in(method)

    def _own_state(self) -> dict[str, Any]:
        return {
            **super()._own_state(),
            "picked": None if self._picked is None else dict(self._picked),
            "loop": self._controls.resting(),
            "average": None if self._average is None else self._average.state_dict(),
        }

    def _check_own_state(self, state: dict[str, Any]) -> None:
        super()._check_own_state(state)
        self._controls.check_resting(state.get("loop", {}))
        if state.get("picked") is not None:
            self._annealing.check_picked(restored(state["picked"]), self.neighborhood)
        if self._average is not None and state.get("average") is not None:
            self._average.check(state["average"])

    def _load_own_state(self, state: dict[str, Any]) -> None:
        super()._load_own_state(state)
        self._controls.rest(state.get("loop", {}))
        picked = state.get("picked")
        self._picked = None if picked is None else restored(picked)
        if self._picked is not None:
            self._controls.turn_loop(self._picked)
        if self._average is not None and state.get("average") is not None:
            self._average.load_state_dict(state["average"])

    def _reset_scratch(self) -> None:
        self._tentative = TentativeStep(self.base, self._controls)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({type(self.base).__name__}, {len(self.neighborhood)} settings "
            f"of {', '.join(self.neighborhood.options)}, {self.strategy!r})"
        )
