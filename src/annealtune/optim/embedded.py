"""The paper's method around any torch optimizer: read `EmbeddedTuner.step` first.

One iteration is Algorithm 2 of Fischetti and Stringher (2019): gradient, pick, tentative step,
second evaluation, accept or go back. The marks ``(l. n)`` at the right are its line numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from annealtune.annealing import Schedule, Setting, SimulatedAnnealing, Strategy
from annealtune.errors import NonFiniteLossError
from annealtune.optim.annealing_state import AnnealedOptimizer, AnnealingState, choose_strategy
from annealtune.optim.average import WeightAverage
from annealtune.optim.context import Context, Part, Watch
from annealtune.optim.minibatch import (
    ClosureMinibatch,
    Intake,
    Minibatch,
    Objective,
    Probe,
    ProbeMode,
    loss_in,
    not_callable,
    scalar,
    unread,
)
from annealtune.optim.options import (
    Choices,
    Controls,
    check_base,
    check_group,
    make_late_state,
)
from annealtune.optim.parameters import finite_marks, parameters_of, read, trained_of
from annealtune.optim.run_state import RandomState, Snapshot, StateOutside

Judge = Callable[[Any, Any], Any]
AcceptOn = Literal["loss", "error"] | Judge


class EmbeddedTuner(AnnealedOptimizer):
    r"""Tune the options of any optimizer inside the run, by simulated annealing.

    At every step a setting is picked from H, the base optimizer makes a tentative step with it,
    the loss is measured again on the same minibatch, and the step is kept with probability
    :math:`\min(1, e^{-worsening/T})` or undone bit for bit, also by an exception or Ctrl-C.

    Args:
        base: the optimizer whose steps are tried; any whose ``step`` needs no closure.
        model: the module that is trained: its buffers and its dropout belong to the undo.
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
        TypeError: if the base is no optimizer or needs a closure, or no model is given; in the
            first step, if the base keeps state elsewhere than in ``state`` and ``param_groups``.
        ValueError: if an argument breaks its rule.
        RanksError: in a step, if processes differ in weights, seeds or decisions.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> base = torch.optim.AdamW(model.parameters(), lr=1e-2)
        >>> opt = EmbeddedTuner(base, model, total_steps=10)
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
        neighborhood: Choices | None = None,
        temperature: float | Schedule | None = None,
        strategy: Strategy | str | None = None,
        accept_on: AcceptOn = "loss",
        epochs: int | None = None,
        total_steps: int | None = None,
        average: bool = False,
        seed: int = 0,
        probe_in: ProbeMode = "train",
        process_group: ProcessGroup | None = None,
    ) -> None:
        owner = type(self).__name__
        check_base(owner, base)
        context = Context(owner, base, model, process_group)
        self.averages = average
        self._judge = _judge(owner, accept_on)
        controls = Controls(owner, base)
        self.neighborhood = controls.fit(neighborhood)
        strategy = choose_strategy(owner, strategy, temperature, epochs, total_steps)
        self._annealing = AnnealingState(owner, strategy, seed, self.neighborhood, epochs)
        self._tentative = TentativeStep(context, controls)
        self._average = WeightAverage(owner, base, context.model) if average else None
        self._probe = Probe(context, probe_in)
        averages = () if self._average is None else (self._average,)
        super().__init__(context, Intake(context), self._annealing, self._tentative, *averages)

    @torch.no_grad()
    def step(
        self, closure: Callable[[], Any] | None = None, *, objective: Objective | None = None
    ) -> Any:
        """Make one iteration of Algorithm 2 on one minibatch and return its loss.

        Either ``step()`` after the backward of a function that `record` has wrapped; or
        ``step(closure)``, where the closure returns the loss and may call ``zero_grad`` and
        ``backward`` itself.

        Args:
            closure: computes the loss.
            objective: what the accept test compares instead of the loss, any scalar function;
                what it does to the weights, such as rounding them, is undone.

        Raises:
            NonFiniteLossError: if the loss at the current point is not finite.
            TypeError, ValueError: if there is no loss, or it is no scalar, or needs no gradient.
        """
        if closure is None and self._is_asked_to_initialise():
            return self.base.step()
        self._refuse_pending("step")
        tentative = self._tentative
        try:
            test = self._accept_test(closure, objective)
            self._intake.paused = True  # what is run from here on is this step's own
            training_loss = test.backpropagate()  # L(w) and its gradient v                  (l. 6)
            value = self._checked(test.before())
            draws = self._annealing.rng.getstate() if test.waits else None
            setting, new_value = self._choose(value, test)  # eta from H                     (l. 7)
            tentative.make(setting)  # w_new = w - eta v                                     (l. 8)
            if new_value is None:
                new_value = test.after()  # L(w_new)                                         (l. 9)
            values = self._known(test, value, new_value, draws)  # read all at once
            info = self._annealing.decide(setting, *values)  # worsening, prob          (l. 10-12)
            if info.accepted:
                tentative.keep()  # w = w_new                                               (l. 13)
            else:
                tentative.undo()  # w stays                                                 (l. 15)
            if self._ranks.count > 1:
                self._ranks.note_step()
            return training_loss
        except BaseException:
            self._probe.end()
            tentative.recover()  # leave no trace of a step that was cut off
            raise
        finally:
            self._intake.paused = False

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

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base; the next step writes its setting into it too."""
        check_group(type(self).__name__, param_group)
        super().add_param_group(param_group)

    def _accept_test(self, closure: Any, objective: Any) -> AcceptTest:
        owner = self._context.owner
        if self._judge is not None and (closure is None or objective is not None):
            raise TypeError(
                f"{owner}(accept_on=...) reads outputs and targets off a closure: step must be "
                "given a closure that returns (loss, outputs, targets) and no objective=..., got "
                f"{'an objective' if objective is not None else 'no closure'}"
            )
        if objective is not None and not callable(objective):
            raise not_callable(owner, "objective", objective)
        minibatch = self._intake.take(closure)
        about = self._annealing.whereabouts() if self._ranks.count > 1 else ()
        compared = objective, self._judge
        return AcceptTest(
            self._context, self._probe, minibatch, *compared, about, waits=self._can_wait()
        )

    def _can_wait(self) -> bool:
        """Tell whether a step may begin before its loss is known to be finite.

        If it is not, everything is put back: the tentative step, and what the pick drew. So it
        needs a strategy whose pick changes nothing but the generator, and no average, which the
        weights enter before the step.
        """
        return (
            type(self._annealing.strategy) is SimulatedAnnealing
            and self._average is None
            and not self._annealing.was_broken
        )

    def _checked(self, value: Tensor | float) -> Tensor | float:
        """Return the value at the current point, if everything is in place for a trial."""
        self._tentative.controls.refuse_schedulers()
        _check_gradients(self._context.owner, self.base)
        if isinstance(value, Tensor):
            return value
        if not math.isfinite(value):
            raise self._annealing.non_finite(value)
        # Else every step from here on would be undone, and the average would take them in.
        is_doubtful = self._annealing.was_broken or self._average is not None
        if is_doubtful and not self._context.weights_are_finite():
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
            chosen, new_value = self._annealing.pick(self.neighborhood), None
        else:
            measured: dict[Setting, float] = {}
            for setting in self._annealing.shortlist(self.neighborhood):
                self._tentative.make(setting)
                measured[setting] = float(test.after())
                self._tentative.undo()
            chosen = self._annealing.select(float(value), measured)
            new_value = measured[chosen]
        if self._average is not None:
            self._average.add()  # weights enter it when their loss is known to be finite
        return chosen, new_value

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({type(self.base).__name__}, {len(self.neighborhood)} settings "
            f"of {', '.join(self.neighborhood.options)}, {self.strategy!r})"
        )


class TentativeStep(Part):
    """A step of the base optimizer that is kept, or undone bit for bit.

    Args:
        context: the run.
        controls: writes a setting into the groups.
    """

    def __init__(self, context: Context, controls: Controls) -> None:
        self._context = context
        self.controls = controls
        self._end: RandomState | None = None  # before a step that waits for its verdict
        self._is_settled = True  # whether the verdict of the last one has been carried out
        self.renew()

    def renew(self) -> None:
        """Forget what was found out about the base and its groups."""
        self._before = Snapshot(self._context.base)
        # The kinds of settings, whatever their rate, that leave the gradients alone.
        self._sparing: set[tuple[Any, ...]] = set()
        self._is_checked = False  # whether the base is known to keep nothing elsewhere
        self.controls.note()

    def make(self, setting: Setting) -> None:
        """Step with a setting."""
        kind = tuple(map(setting.__getitem__, self.controls.options_but_rate))
        context = self._context
        self._before.take(gradients=kind not in self._sparing, others=context.written or ())
        outside = watch = None
        if not self._is_checked:
            outside, watch = StateOutside(context.base), Watch(context)
        self._end = RandomState.capture()
        self._step(setting)
        if outside is not None and watch is not None:
            self._before.add(watch.written())
            outside.refuse_changes(context.owner)
            self._is_checked = True
        # Some bases write into the gradients (SGD with foreach and Nesterov). Whether this one
        # does under such a setting is found out at the first try, which paid for a copy of them.
        if not self._before.gradients_are_untouched():
            self._sparing.discard(kind)
        elif kind not in self._sparing and setting.get("lr") != 0:
            self._sparing.add(kind)  # at a rate of 0 a base may do nothing at all

    def _step(self, setting: Setting) -> None:
        base = self._context.base
        self.controls.write(setting)
        try:
            base.step()
        except KeyError:  # an option was switched on whose state the first step did not make
            self._before.restore()
            self.controls.write(setting)
            if not make_late_state(base):
                raise
            base.step()

    def keep(self) -> None:
        """End the trial where it led to."""
        self._end, self._is_settled = None, False  # it cannot be undone now
        self._before.release()
        self.controls.note()
        self._is_settled = True

    def undo(self) -> None:
        """End the trial where it began."""
        assert self._end is not None
        self._before.restore()
        self._end.restore()
        self.keep()

    def recover(self) -> None:
        """Leave no trace of a trial that was cut off anywhere, nor a verdict half carried out."""
        if self._end is not None:
            self.undo()
        elif not self._is_settled:
            self.keep()


class AcceptTest:
    """The two values of one accept test, and the gradient of its minibatch.

    They are losses, or values of an objective, or of a judge: a function of the outputs and targets
    that the closure returns beside the loss. With several ranks they are means over all of them.

    Args:
        context: the run.
        probe: evaluates.
        minibatch: with its loss.
        objective: what is compared instead, if anything.
        judge: what is compared instead, if anything.
        about: what the ranks must have in common.
        waits: whether numbers may be read as late as in `known`, all at once: until then `before`
            and `after` return tensors. Ignored where a number is needed to go on.
    """

    def __init__(
        self,
        context: Context,
        probe: Probe,
        minibatch: Minibatch,
        objective: Objective | None,
        judge: Judge | None,
        about: tuple[object, ...],
        *,
        waits: bool,
    ) -> None:
        self._context = context
        self._ranks = context.ranks
        self.waits = waits and objective is None and judge is None and self._ranks.count == 1
        self._number = unread if self.waits else scalar
        self._about = about
        self._probe = probe
        self._minibatch = minibatch
        self._objective = objective
        self._judge = judge
        self._value: Tensor | float | None = None  # at the current point, once it is computed
        self._loss: Tensor | float = math.nan

    def backpropagate(self) -> Any:
        """Return the loss with its gradient in place, whatever of that the closure does itself."""
        owner, minibatch = self._context.owner, self._minibatch
        minibatch.first()
        compared = minibatch.compared()
        self._loss = self._number(owner, "closure", compared)
        judged = self._judged_parts(minibatch.result)
        if self._objective is None and self._probe.mode == "train":
            self._value = self._loss
            if judged and math.isfinite(float(self._loss)):
                end = RandomState.capture()
                self._value = self._judged(*judged)
                end.restore()
        return compared

    def before(self) -> Tensor | float:
        """Return what the accept test compares with, at the current point.

        A loss that is not finite comes first: its gradient leads nowhere, however well an
        objective such as the accuracy may hide that.

        Raises:
            NonFiniteLossError: if the loss is finite and what is compared instead is not.
        """
        if self.waits:
            if self._value is None:
                self._value = self._measure()
            return self._value
        several = self._ranks.count > 1
        loss = float(self._loss)
        if several:
            self._loss = loss = self._ranks.mean(loss, "loss", *self._about)
        if not math.isfinite(loss):
            return loss
        if self._value is None:
            value = float(self.after())
        elif several:
            value = self._ranks.mean(float(self._value), "value", *self._about)
        else:
            value = float(self._value)
        if not math.isfinite(value) and (self._judge is not None or self._objective is not None):
            compared = "accept_on" if self._objective is None else "objective"
            raise NonFiniteLossError(
                f"{self._context.owner}.step({compared}): the value at the current weights must be "
                f"finite, got {value!r} where the loss is {loss:.6g}; the weights are unchanged"
            )
        return value

    def after(self) -> Tensor | float:
        """Return what the accept test measures at the point where the weights are now.

        It is NaN where a weight is broken: an accuracy does not show that, nor does every loss.
        """
        value = self._measure()
        if self.waits:
            return value
        number = float(value) if self._context.weights_are_finite() else math.nan
        return self._ranks.mean(number, "after", *self._about) if self._ranks.count > 1 else number

    def known(self, value: Tensor | float, new_value: Tensor | float) -> tuple[float, float]:
        """Return what `before` and `after` returned as numbers: the one wait for the device."""
        if not self.waits:
            return float(value), float(new_value)
        marks = finite_marks(trained_of(self._context.base))
        loss, before, after, *rest = read(self._loss, value, new_value, *marks)
        if not all(map(math.isfinite, rest)) and not self._context.weights_are_finite():
            after = math.nan
        return (before if math.isfinite(loss) else loss), after

    def _measure(self) -> Tensor | float:
        try:
            return self._measured()
        except RuntimeError:  # it may differentiate to compute its loss; found out once
            if self._probe.differentiates:
                raise
            self._probe.differentiates = True
            return self._measured()

    def _measured(self) -> Tensor | float:
        minibatch, objective, owner = self._minibatch, self._objective, self._context.owner
        is_other = objective is not None
        is_closure = not is_other and isinstance(minibatch, ClosureMinibatch)
        with self._probe.replay(minibatch.start, weights=is_other, closure=is_closure):
            if objective is not None:
                return scalar(owner, "objective", objective())
            result = minibatch.evaluate()
            judged = self._judged_parts(result)
            value = self._number(owner, "closure", loss_in(result))
            if judged and math.isfinite(value):
                value = self._judged(*judged)
            return value

    def _judged_parts(self, result: Any) -> tuple[Any, ...]:
        """Return outputs and targets where a judge needs them."""
        if self._judge is None:
            return ()
        if not isinstance(result, tuple) or len(result) != 3:
            shown = f"a {type(result).__name__}" if isinstance(result, Tensor) else repr(result)
            raise TypeError(
                f"{self._context.owner}(accept_on=...) needs a closure that returns (loss, "
                f"outputs, targets), got {shown}"
            )
        return result[1:]

    def _judged(self, outputs: Any, targets: Any) -> float:
        assert self._judge is not None
        with torch.no_grad():
            return scalar(self._context.owner, "accept_on", self._judge(outputs, targets))


def _judge(owner: str, accept_on: Any) -> Judge | None:
    """Return the function of (outputs, targets) that moves are judged by; None for the loss."""
    if accept_on == "loss":
        return None
    if accept_on == "error":
        return error
    if not callable(accept_on):
        raise ValueError(
            f"{owner}(accept_on=...) must be 'loss', 'error' or a function of (outputs, targets), "
            f"got {accept_on!r}"
        )
    function: Judge = accept_on
    return function


def error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return one minus the accuracy: the share of targets that the largest output misses.

    Args:
        outputs: one score a class, of shape (samples, classes, ...).
        targets: class numbers, of shape (samples, ...).

    Raises:
        ValueError: if the shapes do not fit.

    Example:
        >>> error(torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 0])).item()
        0.5
    """
    if outputs.ndim < 2 or outputs.shape[:1] + outputs.shape[2:] != targets.shape:
        raise ValueError(
            "accept_on='error' must be given scores of shape (samples, classes, ...) and class "
            f"numbers of shape (samples, ...), got {tuple(outputs.shape)} and "
            f"{tuple(targets.shape)}; pass a function of (outputs, targets) for anything else"
        )
    return (outputs.argmax(1) != targets).double().mean()


def _check_gradients(owner: str, base: Optimizer) -> None:
    """Check that there is a gradient and that it can be undone.

    Raises:
        TypeError: if a gradient is sparse.
        ValueError: if no parameter has one.
    """
    has_one = False
    for p in parameters_of(base):
        if p.grad is None:
            continue
        has_one = True
        if p.grad.layout != torch.strided:
            raise TypeError(
                f"{owner}.step: gradients must be dense, got a sparse one; build the embedding "
                "with sparse=False"
            )
    if not has_one:
        raise ValueError(
            f"{owner}.step: at least one parameter must have a gradient, got none; call "
            "loss.backward() first, or pass a closure"
        )
