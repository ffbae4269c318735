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
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from annealtune.annealing import Schedule, Setting, SimulatedAnnealing, Strategy
from annealtune.optim.annealing_state import AnnealingState, choose_strategy
from annealtune.optim.averaging import WeightAverage, no_average
from annealtune.optim.evaluation.accept_test import AcceptTest, check_way
from annealtune.optim.evaluation.intake import Intake
from annealtune.optim.evaluation.minibatch import scalar
from annealtune.optim.evaluation.objectives import AcceptOn, judge
from annealtune.optim.evaluation.probe import Probe, ProbeMode
from annealtune.optim.evaluation.random_state import RandomState
from annealtune.optim.evaluation.wrappers import unwrapped
from annealtune.optim.options import checks
from annealtune.optim.options.controls import Choices, Controls, Scales
from annealtune.optim.options.loop_options import LoopOption
from annealtune.optim.parameters import check_gradients
from annealtune.optim.pick import Pick
from annealtune.optim.ranks import Ranks
from annealtune.optim.step_info import Moves, StepInfo
from annealtune.optim.trial.tentative import TentativeStep, Trial
from annealtune.optim.wrapper import OptimizerWrapper


class EmbeddedTuner(OptimizerWrapper):
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
        process_group: of the processes that train this model together, by default all of
            torch.distributed: they compare the means of their losses and decide alike.

    Raises:
        TypeError: if the base is no optimizer or needs a closure; in the first step, if it keeps
            state elsewhere than in ``state`` and ``param_groups``.
        ValueError: if an argument breaks its rule.
        RanksError: in a step, if processes differ in weights, seeds or decisions.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> base = torch.optim.AdamW(model.parameters(), lr=1e-2)
        >>> opt = EmbeddedTuner(base, model=model, total_steps=10)
        >>> x, y = torch.randn(8, 2), torch.randn(8, 1)
        >>> for _ in range(10):
        ...     loss = opt.step(lambda: nn.functional.mse_loss(model(x), y))
        >>> opt.moves.total.tried
        10

    Reference:
        Fischetti and Stringher (2019), Section 3 and Algorithm 2.
    """

    def __init__(
        self,
        base: Optimizer,
        model: nn.Module | None = None,
        *,
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
        process_group: ProcessGroup | None = None,
    ) -> None:
        owner = type(self).__name__
        checks.check_base(owner, base)
        ranks = Ranks(owner, base, process_group)
        intake = Intake(owner, base, model, ranks)
        self.model = model = unwrapped(model)
        self.averages = average
        self._judge = judge(owner, accept_on)
        self._controls = Controls(owner, base, loop, group_scales)
        self.neighborhood = self._controls.fit(neighborhood)
        strategy = choose_strategy(owner, strategy, temperature, epochs, total_steps)
        self._annealing = AnnealingState(owner, strategy, seed, self.neighborhood, epochs)
        self._annealing.refuse_comparing_if(self._controls.loop_options)
        self._pick = Pick(self._annealing, self._controls, self.neighborhood)
        self._tentative = TentativeStep(base, self._controls)
        self._average = WeightAverage(owner, base, model) if average else None
        self._probe = Probe(owner, model, buffers, base, probe_in, intake.forward, intake.wrappers)
        averages = () if self._average is None else (self._average,)
        super().__init__(
            base, intake, ranks, self._annealing, self._pick, self._tentative, *averages
        )

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
            test = self._accept_test(closure, loss, probe, objective, rng_state)
            training_loss = test.backpropagate()  # L(w) and its gradient v                  (l. 6)
            value = self._checked(test.before())
            draws = self._annealing.rng.getstate() if test.waits else None
            setting, new_value = self._choose(value, test)  # eta from H                     (l. 7)
            self._try(setting, math.nan, test.start)  # w_new = w - eta v                    (l. 8)
            if new_value is None:
                new_value = test.after()  # L(w_new)                                         (l. 9)
            values = self._known(test, value, new_value, draws)  # read all at once
            self._decide(*values)  # worsening, prob, accept or go back                 (l. 10-17)
            return training_loss
        except BaseException:
            self._recover()
            raise

    @torch.no_grad()
    def propose(
        self, loss: Tensor | float, *, rng_state: Tensor | RandomState | None = None
    ) -> Setting:
        """Pick a setting and make the tentative step; the gradient of ``loss`` is in place.

        Where the accept test is to compare something else, give its value instead of the loss.
        """
        self._refuse_pending("propose")
        try:
            start = self._intake.take_start(rng_state)
            value = scalar(type(self).__name__, "loss", loss)
            value = float(self._checked(self._annealing.mean(self._ranks, value, "loss")))
            setting = self._pick.take()
            self._try(setting, value, start)
            return setting
        except BaseException:
            self._recover()
            raise

    @torch.no_grad()
    def resolve(self, new_loss: Tensor | float) -> StepInfo:
        """Keep the tentative step or go back, by the loss at the tentative point."""
        if self._tentative.trial is None:
            raise RuntimeError(f"{type(self).__name__}.resolve() must follow propose(loss)")
        value = scalar(type(self).__name__, "new_loss", new_loss)
        if not self._probe.weights_are_finite():
            value = math.nan  # whatever the loss says
        try:
            new_value = self._annealing.mean(self._ranks, value, "after")
            return self._decide(self._tentative.trial.value, new_value)
        except BaseException:
            self._recover()
            raise

    def prepare(self) -> Setting:
        """Pick the setting of the next step now, and give the loop its options of it.

        `step` with a closure does it by itself. Where the forward comes first and H holds options
        of the loop, call it before the forward; called twice, it does nothing more.
        """
        self._refuse_pending("prepare")
        return self._pick.make()

    @property
    def steps(self) -> int:
        """Calls of `step` so far."""
        return self._annealing.step

    @property
    def last_step(self) -> StepInfo | None:
        """What the last step tried and what became of it; None before the first."""
        return self._annealing.last_step

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

    def metrics(self) -> dict[str, float]:
        """Return the numbers to log after a step, by name: its rate, temperature, acceptance."""
        step, total = self.last_step, self.moves.total
        measured = {"temperature": self.temperature}
        if step is not None:
            measured["accepted"] = float(step.accepted)
            measured["acceptance"] = total.accepted / total.tried
            if "lr" in step.setting:
                measured["rate"] = float(step.setting["lr"])
        return measured

    @property
    def moves(self) -> Moves:
        """How often each setting was tried, improved the loss and was accepted."""
        return self._annealing.tally.moves()

    def summary(self) -> str:
        """Return `moves` as a table."""
        return str(self.moves)

    def probing(self) -> AbstractContextManager[None]:
        """Evaluate as the accept test does: same dropout, buffers and ``.grad`` kept.

        Between `propose` and `resolve` this is the loss at the tentative point; before `propose` it
        is the one to propose where ``probe_in="eval"``, which compares other losses.
        """
        trial = self._tentative.trial
        return self._probe.replay(self._intake.start() if trial is None else trial.start)

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
        checks.check_group(type(self).__name__, param_group)
        super().add_param_group(param_group)

    def _accept_test(
        self, closure: Any, loss: Any, probe: Any, objective: Any, rng_state: Tensor | None
    ) -> AcceptTest:
        owner = type(self).__name__
        check_way(owner, closure, loss, probe, objective, self._judge)
        if closure is not None and self._controls.loop_options:
            self._pick.make()  # the forward depends on it
        minibatch = self._intake.take(closure, loss, probe or objective, rng_state)
        if objective is not None:
            self._intake.forward.expected = None  # it may evaluate the model as it likes
        about = self._annealing.whereabouts() if self._ranks.count > 1 else ()
        return AcceptTest(
            owner,
            self._probe,
            minibatch,
            objective,
            self._judge,
            self._ranks,
            about,
            waits=self._can_wait(),
        )

    def _can_wait(self) -> bool:
        """Tell whether a step may begin before its loss is known to be finite.

        If it is not, everything is put back: the tentative step, and what the pick drew. So it
        needs a strategy whose pick changes nothing but the generator, and no average, which the
        weights enter before the step.
        """
        return (
            type(self._annealing.strategy) is SimulatedAnnealing
            and not self._controls.loop_options
            and self._average is None
            and not self._annealing.was_broken
        )

    def _checked(self, value: Tensor | float) -> Tensor | float:
        """Return the value at the current point, if everything is in place for a trial."""
        self._controls.refuse_schedulers()
        check_gradients(type(self).__name__, self.base)
        if isinstance(value, Tensor):
            return value
        if not math.isfinite(value):
            raise self._annealing.non_finite(value)
        # Else every step from here on would be undone, and the average would take them in.
        is_doubtful = self._annealing.was_broken or self._average is not None
        if is_doubtful and not self._probe.weights_are_finite():
            raise self._annealing.broken_weights(value)
        return value

    def _known(
        self, test: AcceptTest, value: Tensor | float, new_value: Tensor | float, draws: Any
    ) -> tuple[float, float]:
        """Return both values as numbers; if the first is not finite, forget what was drawn."""
        value, new_value = test.known(value, new_value)
        if draws is not None and not math.isfinite(value):
            self._annealing.rng.setstate(draws)
            raise self._annealing.non_finite(value)
        return value, new_value

    def _choose(
        self, value: Tensor | float, test: AcceptTest
    ) -> tuple[Setting, Tensor | float | None]:
        """Return the setting of the move and, where several were compared, what it leads to."""
        if not self._annealing.compares:
            return self._pick.take(), None
        measured: dict[Setting, float] = {}
        for setting in self._annealing.shortlist(self.neighborhood):
            self._tentative.make(Trial(setting, math.nan, test.start, RandomState.capture()))
            measured[setting] = float(test.after())
            self._tentative.undo()
        selected = self._annealing.select(float(value), measured)
        return selected, measured[selected]

    def _try(self, setting: Setting, value: float, start: RandomState) -> None:
        if self._average is not None:
            self._average.add()  # weights enter it when their loss is known to be finite
        self._tentative.make(Trial(setting, value, start, RandomState.capture()))

    def _decide(self, value: float, new_value: float) -> StepInfo:
        trial = self._tentative.trial
        assert trial is not None
        info = self._annealing.decide(trial.setting, value, new_value)  # Metropolis        (10-12)
        if info.accepted:
            self._tentative.keep()  # w = w_new                                             (l. 13)
        else:
            self._tentative.undo()  # w stays                                               (l. 15)
        if self._ranks.count > 1:
            self._ranks.note_step()
        self._intake.forward.state = None  # whatever was noted meanwhile belongs to this step
        return info

    def _recover(self) -> None:
        """Undo whatever of a step was under way when it was cut off."""
        self._probe.end()
        self._tentative.recover()
        self._pick.recover()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({type(self.base).__name__}, {len(self.neighborhood)} settings "
            f"of {', '.join(self.neighborhood.options)}, {self.strategy!r})"
        )
