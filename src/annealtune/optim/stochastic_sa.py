"""SSA: training without gradients, by random displacements of all weights."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import nn
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from annealtune.annealing import Schedule, Setting, Strategy
from annealtune.annealing.arguments import number
from annealtune.optim.annealing_state import (
    AnnealedOptimizer,
    AnnealingState,
    Preset,
    choose_strategy,
    preset_temperature,
)
from annealtune.optim.context import Context, Part
from annealtune.optim.minibatch import Intake, Probe, scalar
from annealtune.optim.parameters import are_finite, parameters_of
from annealtune.optim.run_state import RandomState, Snapshot
from annealtune.optim.step_info import StepInfo

PAPER_COOLING_FACTOR = 0.97  # caption of Figure 1
SCRIPT_FLOOR = 1e-10

Scaling = Literal["none", "rms"]


@dataclasses.dataclass(frozen=True)
class Shrinking:
    """A radius that is divided whenever too few moves of an epoch improve the objective.

    Args:
        initial: the first radius.
        below: share of improving moves under which the radius shrinks at the end of the epoch;
            moves that leave the objective as it is, frequent with an accuracy, are not counted.
        factor: what it is divided by.

    Example:
        >>> Shrinking().initial
        0.01
    """

    initial: float = 0.01
    below: float = 0.6
    factor: float = 10.0

    def __post_init__(self) -> None:
        _check_radius("Shrinking(initial=...)", self.initial)
        if not 0 <= number("Shrinking(below=...)", self.below) <= 1:
            raise ValueError(f"Shrinking(below=...) must lie in [0, 1], got {self.below!r}")
        if not 1 < number("Shrinking(factor=...)", self.factor) < math.inf:
            raise ValueError(f"Shrinking(factor=...) must exceed 1, got {self.factor!r}")


class StochasticSA(AnnealedOptimizer):
    r"""Derivative-free training by simulated annealing (the paper's SSA).

    Every step draws a standard normal direction D, tries :math:`w' = w - \epsilon D` and
    :math:`w'' = w + \epsilon D` on the minibatch, and keeps the better one by the Metropolis rule.
    The objective need not be differentiable: one minus the accuracy will do. D is drawn again from
    its seed, one tensor at a time, whenever it is needed: beside a forward without gradients a
    step takes the memory of one copy of the weights.

    Args:
        model_or_params: the module, or parameters or parameter groups (a group may have a
            ``radius`` of its own).
        model: the module, needed where parameters or groups are given.
        radius: epsilon; a number is constant, `Shrinking` adapts it; by default 0.01.
        preset: ``"paper-text"`` (constant radius 0.01, T0 = 1, alpha = 0.97 per epoch),
            ``"paper-code"`` (the temperature times ``batch_size``, evaluations in evaluation mode,
            the shrinking radius), or None.
        temperature: a number (constant) or a schedule; by default in units of what is measured.
        strategy: another metaheuristic instead of simulated annealing.
        epochs: planned number of epochs, for the default temperature.
        total_steps: planned number of steps, for the default temperature.
        batch_size: size of a minibatch, needed by ``"paper-code"``.
        scaling: ``"none"`` moves all weights by the same radius, ``"rms"`` each tensor in
            proportion to the root mean square of its weights (at least 0.001).
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

    def __init__(
        self,
        model_or_params: nn.Module | Iterable[Any],
        *,
        model: nn.Module | None = None,
        radius: float | Shrinking | None = None,
        preset: Preset | None = None,
        temperature: float | Schedule | None = None,
        strategy: Strategy | str | None = None,
        epochs: int | None = None,
        total_steps: int | None = None,
        batch_size: int | None = None,
        scaling: Scaling = "none",
        seed: int = 0,
        process_group: ProcessGroup | None = None,
    ) -> None:
        params: Any = model_or_params
        if isinstance(model_or_params, nn.Module):
            model, params = model_or_params, model_or_params.parameters()
        if radius is None:
            radius = Shrinking() if preset == "paper-code" else Shrinking().initial
        if preset is not None:
            temperature = preset_temperature(
                "StochasticSA", preset, temperature, batch_size, PAPER_COOLING_FACTOR, SCRIPT_FLOOR
            )
        if scaling not in ("none", "rms"):
            raise ValueError(f"StochasticSA(scaling=...) must be 'none' or 'rms', got {scaling!r}")
        self._shrinking = radius if isinstance(radius, Shrinking) else None
        initial = radius.initial if isinstance(radius, Shrinking) else radius
        strategy = choose_strategy("StochasticSA", strategy, temperature, epochs, total_steps)
        if getattr(strategy, "picks_settings", False):
            raise TypeError(
                "StochasticSA(strategy=...) must be a strategy that only decides: there is no H to "
                f"choose a setting from, got {strategy!r}"
            )
        base = _Displacement(params, initial, scaling)
        context = Context("StochasticSA", base, model, process_group)
        self._probe = Probe(context, "eval" if preset == "paper-code" else "train")
        self._annealing = AnnealingState("StochasticSA", strategy, seed, epochs=epochs)
        self._epoch = _Epoch()
        self._before = Snapshot(base)
        self._is_trying = False  # whether the weights are those of a trial
        intake = Intake(context, differentiates=False)
        super().__init__(context, intake, self._annealing, self._epoch)

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
        recorded = self._intake.take_calls()
        if closure is not None:
            recorded = None
        closure = closure if recorded is None else recorded.evaluate
        if not callable(closure):
            raise TypeError(
                "StochasticSA.step(closure) must be given a function, or follow the call of one "
                f"that opt.record(fn) has wrapped, got {closure!r}"
            )
        if not any(p.requires_grad for p in parameters_of(self.base)):
            raise ValueError(
                "StochasticSA.step: at least one parameter must have requires_grad=True, for "
                "frozen ones are not moved, got none"
            )
        self._ranks.begin()
        try:
            start = RandomState.capture() if recorded is None else recorded.start
            if recorded is not None and self._probe.mode == "train":
                objective = recorded.compared()  # the caller has made this forward
            else:
                with self._intake.silence(), self._probe.plain_forward():
                    objective = closure()
            value = scalar("StochasticSA", "closure", objective)
            value = self._annealing.mean(self._ranks, value, "before")
            if not math.isfinite(value):
                raise self._annealing.non_finite(value)
            if self._annealing.was_broken and not self._weights_are_finite():
                raise self._annealing.broken_weights(value)
            self._before.take()
            self._is_trying = True
            new_value = self._move_to_the_better_side(closure, start)
            info = self._annealing.decide(Setting({"radius": self.radius}), value, new_value)
            if not info.accepted:
                self._before.restore()
            self._is_trying = False
            self._epoch.add(info)
            if self._ranks.count > 1:
                self._ranks.note_step()
            return objective
        except BaseException:  # an interrupted trial leaves no trace
            self._probe.end()
            if self._is_trying:
                self._before.restore()
                self._is_trying = False
            raise

    def cool(self) -> None:
        """Note the end of an epoch: cool, and shrink the radius where too few moves improve."""
        self._annealing.tick("epoch")
        share = self._epoch.end()
        if self._shrinking is not None and share < self._shrinking.below:
            for group in self.param_groups:
                group["radius"] /= self._shrinking.factor

    def __repr__(self) -> str:
        return f"StochasticSA(radius={self.radius!r}, {self.strategy!r})"

    def _move_to_the_better_side(self, closure: Callable[[], Any], start: RandomState) -> float:
        """Leave the weights at the better of w' and w''; return the objective there."""
        direction = int(self._annealing.rng.random() * 2**53)
        self.base.displace(direction, -1.0)  # w' = w - eps D
        minus = self._evaluate(closure, start)
        self._before.restore()
        self.base.displace(direction, +1.0)  # w'' = w + eps D
        plus = self._evaluate(closure, start)
        if math.isfinite(plus) and not (math.isfinite(minus) and minus <= plus):
            return plus
        self._before.restore()
        self.base.displace(direction, -1.0)
        return minus

    def _evaluate(self, closure: Callable[[], Any], start: RandomState) -> float:
        with self._intake.silence(), self._probe.replay(start, closure=True):
            value = scalar("StochasticSA", "closure", closure())
        value = value if self._weights_are_finite() else math.nan
        return self._annealing.mean(self._ranks, value, "after")

    def _weights_are_finite(self) -> bool:
        return are_finite(p for p in parameters_of(self.base) if p.requires_grad)


class _Epoch(Part):
    """How many moves of this epoch changed the objective, and how many improved it."""

    def __init__(self) -> None:
        self._tried = self._improved = 0

    def add(self, info: StepInfo) -> None:
        """Count a move."""
        self._tried += info.worsening != 0
        self._improved += info.improved

    def end(self) -> float:
        """Return the share of those that improved it, NaN if there was none; start again."""
        share = self._improved / self._tried if self._tried else math.nan
        self._tried = self._improved = 0
        return share

    def state_dict(self) -> dict[str, Any]:
        """Return the counts."""
        return {"epoch_tried": self._tried, "epoch_improved": self._improved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._tried, self._improved = state["epoch_tried"], state["epoch_improved"]


class _Displacement(Optimizer):
    """Moves all weights along a random direction that is known by its seed alone."""

    def __init__(self, params: Any, radius: float, scaling: Scaling) -> None:
        super().__init__(params, {"radius": radius, "scaling": scaling})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if isinstance(param_group, dict):
            radius = param_group.get("radius", self.defaults["radius"])
            _check_radius("StochasticSA(radius=...)", radius)
        super().add_param_group(param_group)

    def displace(self, seed: int, sign: float) -> None:
        """Add ``sign * radius * D`` to every weight that is trained."""
        generators: dict[torch.device, torch.Generator] = {}
        for group in self.param_groups:
            for p in group["params"]:
                if not p.requires_grad:
                    continue
                if p.device not in generators:
                    generators[p.device] = torch.Generator(p.device).manual_seed(seed)
                scale = sign * group["radius"]
                if group["scaling"] == "rms":
                    scale *= max(p.norm().item() / math.sqrt(max(p.numel(), 1)), 1e-3)
                # Beyond the largest number of its kind torch refuses a factor.
                largest = torch.finfo(p.dtype).max
                scale = max(-largest, min(scale, largest))
                direction = torch.empty_like(p).normal_(generator=generators[p.device])
                p.add_(direction, alpha=scale)
        for hook in self._optimizer_step_post_hooks.values():  # this is its step
            hook(self, (), {})


def _check_radius(argument: str, value: Any) -> None:
    if not 0 < number(argument, value) < math.inf:
        raise ValueError(f"{argument} must be positive and finite, got {value!r}")
