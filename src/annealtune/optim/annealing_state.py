"""What an annealed run remembers between two steps, apart from weights and optimizer state."""

from __future__ import annotations

import copy
import dataclasses
import math
import random
import warnings
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch

from annealtune.annealing import (
    Automatic,
    Geometric,
    Neighborhood,
    Schedule,
    Setting,
    Strategy,
)
from annealtune.annealing.arguments import count, whole
from annealtune.annealing.neighborhood import restored
from annealtune.annealing.strategies import STRATEGIES, make_strategy, takes_temperature
from annealtune.annealing.temperature import as_schedule
from annealtune.errors import NonFiniteLossError, did_you_mean
from annealtune.optim.context import Part, StateError
from annealtune.optim.ranks import Ranks
from annealtune.optim.wrapper import OptimizerWrapper

# A temperature that cools per epoch and has not been told of the end of one after this many steps
# most likely never will be: the loop does not call `cool`. Whoever gives the number of epochs knows
# of them, and may have long ones.
_PATIENCE = 1_000
_PATIENCE_WITH_EPOCHS = 10_000
# A longer H is shown without the settings that were never tried.
_LONG = 20

_DEFAULT = "simulated-annealing"
Preset = Literal["paper-text", "paper-code"]


@dataclasses.dataclass(frozen=True, slots=True)
class StepInfo:
    """One move, immutable: what was tried and what became of it.

    Attributes:
        step: number of the step, from 0.
        setting: the setting that was picked; ``setting["lr"]`` is its rate.
        loss: value of the accept test before the move.
        new_loss: value of the accept test at the tentative point.
        worsening: ``new_loss - loss``.
        accept_probability: clipped to 1.
        temperature: the temperature of this decision.
        accepted: whether the move was kept.
    """

    step: int
    setting: Setting
    loss: float
    new_loss: float
    worsening: float
    accept_probability: float
    temperature: float
    accepted: bool

    @property
    def outcome(self) -> Literal["accepted", "rejected"]:
        """What became of the move, in a word."""
        return "accepted" if self.accepted else "rejected"

    @property
    def improved(self) -> bool:
        """Whether the tentative point was better than the current one."""
        return math.isfinite(self.new_loss) and self.worsening < 0


class Count(NamedTuple):
    """How often a setting was tried, improved the loss, was accepted."""

    tried: int = 0
    improved: int = 0
    accepted: int = 0

    @property
    def acceptance_rate(self) -> float:
        """Share of the tried moves that were kept; NaN before the first."""
        return self.accepted / self.tried if self.tried else math.nan


@dataclasses.dataclass
class Moves:
    """The counts of a run so far, in total and per setting. ``print`` shows it as a table.

    Attributes:
        settings: the counts of each setting, those of H in its order.
    """

    settings: dict[Setting, Count] = dataclasses.field(default_factory=dict)

    def add(self, info: StepInfo) -> None:
        """Count one move."""
        tried, improved, accepted = self.settings.get(info.setting, Count())
        # As `StepInfo.improved`, without one more call in every step.
        improved += math.isfinite(info.new_loss) and info.worsening < 0
        self.settings[info.setting] = Count(tried + 1, improved, accepted + info.accepted)

    @property
    def total(self) -> Count:
        """The counts of all settings together."""
        return Count(*map(sum, zip(*self.settings.values(), strict=True)))

    def __str__(self) -> str:
        is_long = len(self.settings) > _LONG
        rows = {str(s): found for s, found in self.settings.items() if found.tried or not is_long}
        rows["all"] = self.total
        name, tried = max(map(len, ["setting", *rows])), max(5, len(str(self.total.tried)))
        lines = [f"{'setting':<{name}}  {'tried':>{tried}}  improved  accepted"]
        for row, (times, *kept) in rows.items():
            improved, accepted = (f"{n / times:.1%}" if times else "-" for n in kept)
            lines.append(f"{row:<{name}}  {times:>{tried}}  {improved:>8}  {accepted:>8}")
        return "\n".join(lines)

    def state_dict(self) -> list[tuple[dict[str, Any], int, int, int]]:
        """Return the counts as plain data."""
        return [(dict(setting), *count) for setting, count in self.settings.items()]

    def load_state_dict(self, state: list[tuple[dict[str, Any], int, int, int]]) -> None:
        """Continue where ``state_dict`` was taken."""
        self.settings = {restored(options): Count(*count) for options, *count in state}


class AnnealingState(Part):
    """Strategy, generator, step count and tally of one run.

    Args:
        owner: name of the optimizer's class, for messages.
        strategy: the metaheuristic; it is copied, so one object can be given to many runs.
        seed: of the run's own ``random.Random``; nothing else is seeded or read.
        neighborhood: H; None for an optimizer whose moves are no settings.
        epochs: planned number of epochs, if known.

    Attributes:
        last_step: the last move, if there was one since the run began or was loaded.
        was_broken: whether it led to a loss or to weights that are not finite.

    Raises:
        TypeError: if the seed is no whole number.
        ValueError: if the strategy does not fit H.
    """

    def __init__(
        self,
        owner: str,
        strategy: Strategy,
        seed: int,
        neighborhood: Neighborhood | None = None,
        epochs: int | None = None,
    ) -> None:
        self.owner = owner
        self.strategy = copy.deepcopy(strategy)
        self.rng = random.Random(whole(f"{owner}(seed=...)", seed))
        self.step = 0
        self.last_step: StepInfo | None = None
        self.was_broken = False
        self._patience = _PATIENCE if epochs is None else _PATIENCE_WITH_EPOCHS
        self._has_cooled = False  # whether an epoch has ended
        self._neighborhood = neighborhood
        self.moves = Moves(dict.fromkeys(neighborhood or (), Count()))
        if neighborhood is not None:
            self.strategy.check(neighborhood)

    def decide(self, setting: Setting, loss: float, new_loss: float) -> StepInfo:
        """Decide on a move, count it and let a step's time pass."""
        strategy, temperature = self.strategy, self.strategy.temperature
        verdict = strategy.decide(loss, new_loss, self.rng)
        info = StepInfo(self.step, setting, loss, new_loss, *verdict[:2], temperature, verdict[2])
        strategy.observe(setting, verdict)
        self.step += 1
        self.moves.add(info)
        self.last_step, self.was_broken = info, not math.isfinite(new_loss)
        strategy.tick("step")
        if self.step == self._patience and not self._has_cooled:
            self._warn_if_it_cools_per_epoch()
        return info

    def end_epoch(self) -> None:
        """Tell the strategy that an epoch has ended."""
        self.strategy.tick("epoch")
        self._has_cooled = True

    def _warn_if_it_cools_per_epoch(self) -> None:
        schedule = getattr(self.strategy, "schedule", None)
        if getattr(schedule, "per", None) == "epoch":
            warnings.warn(
                f"{self.owner}: cool() must be called at the end of every epoch where the "
                f"temperature cools per epoch, got {self.step} steps without it: the temperature "
                f"is still that of {schedule!r} at the start. Call it, or choose per='step'; where "
                f"an epoch has more than {_PATIENCE} steps, give {self.owner}(epochs=...)",
                stacklevel=2,
            )

    def mean(self, ranks: Ranks, value: float, what: str) -> float:
        """Return the mean of a value over the ranks, which must stand at the same point."""
        if ranks.count == 1:
            return value
        last, generator = self.last_step, hash(self.rng.getstate()[1])
        move = last and (last.setting, last.accepted)
        return ranks.mean(value, what, self.step, generator, self.strategy.temperature, move)

    def non_finite(self, value: float, what: str = "loss") -> NonFiniteLossError:
        """Describe a current point that nothing can be compared with."""
        return NonFiniteLossError(
            f"{self.owner}.step({what}): the weights and the value there must be finite, got NaN "
            f"or infinity with a value of {value!r} at step {self.step}; the weights are "
            "unchanged. Look at the data of this minibatch, load weights that are whole, or take "
            f"the largest rates out of the neighborhood. Last move: {self.last_step}"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything as plain data and one tensor: the words of the generator."""
        _, words, next_gauss = self.rng.getstate()
        return {
            "step": self.step,
            "random": torch.tensor(words, dtype=torch.int64),
            "next_gauss": next_gauss,
            "kind": type(self.strategy).__name__,
            "strategy": self.strategy.state_dict(),
            "tally": self.moves.state_dict(),
            "has_cooled": self._has_cooled,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken.

        Raises:
            StateError: if it was taken with another H, or another kind of strategy or temperature.
        """
        moves = Moves()
        moves.load_state_dict(state["tally"])  # of all settings of H, from the start
        strategy = copy.deepcopy(self.strategy)
        kind, settings = type(strategy).__name__, self._neighborhood or tuple(moves.settings)
        if (state["kind"], tuple(moves.settings)) != (kind, settings):
            raise StateError(
                f"{self.owner}.load_state_dict: the state must come from a run with the same H in "
                f"the same order and the same kind of strategy, {kind} over {list(settings)}, got "
                f"{state['kind']} over {list(moves.settings)}"
            )
        try:
            strategy.load_state_dict(state["strategy"])
        except KeyError as missing:
            raise StateError(
                f"{self.owner}.load_state_dict: the state must come from a run with the same kind "
                f"of temperature as {strategy!r}, got one without {missing}"
            ) from None
        self.strategy = strategy
        self.rng = random.Random(0)
        words = tuple(state["random"].tolist())
        self.rng.setstate((random.Random.VERSION, words, state["next_gauss"]))
        self.step = state["step"]
        self.moves = moves
        self._has_cooled = state["has_cooled"]
        self.last_step, self.was_broken = None, False


class AnnealedOptimizer(OptimizerWrapper):
    """An optimizer whose moves are kept or undone."""

    _annealing: AnnealingState

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
        self._annealing.end_epoch()

    @property
    def moves(self) -> Moves:
        """How often each setting was tried, improved the loss and was accepted."""
        return copy.deepcopy(self._annealing.moves)

    def summary(self) -> str:
        """Return `moves` as a table."""
        return str(self._annealing.moves)


def choose_strategy(
    owner: str,
    strategy: Strategy | str | None,
    temperature: float | Schedule | None,
    epochs: int | None,
    total_steps: int | None,
) -> Strategy:
    """Return the strategy that the arguments of an optimizer ask for.

    What is given is obeyed; with nothing given it is simulated annealing at an `Automatic`
    temperature over the planned length. A strategy by name takes that temperature too, if it takes
    one at all.

    Raises:
        TypeError: if it is not a strategy.
        ValueError: if two arguments contradict each other, or the name is unknown.
    """
    for name, length in (("epochs", epochs), ("total_steps", total_steps)):
        if length is not None:
            count(f"{owner}({name}=...)", length, least=1)
    if epochs is not None and total_steps is not None:
        raise ValueError(
            f"{owner}(epochs=..., total_steps=...) must be given one length, got {epochs!r} epochs "
            f"and {total_steps!r} steps"
        )
    kind = None
    if not isinstance(strategy, Strategy):
        kind = STRATEGIES.get(_DEFAULT if strategy is None else str(strategy))
        if kind is None:
            raise (ValueError if isinstance(strategy, str) else TypeError)(
                f"{owner}(strategy=...) must be a Strategy or one of {', '.join(STRATEGIES)}, got "
                f"{strategy!r}{did_you_mean(str(strategy), STRATEGIES)}"
            )
    elif temperature is None:
        return strategy
    if kind is None or (temperature is not None and not takes_temperature(kind)):
        raise ValueError(
            f"{owner}(strategy=..., temperature=...) must be given one of the two: {strategy!r} "
            f"brings its own temperature or has none, got {temperature!r} too"
        )
    if temperature is not None:
        schedule = as_schedule(owner, temperature)
    elif total_steps is not None:
        schedule = Automatic(length=total_steps, per="step")
    else:
        schedule = Automatic(length=epochs)
    return make_strategy(kind, {}, schedule)


def preset_temperature(
    owner: str,
    preset: Any,
    temperature: float | Schedule | None,
    batch_size: Any,
    factor: float,
    floor: float,
) -> float | Schedule:
    """Return the schedule of a preset: T0 = 1, cooled per epoch.

    The authors' program compares losses that are divided by the batch size once more than the
    mean, so for ``"paper-code"`` its T0 and floor are multiplied by ``batch_size``. A temperature
    that is given replaces T0, in units of the loss; a schedule replaces everything.

    Args:
        owner: name of the optimizer's class, for messages.
        preset: ``"paper-text"`` or ``"paper-code"``.
        temperature: what the user gave.
        batch_size: what the user gave.
        factor: the cooling factor of the paper.
        floor: the lowest temperature of the authors' program, in its own unit.

    Raises:
        TypeError, ValueError: if the preset is unknown or ``"paper-code"`` has no batch size.
    """
    if preset not in ("paper-text", "paper-code"):
        raise ValueError(
            f"{owner}(preset=...) must be 'paper-text' or 'paper-code', got {preset!r}"
        )
    unit, lowest = 1.0, 0.0
    if preset == "paper-code":
        unit = float(count(f"{owner}(preset='paper-code', batch_size=...)", batch_size, least=1))
        lowest = floor * unit
    if temperature is None:
        temperature = unit
    if not isinstance(temperature, int | float) or not 0 < temperature < math.inf:
        return temperature
    return Geometric(temperature, factor, floor=min(lowest, temperature))
