"""The paper's method around any torch optimizer: read `EmbeddedTuner.step` first.

One iteration is Algorithm 2 of Fischetti and Stringher (2019): gradient, pick, tentative step,
second evaluation, accept or go back. The marks ``(l. n)`` at the right are its line numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from annealtune.annealing import Neighborhood, Schedule, SelfTuning, Setting, Strategy
from annealtune.annealing.strategies.stored_settings import restored
from annealtune.optim import compatibility
from annealtune.optim.annealing_state import AnnealingState, choose_strategy
from annealtune.optim.averaging import WeightAverage
from annealtune.optim.controls import Controls, Scales
from annealtune.optim.defaults import self_tuning
from annealtune.optim.loop_options import LoopOption
from annealtune.optim.minibatch import Minibatch, scalar
from annealtune.optim.objectives import AcceptOn, judge
from annealtune.optim.probe import Probe, ProbeMode
from annealtune.optim.random_state import RandomState
from annealtune.optim.sparing import SparingWrapper
from annealtune.optim.step_info import StepInfo
from annealtune.optim.surrogate import Probing, Surrogate
from annealtune.optim.tentative import TentativeStep, Trial


class EmbeddedTuner(SparingWrapper):
    r"""Tune the options of any optimizer inside the run, by simulated annealing.

    At every step a setting is picked from H, the base optimizer makes a tentative step with it,
    the loss is measured again on the same minibatch, and the step is kept with probability
    :math:`\min(1, e^{-worsening/T})` or undone bit for bit. Where neither H nor temperature nor
    strategy is given, the run finds its rates itself and few steps are measured: `SelfTuning`.

    Args:
        base: the optimizer whose steps are tried; any whose ``step`` needs no closure.
        model: the module that is trained; guards its buffers and replays its dropout.
        buffers: tensors to put back after an evaluation, where there is no module to give.
        neighborhood: H; beside a temperature or a strategy that is given, by default seven
            multiples of the base's learning rate.
        temperature: a number (constant; 0 is greedy, ``math.inf`` accepts everything finite) or a
            schedule; beside an H that is given, by default `Automatic`, in units of the
            worsenings that occur.
        strategy: another metaheuristic instead of simulated annealing: its name, such as
            ``"tabu"``, or an object.
        accept_on: what the accept test compares: ``"loss"``, ``"error"`` (one minus the accuracy)
            or any function of (outputs, targets), for which the closure returns ``(loss, outputs,
            targets)``; the gradient is that of the loss.
        loop: options of the training loop that H may set too, by name: see `LoopOption`.
        group_scales: factors for the groups of the base that have a ``"name"``: a number for
            their learning rate, or numbers by option.
        epochs: planned number of epochs, each ended by `cool`: the length of the default schedule.
        total_steps: planned number of steps, instead of ``epochs``. With neither, the default
            schedule is the anytime one.
        probe: ``"always"`` measures every tentative step, ``"screened"`` only those whose verdict
            cannot be foretold; by default screened where the run finds its rates itself.
        average: whether an average of the weights is kept, for `averaged`; by default where the
            run finds its rates itself.
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

    def __init__(
        self,
        base: Optimizer,
        *,
        model: nn.Module | None = None,
        buffers: Iterable[Tensor] = (),
        neighborhood: Neighborhood | Iterable[Mapping[str, Any]] | None = None,
        temperature: float | Schedule | None = None,
        strategy: Strategy | str | None = None,
        accept_on: AcceptOn = "loss",
        loop: Mapping[str, LoopOption] | None = None,
        group_scales: Scales | None = None,
        epochs: int | None = None,
        total_steps: int | None = None,
        probe: Probing | None = None,
        average: bool | None = None,
        seed: int = 0,
        probe_in: ProbeMode = "train",
    ) -> None:
        owner = type(self).__name__
        compatibility.check_base(owner, base)
        self._controls = Controls(owner, base, loop, group_scales)
        given = (neighborhood, temperature, strategy)
        tuning = self_tuning(owner, base, model, given, (accept_on, loop), epochs, total_steps)
        if tuning is not None:
            neighborhood, strategy = tuning.neighborhood(), tuning
        self.neighborhood = self._controls.fit(neighborhood)
        strategy = choose_strategy(owner, strategy, temperature, epochs, total_steps)
        super().__init__(base, AnnealingState(owner, strategy, seed, self.neighborhood))
        self._annealing.refuse_comparing_if(self._controls.loop_options)
        self.model = model
        self._judge = judge(owner, accept_on)
        self._picked: Setting | None = None  # ahead of its step
        self._probe = Probe(owner, model, buffers, base, probe_in)
        by_default: Probing = "always" if tuning is None else "screened"
        self._surrogate = Surrogate(owner, strategy, by_default if probe is None else probe, seed)
        averages = tuning is not None if average is None else average
        self._average = WeightAverage(owner, base, model) if averages else None
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
        minibatch = self._minibatch(closure, loss, probe, objective, rng_state)
        training_loss = minibatch.backpropagate(self.zero_grad)  # L(w) and its gradient v  (l. 6)
        value = minibatch.before()
        if self._rolls_back(value, minibatch.after):  # the step before, unmeasured, had broken it
            return training_loss
        measured = self._compare(value, minibatch)  # nothing, but for tabu search and its like
        setting = self.propose(value, rng_state=minibatch.start)  # eta from H, w_new     (l. 7-8)
        with self._tentative.undone_on_error():
            new_value = measured.get(setting, self._foretell(setting, value))
            if new_value is None:
                new_value = minibatch.after()  # L(w_new)                                   (l. 9)
        self.resolve(new_value)  # worsening, prob, accept or go back                   (l. 10-17)
        return training_loss

    @torch.no_grad()
    def propose(
        self, loss: Tensor | float, *, rng_state: Tensor | RandomState | None = None
    ) -> Setting:
        """Pick a setting and make the tentative step; the gradient of ``loss`` is in place.

        Where the accept test is to compare something else, give its value instead of the loss.
        """
        start = self._probe.take_start(rng_state)
        value = self._checked_value(loss)
        if self._average is not None:
            self._average.add()  # weights enter it when their loss is known to be finite
        setting, self._picked = self.prepare(), None  # eta from H                          (l. 7)
        trial = Trial(setting, value, start, RandomState.capture())
        self._tentative.make(trial)  # w_new = w - eta v                                    (l. 8)
        return setting

    @torch.no_grad()
    def resolve(self, new_loss: Tensor | float) -> StepInfo:
        """Keep the tentative step or go back, by the loss at the tentative point."""
        trial = self._pending("resolve")
        value = scalar(type(self).__name__, "new_loss", new_loss)
        with self._tentative.undone_on_error():
            info = self._annealing.decide(trial.setting, trial.value, value)  # Metropolis (10-12)
        if info.accepted:
            self._tentative.keep()  # w = w_new                                            (l. 13)
        else:
            self._tentative.undo()  # w stays                                              (l. 15)
        self._learn(info)
        self._probe.take_start()  # whatever was noted meanwhile belongs to this step
        self.last_step = info
        return info

    def prepare(self) -> Setting:
        """Pick the setting of the next step now, and give the loop its options of it.

        `step` with a closure does it by itself. Where the forward happens before `step` or
        `propose` is called and H holds options of the loop, call it before the forward; called
        twice, it does nothing more.
        """
        self._refuse_pending("prepare")
        if self._picked is None:
            picked = self._annealing.pick(self.neighborhood)
            self._controls.turn_loop(picked)
            self._picked = picked
        return self._picked

    def probing(self) -> AbstractContextManager[None]:
        """Evaluate as the accept test does: same dropout, buffers and ``.grad`` kept.

        Between `propose` and `resolve` this is the loss at the tentative point. Before `propose`
        it is the one to propose where ``probe_in="eval"``, which compares other losses than that
        of the training forward.
        """
        trial = self._tentative.trial
        return self._probe.replay(self._probe.start() if trial is None else trial.start)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base; the next step writes its setting into it too."""
        compatibility.check_group(type(self).__name__, param_group)
        super().add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of all parameters of the base."""
        self._probe.forget_abandoned()
        super().zero_grad(set_to_none)

    def _own_state(self) -> dict[str, Any]:
        picked = None if self._picked is None else dict(self._picked)
        return {**super()._own_state(), "picked": picked, "loop": self._controls.resting()}

    def _check_own_state(self, state: dict[str, Any]) -> None:
        super()._check_own_state(state)
        self._controls.check_resting(state.get("loop", {}))
        if state.get("picked") is not None:
            self._annealing.check_picked(restored(state["picked"]), self.neighborhood)

    def _load_own_state(self, state: dict[str, Any]) -> None:
        super()._load_own_state(state)
        self._controls.rest(state.get("loop", {}))
        picked = state.get("picked")
        self._picked = None if picked is None else restored(picked)
        if self._picked is not None:
            self._controls.turn_loop(self._picked)

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
        if objective is not None and isinstance(self.strategy, SelfTuning):
            raise ValueError(
                f"{type(self).__name__}.step(objective=...) must be used with a neighborhood or a "
                "temperature of yours: rates are found by what they do to the loss"
            )
        if closure is not None:
            compatibility.refuse_scaled_closure(type(self).__name__)
            if self._controls.loop_options:
                self.prepare()  # the forward depends on it
        start = self._probe.take_start(rng_state if closure is None else RandomState.capture())
        return Minibatch(
            type(self).__name__,
            self._probe,
            closure=closure,
            loss=loss,
            probe=probe,
            objective=objective,
            judge=self._judge,
            start=start,
        )

    def _checked_value(self, loss: Tensor | float) -> float:
        """Return the value at the current point, once everything is in place for a trial."""
        self._refuse_pending("propose")
        owner = type(self).__name__
        self._controls.refuse_schedulers()
        compatibility.check_gradients(owner, self._parameters())
        if self._controls.loop_options and self._picked is None:
            raise RuntimeError(
                f"{owner}: the neighborhood sets {', '.join(self._controls.loop_options)} of the "
                "training loop, which must be known before the forward: call prepare() first, or "
                "use step(closure)"
            )
        value = scalar(owner, "loss", loss)
        if not math.isfinite(value):
            raise self._annealing.non_finite(value)
        return value

    def _compare(self, loss: float, minibatch: Minibatch) -> dict[Setting, float]:
        """Measure the candidates of a strategy that compares several; each is undone again."""
        measured: dict[Setting, float] = {}
        if self._annealing.compares:
            value = self._checked_value(loss)
            for setting in self._annealing.shortlist(self.neighborhood):
                trial = Trial(setting, value, minibatch.start, RandomState.capture())
                self._tentative.make(trial)
                with self._tentative.undone_on_error():
                    measured[setting] = minibatch.after()
                self._tentative.undo()
            self._picked = self._annealing.select(value, measured)
        return measured

    def _parameters(self) -> Iterator[Tensor]:
        return (p for group in self.base.param_groups for p in group["params"])

    def _pending(self, method: str) -> Trial:
        if self._tentative.trial is None:
            raise RuntimeError(f"{type(self).__name__}.{method}() must follow propose(loss)")
        return self._tentative.trial

    def _refuse_pending(self, method: str) -> None:
        super()._refuse_pending(method)
        trial = self._tentative.trial
        if trial is not None:
            raise RuntimeError(
                f"{type(self).__name__}.{method}() must not come between propose and resolve: "
                f"{trial.setting!r} waits for its verdict, call resolve(new_loss) first"
            )

    def _reset_scratch(self) -> None:
        self._tentative = TentativeStep(self.base, self._controls)
        self._held = None
