"""SSA: training without gradients, by random displacements of all weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from annealtune.annealing import Schedule, Setting, Strategy
from annealtune.annealing.arguments import positive
from annealtune.optim.annealing_state import (
    AnnealedOptimizer,
    AnnealingState,
    Preset,
    StepInfo,
    choose_strategy,
    preset_temperature,
)
from annealtune.optim.context import Context, Part, Watch, check_model
from annealtune.optim.minibatch import Intake, Minibatch, Probe, scalar
from annealtune.optim.parameters import are_finite, parameters_of
from annealtune.optim.run_state import Snapshot

PAPER_COOLING_FACTOR = 0.97  # caption of Figure 1
SCRIPT_FLOOR = 1e-10
_ENOUGH = 0.6  # share of improving moves below which the radius of the authors' program shrinks


class Shrinking(Part):
    """A radius that is divided after an epoch in which less than 60 % of the moves improve.

    Moves that leave the objective as it is, frequent with an accuracy, are not counted.

    Args:
        initial: the first radius.
        factor: what it is divided by; 1 keeps it.

    Example:
        >>> Shrinking().initial
        0.01
    """

    def __init__(self, initial: float = 0.01, factor: float = 10.0) -> None:
        self.initial = positive("Shrinking(initial=...)", initial)
        self.factor = positive("Shrinking(factor=...)", factor)
        if self.factor < 1:
            raise ValueError(f"Shrinking(factor=...) must not be below 1, got {factor!r}")
        self._tried = self._improved = 0  # in this epoch

    def add(self, info: StepInfo) -> None:
        """Count a move."""
        self._tried += info.worsening != 0
        self._improved += info.improved

    def shrinks(self) -> bool:
        """Tell at the end of an epoch whether too few moves improved it; start again."""
        is_due = self._tried > 0 and self._improved / self._tried < _ENOUGH
        self._tried = self._improved = 0
        return is_due

    def state_dict(self) -> dict[str, Any]:
        """Return the counts."""
        return {"epoch_tried": self._tried, "epoch_improved": self._improved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._tried, self._improved = state["epoch_tried"], state["epoch_improved"]


class StochasticSA(AnnealedOptimizer):
    r"""Derivative-free training by simulated annealing (the paper's SSA).

    Every step draws a standard normal direction D, tries :math:`w' = w - \epsilon D` and
    :math:`w'' = w + \epsilon D` on the minibatch, and keeps the better one by the Metropolis rule.
    The objective need not be differentiable: one minus the accuracy will do. D is drawn again from
    its seed, one tensor at a time, whenever it is needed: beside a forward without gradients a
    step takes the memory of one copy of the weights.

    Args:
        model: the module that is trained.
        radius: epsilon; a number is constant, `Shrinking` adapts it; by default 0.01.
        preset: ``"paper-text"`` (constant radius 0.01, T0 = 1, alpha = 0.97 per epoch),
            ``"paper-code"`` (the temperature times ``batch_size``, evaluations in evaluation mode,
            the shrinking radius), or None.
        temperature: a number (constant) or a schedule; by default in units of what is measured.
        strategy: another metaheuristic instead of simulated annealing.
        epochs: planned number of epochs, for the default temperature.
        total_steps: planned number of steps, for the default temperature.
        batch_size: size of a minibatch, needed by ``"paper-code"``.
        seed: of the optimizer's own generator.
        process_group: of the processes that train copies of this model together, each on
            minibatches of its own; by default all of torch.distributed. They exchange losses alone:
            every one draws the same directions. No DDP is needed.

    Raises:
        TypeError, ValueError: if an argument breaks its rule.
        RanksError: in a step, if processes differ in weights, seeds or decisions.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> opt = StochasticSA(model, radius=0.05, temperature=0.0)
        >>> x, y = torch.ones(4, 2), torch.zeros(4, 1)
        >>> for _ in range(20):
        ...     loss = opt.step(lambda: nn.functional.mse_loss(model(x), y))
        >>> bool(nn.functional.mse_loss(model(x), y) <= loss)
        True

    Reference:
        Fischetti and Stringher (2019), Section 2.2 and Figure 1.
    """

    base: _Displacement

    _family = "StochasticSA"

    def __init__(
        self,
        model: nn.Module,
        *,
        radius: float | Shrinking | None = None,
        preset: Preset | None = None,
        temperature: float | Schedule | None = None,
        strategy: Strategy | str | None = None,
        epochs: int | None = None,
        total_steps: int | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        process_group: ProcessGroup | None = None,
    ) -> None:
        check_model("StochasticSA", model)
        if radius is None:
            radius = Shrinking() if preset == "paper-code" else Shrinking().initial
        if isinstance(radius, Shrinking):
            self._shrinking = copy.copy(radius)  # one object can be given to many runs
        else:
            self._shrinking = Shrinking(positive("StochasticSA(radius=...)", radius), factor=1.0)
        if preset is not None:
            temperature = preset_temperature(
                "StochasticSA", preset, temperature, batch_size, PAPER_COOLING_FACTOR, SCRIPT_FLOOR
            )
        strategy = choose_strategy("StochasticSA", strategy, temperature, epochs, total_steps)
        if strategy.picks_settings:
            raise TypeError(
                "StochasticSA(strategy=...) must only decide, for there is no H to choose a "
                f"setting from, got {strategy!r}"
            )
        base = _Displacement(model.parameters(), {"radius": self._shrinking.initial})
        context = Context("StochasticSA", base, model, process_group)
        self._probe = Probe(context, "eval" if preset == "paper-code" else "train")
        self._annealing = AnnealingState("StochasticSA", strategy, seed, epochs=epochs)
        self._before = Snapshot(base)
        self._is_trying = False  # whether the weights are those of a trial
        intake = Intake(context, differentiates=False)
        super().__init__(context, intake, self._annealing, self._shrinking)

    @property
    def radius(self) -> float:
        """The radius of the first group."""
        return float(self.param_groups[0]["radius"])

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Try one random direction both ways on one minibatch; return the objective before.

        Args:
            closure: returns the objective, a number or a tensor of one element; called three times
                without gradients, its ``backward`` calls are skipped. Not needed after a call of a
                function that `record` has wrapped.

        Raises:
            NonFiniteLossError: if the objective at the current point is not finite.
            TypeError, ValueError: if the closure is not callable or does not return a scalar.
        """
        if closure is None and self._is_asked_to_initialise():
            return None
        self._refuse_pending("step")
        minibatch = self._intake.take(closure)
        if not any(p.requires_grad for p in parameters_of(self.base)):
            raise ValueError(
                "StochasticSA.step: at least one parameter must have requires_grad=True, got none"
            )
        annealing = self._annealing
        number, draws = annealing.step, annealing.rng.getstate()
        try:
            self._intake.paused = True
            if closure is None and self._probe.mode == "train":
                objective = minibatch.compared()  # the caller has made this forward
            elif closure is None:  # its writes and random numbers stay those of the caller's
                with self._probe.replay(minibatch.start, closure=True):
                    objective = minibatch.evaluate()
            else:
                with self._intake.forward(), self._probe.plain_forward():
                    objective = minibatch.evaluate()
            value = scalar("StochasticSA", "closure", objective)
            value = annealing.mean(self._ranks, value, "before")
            was_broken = annealing.was_broken
            if not math.isfinite(value) or (was_broken and not self._weights_are_finite()):
                raise annealing.non_finite(value)
            self._before.take(others=self._context.written or ())
            self._is_trying = True
            new_value = self._move_to_the_better_side(minibatch)
            info = annealing.decide(Setting({"radius": self.radius}), value, new_value)
            if not info.accepted:
                self._before.restore()
            self._is_trying = False
            self._shrinking.add(info)
            if self._ranks.count > 1:
                self._ranks.note_step()
            return objective
        except BaseException:  # an interrupted trial leaves no trace
            self._probe.end()
            if self._is_trying:
                self._before.restore()
                self._is_trying = False
            if annealing.step == number:
                annealing.rng.setstate(draws)
            raise
        finally:
            self._intake.paused = False

    def cool(self) -> None:
        """Note the end of an epoch: cool, and shrink the radius where too few moves improve."""
        super().cool()
        if self._shrinking.shrinks():
            for group in self.param_groups:
                group["radius"] /= self._shrinking.factor

    def _move_to_the_better_side(self, minibatch: Minibatch) -> float:
        """Leave the weights at the better of w' and w''; return the objective there."""
        direction = int(self._annealing.rng.random() * 2**53)
        hooks, is_first = self.base._optimizer_step_post_hooks, self._annealing.step == 0
        watch = Watch(self._context, is_first=is_first) if hooks else None
        self.base.displace(direction, -1.0)  # w' = w - eps D
        if watch is not None:  # hooks may write what nobody trains
            self._before.add(watch.written())
        minus = self._evaluate(minibatch)
        self._before.restore()
        self.base.displace(direction, +1.0)  # w'' = w + eps D
        plus = self._evaluate(minibatch)
        if math.isfinite(plus) and not (math.isfinite(minus) and minus <= plus):
            return plus
        self._before.restore()
        self.base.displace(direction, -1.0)
        return minus

    def _evaluate(self, minibatch: Minibatch) -> float:
        with self._probe.replay(minibatch.start, closure=True):
            value = scalar("StochasticSA", "closure", minibatch.evaluate())
        value = value if self._weights_are_finite() else math.nan
        return self._annealing.mean(self._ranks, value, "after")

    def _weights_are_finite(self) -> bool:
        return are_finite(p for p in parameters_of(self.base) if p.requires_grad)


class _Displacement(Optimizer):
    """Moves all weights along a random direction that is known by its seed alone."""

    def displace(self, seed: int, sign: float) -> None:
        """Add ``sign * radius * D`` to every weight that is trained."""
        generators: dict[torch.device, torch.Generator] = {}
        for group in self.param_groups:
            for p in group["params"]:
                if not p.requires_grad:
                    continue
                if p.device not in generators:
                    generators[p.device] = torch.Generator(p.device).manual_seed(seed)
                # Beyond the largest number of its kind torch refuses a factor.
                radius = min(group["radius"], torch.finfo(p.dtype).max)
                direction = torch.empty_like(p).normal_(generator=generators[p.device])
                p.add_(direction, alpha=sign * radius)
        for hook in self._optimizer_step_post_hooks.values():  # this is its step
            hook(self, (), {})
