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
from annealtune.optim.annealing_state import AnnealedOptimizer, AnnealingState, choose_strategy
from annealtune.optim.context import Context, Part, Watch
from annealtune.optim.minibatch import (
    ClosureMinibatch,
    Intake,
    Minibatch,
    Objective,
    Probe,
    ProbeMode,
    as_loss,
    loss_in,
    not_callable,
    scalar,
)
from annealtune.optim.options import Choices, GroupRates, check_base, fitted, refuse_maximizing
from annealtune.optim.parameters import finite_marks, read, trained_of, write_setting
from annealtune.optim.run_state import RandomState, Snapshot, StateOutside

_MARK = "initial_lr"  # what a scheduler of the rate writes into the groups

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

    _family = "EmbeddedTuner"

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
        seed: int = 0,
        probe_in: ProbeMode = "train",
        process_group: ProcessGroup | None = None,
    ) -> None:
        owner = type(self).__name__
        check_base(owner, base)
        context = Context(owner, base, model, process_group)
        judges = {"loss": None, "error": error}
        self._judge: Judge | None = judges.get(accept_on, accept_on)  # type: ignore[arg-type]
        if self._judge is not None and not callable(self._judge):
            raise ValueError(
                f"{owner}(accept_on=...) must be 'loss', 'error' or a function of (outputs, "
                f"targets), got {accept_on!r}"
            )
        self.neighborhood = fitted(owner, base, neighborhood)
        strategy = choose_strategy(owner, strategy, temperature, epochs, total_steps)
        self._annealing = AnnealingState(owner, strategy, seed, self.neighborhood, epochs)
        self._tentative = TentativeStep(context, self.neighborhood.options)
        self._probe = Probe(context, probe_in)
        super().__init__(context, Intake(context), self._annealing, self._tentative)

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
        if self._keeper.pending:
            self._refuse_pending("step")
        annealing, tentative = self._annealing, self._tentative
        number, draws = annealing.step, annealing.rng.getstate()
        breeds = type(annealing.strategy).pick is not Strategy.pick  # or may do as much
        memory = annealing.strategy.state_dict() if breeds else None
        try:
            test = AcceptTest(self, self._intake.take(closure), objective)
            self._intake.paused = True  # what is run from here on is this step's own
            loss = test.begin()  # L(w) and its gradient v                                   (l. 6)
            if annealing.strategy.candidates == 1:
                setting = annealing.strategy.pick(self.neighborhood, annealing.rng)  # eta   (l. 7)
                tentative.make(setting)  # w_new = w - eta v                                 (l. 8)
                new_value = test.measure()  # L(w_new)                                       (l. 9)
            else:
                setting, new_value = self._best_of_several(test)
            info = annealing.decide(setting, *test.values(new_value))  #                (l. 10-12)
            if info.accepted:
                tentative.keep()  # w = w_new                                               (l. 13)
            else:
                tentative.undo()  # w stays                                                 (l. 15)
            if self._ranks.count > 1:
                self._ranks.note_step()
            return loss
        except BaseException:  # leave no trace of a step that was cut off
            self._probe.end()
            tentative.recover()
            if annealing.step == number:
                annealing.rng.setstate(draws)
                if memory is not None:
                    annealing.strategy.load_state_dict(memory)
            raise
        finally:
            self._intake.paused = False

    def _best_of_several(self, test: AcceptTest) -> tuple[Setting, float]:
        """Measure several settings, and step with the one that the strategy selects."""
        strategy = self._annealing.strategy
        measured: dict[Setting, float] = {}
        for setting in strategy.shortlist(self.neighborhood, self._annealing.rng):
            self._tentative.make(setting)
            measured[setting] = float(test.measure())
            self._tentative.undo()
        selected = strategy.select(float(test.value), measured)
        self._tentative.make(selected)
        return selected, measured[selected]

    def metrics(self) -> dict[str, float]:
        """Return the numbers to log after a step, by name: its rate, temperature, acceptance."""
        step, total = self.last_step, self._annealing.moves.total
        measured = {"temperature": self.temperature}
        if step is not None:
            measured["accepted"] = float(step.accepted)
            measured["acceptance"] = total.accepted / total.tried
            if "lr" in step.setting:
                measured["rate"] = float(step.setting["lr"])
        return measured

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base; the next step writes its setting into it too."""
        refuse_maximizing(type(self).__name__, self.base, param_group)
        super().add_param_group(param_group)


class TentativeStep(Part):
    """A step of the base optimizer that is kept, or undone bit for bit.

    Groups of different rates keep their ratios: a rate of H is that of the largest.
    """

    def __init__(self, context: Context, options: tuple[str, ...]) -> None:
        self._context = context
        self._rates = GroupRates(context.owner, context.base) if "lr" in options else None
        self._watched = (*options, _MARK) if "lr" in options else options
        self._end: RandomState | None = None  # before a step that waits for its verdict
        self._is_settled = True  # whether the verdict of the last one has been carried out
        self.renew()

    def renew(self) -> None:
        """Forget what was found out about the base and its groups."""
        base = self._context.base
        self._multiples = [1.0] * len(base.param_groups)
        if self._rates is not None:
            self._multiples = self._rates.multiples()
        self._before = Snapshot(base)
        # The kinds of settings, whatever their rate, that leave the gradients alone.
        self._sparing: set[tuple[Any, ...]] = set()
        self._is_checked = False  # whether the base is known to keep nothing elsewhere
        self._left = [(name, now if name != _MARK else None) for name, now in self._present()]

    def _present(self) -> list[tuple[str, Any]]:
        """Return what the groups hold; of a tensor, not to wait for it, how often it changed."""
        found = []
        for group in self._context.base.param_groups:
            for name in self._watched:
                value = group.get(name)
                found.append((name, value._version if isinstance(value, Tensor) else value))
        return found

    def make(self, setting: Setting) -> None:
        """Step with a setting."""
        present = self._present()
        if present != self._left:  # a scheduler would compound on random picks
            raise ValueError(
                f"{self._context.owner}: options of the neighborhood must not be written by "
                f"anything else, such as a scheduler, got {present} where the last step left "
                f"{self._left}. Take it away, or leave out of the neighborhood what it writes"
            )
        base, options = self._context.base, dict(setting)
        rate = options.pop("lr", None)
        kind = tuple(options.values())
        context = self._context
        self._before.take(gradients=kind not in self._sparing, others=context.written or ())
        outside = None if self._is_checked else StateOutside(base)
        is_watched = outside or base._optimizer_step_pre_hooks or base._optimizer_step_post_hooks
        watch = Watch(context, is_first=outside is not None) if is_watched else None
        self._end = RandomState.capture()
        write_setting(base, options if rate is None else {**options, "lr": rate}, self._multiples)
        try:
            base.step()
        except KeyError as missing:
            if not options.keys() - {"weight_decay"}:
                raise  # of a hook, say
            raise ValueError(
                f"{context.owner}(neighborhood=...) must not switch on an option whose state "
                f"{type(base).__name__} makes in the first step of a weight or never (amsgrad, "
                f"centered, momentum of RMSprop), got {setting}, which needs {missing}; leave the "
                "option out of the neighborhood"
            ) from missing
        if watch is not None:
            self._before.add(watch.written())
        if outside is not None:
            outside.refuse_changes(context.owner)
            self._is_checked = True
        # Some bases write into the gradients (SGD with foreach and Nesterov). Whether this one
        # does under such a setting is found out at the first try, which paid for a copy of them.
        if not self._before.gradients.are_untouched():
            self._sparing.discard(kind)
        elif rate != 0:
            self._sparing.add(kind)  # at a rate of 0 a base may do nothing at all

    def keep(self) -> None:
        """End the trial where it led to."""
        self._end, self._is_settled = None, False  # it cannot be undone now
        self._before.release()
        self._left = self._present()
        self._is_settled = True

    def undo(self) -> None:
        """End the trial where it began."""
        assert self._end is not None
        self._before.restore()
        self._end.put_back()
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

    A step waits for its device once, in `values`. So it may begin before its loss is known to be
    finite; if it is not, everything is put back, also what the pick has drawn. That needs a
    strategy whose pick changes nothing but the generator. All others know their numbers at once.

    Attributes:
        value: what is compared, at the current point.
    """

    value: Tensor | float

    def __init__(
        self, tuner: EmbeddedTuner, minibatch: Minibatch, objective: Objective | None
    ) -> None:
        self._context = tuner._context
        self._ranks = tuner._context.ranks
        self._annealing = tuner._annealing
        self._probe = tuner._probe
        self._judge = tuner._judge
        self._minibatch = minibatch
        self._objective = objective
        self._what = "loss"  # that is compared
        if self._judge is not None:
            self._what = "accept_on"
        if objective is not None:
            self._what = "objective"
            self._check_objective()
        self._waits = (
            self._what == "loss"
            and self._ranks.count == 1
            and type(self._annealing.strategy) is SimulatedAnnealing
            and not self._annealing.was_broken
        )

    def _check_objective(self) -> None:
        if self._judge is not None:
            raise TypeError(
                f"{self._context.owner}(accept_on=...) and step(objective=...) must not be given "
                f"both, for either is what is compared, got {self._objective!r}"
            )
        if not callable(self._objective):
            raise not_callable(self._context.owner, "objective", self._objective)

    def begin(self) -> Any:
        """Return the loss, with its gradient in place, and take what is compared with it."""
        minibatch, annealing = self._minibatch, self._annealing
        minibatch.first()
        self._trained = trained_of(self._context.base)
        if not self._trained:
            raise ValueError(
                f"{self._context.owner}.step: at least one parameter must have a gradient, got "
                "none; call loss.backward() first, or pass a closure"
            )
        for p in self._trained:
            if p.grad is not None and p.grad.layout != torch.strided:
                raise TypeError(
                    f"{self._context.owner}.step: gradients must be dense, got a sparse one; build "
                    "the embedding with sparse=False"
                )
        loss = self._loss = self.value = minibatch.compared()
        if not self._waits:
            self.value = annealing.mean(self._ranks, float(loss), "loss")
            if not math.isfinite(self.value):
                raise annealing.non_finite(self.value)
        if self._objective is not None or self._probe.mode == "eval":
            self.value = self.measure()
        elif self._judge is not None:
            end = RandomState.capture()
            self.value = annealing.mean(self._ranks, self._judged(minibatch.result), "value")
            end.put_back()
        if not self._waits:
            # Where weights are broken, every step from here on would be undone.
            is_sound = not annealing.was_broken or self._context.weights_are_finite()
            if not (math.isfinite(self.value) and is_sound):
                raise annealing.non_finite(float(self.value), self._what)
        return loss

    def measure(self) -> Tensor | float:
        """Return what is compared, at the point where the weights are now.

        It is NaN where a weight is broken: an accuracy does not show that, nor does every loss.
        """
        objective, owner, minibatch = self._objective, self._context.owner, self._minibatch
        is_closure = objective is None and isinstance(minibatch, ClosureMinibatch)
        is_other = objective is not None
        try:
            with self._probe.replay(minibatch.start, weights=is_other, closure=is_closure):
                result = minibatch.evaluate() if objective is None else objective()
                found = result if is_other else loss_in(result)
                # A loss that is not finite comes first, however well an accuracy may hide that.
                if self._judge is not None and math.isfinite(scalar(owner, "closure", found)):
                    found = self._judged(result)
        except RuntimeError:  # it may differentiate to compute its loss, which is found out once
            self._probe.differentiates = not self._probe.differentiates
            if not self._probe.differentiates:
                raise  # that was not it
            return self.measure()
        value = as_loss(owner, "closure" if objective is None else "objective", found)
        if self._waits:
            return value
        number = float(value) if self._context.weights_are_finite() else math.nan
        return self._annealing.mean(self._ranks, number, "after")

    def values(self, new_value: Tensor | float) -> tuple[float, float]:
        """Return both values as numbers, the second one as `measure` returned it.

        Raises:
            NonFiniteLossError: if the loss at the current point is not finite.
        """
        if not self._waits:
            return float(self.value), float(new_value)
        marks = finite_marks(self._trained)
        loss, value, new, *rest = read(self._loss, self.value, new_value, *marks)
        if not (math.isfinite(loss) and math.isfinite(value)):
            raise self._annealing.non_finite(value if math.isfinite(loss) else loss)
        if not all(map(math.isfinite, rest)) and not self._context.weights_are_finite():
            new = math.nan
        return value, new

    @torch.no_grad()
    def _judged(self, result: Any) -> float:
        """Return the judgement of the outputs and targets that a closure returned."""
        assert self._judge is not None
        if not (isinstance(result, tuple) and len(result) == 3):
            shown = f"a {type(result).__name__}" if isinstance(result, Tensor) else repr(result)
            raise TypeError(
                f"{self._context.owner}(accept_on=...): step must be given a closure that returns "
                f"(loss, outputs, targets), got {shown}"
            )
        return scalar(self._context.owner, "accept_on", self._judge(*result[1:]))


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
