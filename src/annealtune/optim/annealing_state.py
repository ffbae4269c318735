"""What an annealed run remembers between two steps, apart from weights and optimizer state."""

from __future__ import annotations

import collections
import copy
import math
import random
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import torch

from annealtune.annealing import (
    Automatic,
    Comparing,
    Geometric,
    Neighborhood,
    Schedule,
    Setting,
    SimulatedAnnealing,
    Strategy,
    Verdict,
)
from annealtune.annealing.arguments import one_length, whole
from annealtune.annealing.neighborhood import restored
from annealtune.annealing.strategies import STRATEGIES, make_strategy, takes_temperature
from annealtune.annealing.temperature import Clock, as_schedule
from annealtune.errors import NonFiniteLossError
from annealtune.optim.context import Part, StateError
from annealtune.optim.ranks import Ranks
from annealtune.optim.step_info import Moves, StepInfo, Tally
from annealtune.optim.wrapper import OptimizerWrapper

# A temperature that cools per epoch and has not been told of the end of one after this many steps
# most likely never will be: the loop does not call `cool`. Whoever gives the number of epochs knows
# of them, and may have long ones.
_PATIENCE = 1_000
_PATIENCE_WITH_EPOCHS = 10_000

Preset = Literal["paper-text", "paper-code"]


class AnnealingState(Part):
    """Strategy, generator, step count and tally of one run.

    Args:
        strategy: the metaheuristic; it is copied, so one object can be given to many runs.
        seed: of the run's own ``random.Random``; nothing else is seeded or read.
        neighborhood: H, whose settings are listed in the summary from the start; None for an
            optimizer whose moves are no settings.
        epochs: planned number of epochs, if known.

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
        # Asked once: to ask a protocol takes longer than the rest of a step's bookkeeping.
        self._comparing = self.strategy if isinstance(self.strategy, Comparing) else None
        self.rng = random.Random(whole(f"{owner}(seed=...)", seed))
        self.step = 0
        self._patience = _PATIENCE if epochs is None else _PATIENCE_WITH_EPOCHS
        self._has_cooled = False  # whether an epoch has ended
        self._neighborhood = neighborhood
        self.tally = Tally(tuple(neighborhood or ()))
        self.recent: collections.deque[StepInfo] = collections.deque(maxlen=10)
        if neighborhood is not None:
            self.strategy.check(neighborhood)

    def pick(self, neighborhood: Neighborhood) -> Setting:
        """Pick the setting of the next move."""
        setting: Any = self.strategy.pick(neighborhood, self.rng)
        if not isinstance(setting, Setting) or setting not in neighborhood:
            raise ValueError(
                f"{self.owner}(strategy=...) must pick settings of H, got {setting!r} from "
                f"{self.strategy!r}, which is none of them"
            )
        return setting

    @property
    def compares(self) -> bool:
        """Whether the strategy measures several candidates a step."""
        return self._comparing is not None and self._comparing.candidates > 1

    def shortlist(self, neighborhood: Neighborhood) -> tuple[Setting, ...]:
        """Return the candidates to measure."""
        assert self._comparing is not None
        return self._comparing.shortlist(neighborhood, self.rng)

    def select(self, value: float, measured: dict[Setting, float]) -> Setting:
        """Return the best candidate by the strategy's own rule."""
        assert self._comparing is not None
        selected = self._comparing.select(value, measured)
        if selected not in measured:
            raise ValueError(
                f"{self.owner}(strategy=...) must select one of the settings that were measured, "
                f"got {selected!r} from {self.strategy!r}"
            )
        return selected

    def decide(self, setting: Setting, loss: float, new_loss: float) -> StepInfo:
        """Decide on a move, count it and let a step's time pass."""
        temperature = self.strategy.temperature
        verdict: Any = self.strategy.decide(loss, new_loss, self.rng)
        if not isinstance(verdict, Verdict):
            raise TypeError(
                f"{self.owner}(strategy=...) must decide by a Verdict, got {verdict!r} from "
                f"{self.strategy!r}; return Verdict.of(value, new_value, accepted=...)"
            )
        info = StepInfo(self.step, setting, loss, new_loss, *verdict[:2], temperature, verdict[2])
        self.strategy.observe(setting, verdict)
        self.step += 1
        self.tally.add(info)
        self.recent.append(info)
        self.tick("step")
        return info

    def tick(self, clock: Clock) -> None:
        """Tell the strategy that a step or an epoch has ended."""
        self.strategy.tick(clock)
        self._has_cooled |= clock == "epoch"
        if self.step == self._patience and not self._has_cooled:
            self._warn_if_it_cools_per_epoch()

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

    @property
    def last_step(self) -> StepInfo | None:
        """The last move, if there was one since the run began or was loaded."""
        return self.recent[-1] if self.recent else None

    def whereabouts(self) -> tuple[object, ...]:
        """Return what all ranks must have in common before a decision."""
        last = self.last_step
        generator = hash(self.rng.getstate()[1])
        return (
            self.step,
            generator,
            self.strategy.temperature,
            last and (last.setting, last.accepted),
        )

    def mean(self, ranks: Ranks, value: float, what: str) -> float:
        """Return the mean of a value over the ranks, where there are several."""
        return value if ranks.count == 1 else ranks.mean(value, what, *self.whereabouts())

    def non_finite(self, loss: float) -> NonFiniteLossError:
        """Describe a loss at the current point that nothing can be compared with."""
        history = "; ".join(
            f"step {info.step}: {info.setting} {info.outcome}, "
            f"loss {info.loss:.6g} -> {info.new_loss:.6g}"
            for info in self.recent
        )
        return NonFiniteLossError(
            f"{self.owner}.step: the loss at the current weights must be finite, got {loss!r} at "
            f"step {self.step}; the weights are unchanged. Look at the data of this minibatch, or "
            f"take the largest rates out of the neighborhood. Last moves: {history or 'none'}"
        )

    @property
    def was_broken(self) -> bool:
        """Whether the last move led to a loss or to weights that are not finite."""
        return bool(self.recent) and not math.isfinite(self.recent[-1].new_loss)

    def broken_weights(self, loss: float) -> NonFiniteLossError:
        """Describe weights at the current point that are broken, though the loss is finite."""
        return NonFiniteLossError(
            f"{self.owner}.step: the weights must be finite, got NaN or infinity among them at "
            f"step {self.step}, which the loss of {loss:.6g} does not show; nothing was changed. "
            "Load weights that are whole"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything as plain data and one tensor."""
        return {
            "step": self.step,
            **saved_generator(self.rng),
            "kind": type(self.strategy).__name__,
            "strategy": self.strategy.state_dict(),
            "tally": self.tally.state_dict(),
            "has_cooled": self._has_cooled,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken.

        Raises:
            StateError: if it was taken with another H, or another kind of strategy or temperature.
        """
        self._refuse_other_settings(state["tally"])
        kind = state["kind"]
        strategy = copy.deepcopy(self.strategy)
        try:
            if kind != type(strategy).__name__:
                raise KeyError(kind)
            strategy.load_state_dict(state["strategy"])
        except KeyError as error:
            raise StateError(
                f"{self.owner}.load_state_dict: the state must come from a run with the same kind "
                f"of strategy and temperature as {self.strategy!r}, got {kind} with "
                f"{state['strategy']!r}, where {error} is missing"
            ) from None
        self.strategy = strategy
        self._comparing = strategy if isinstance(strategy, Comparing) else None
        self.rng = restored_generator(state)
        self.step = state["step"]
        self.tally = Tally()
        self.tally.load_state_dict(state["tally"])
        self._has_cooled = state["has_cooled"]
        self.recent = collections.deque(maxlen=self.recent.maxlen)

    def _refuse_other_settings(self, tally: list[tuple[dict[str, Any], int, int, int]]) -> None:
        """Refuse the counts of another H: they list all of it from the start."""
        if self._neighborhood is None:
            return
        given = [restored(options) for options, *_ in tally]
        if given != list(self._neighborhood):
            other = [h for h in given if h not in self._neighborhood] or given
            raise StateError(
                f"{self.owner}.load_state_dict: the state must come from a run with the same H, in "
                f"the same order, here {len(self._neighborhood)} settings, got {len(given)}, among "
                f"them {other[0] if other else 'none'}; construct the optimizer as it was then"
            )


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
        self._annealing.tick("epoch")

    @property
    def moves(self) -> Moves:
        """How often each setting was tried, improved the loss and was accepted."""
        return self._annealing.tally.moves()

    def summary(self) -> str:
        """Return `moves` as a table."""
        return str(self.moves)


def saved_generator(rng: random.Random) -> dict[str, Any]:
    """Return where a generator stands, its many words in one tensor."""
    _, words, next_gauss = rng.getstate()
    return {"random": torch.tensor(words, dtype=torch.int64), "next_gauss": next_gauss}


def restored_generator(state: Mapping[str, Any]) -> random.Random:
    """Return a generator that stands where one was saved."""
    rng = random.Random(0)
    rng.setstate((rng.VERSION, tuple(state["random"].tolist()), state.get("next_gauss")))
    return rng


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
    one_length(owner, epochs=epochs, total_steps=total_steps)
    known = STRATEGIES.get(strategy) if isinstance(strategy, str) else None
    if temperature is not None and not (
        strategy is None or (known is not None and takes_temperature(known))
    ):
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
    if strategy is None:
        return SimulatedAnnealing(schedule)
    if isinstance(strategy, str):
        return make_strategy(owner, strategy, {}, schedule)
    given: Any = strategy  # a class has all the names that the protocol asks for, but is none
    if not isinstance(given, Strategy) or isinstance(given, type):
        raise TypeError(
            f"{owner}(strategy=...) must be a Strategy or the name of one, got {strategy!r}"
        )
    return strategy


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
        ValueError: if the preset is unknown or ``"paper-code"`` has no batch size.
    """
    if preset not in ("paper-text", "paper-code"):
        raise ValueError(
            f"{owner}(preset=...) must be 'paper-text' or 'paper-code', got {preset!r}"
        )
    unit = 1
    if preset == "paper-code":
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(
                f"{owner}(preset='paper-code', batch_size=...) must be given the size of a "
                f"minibatch, which is the unit of its temperature, got {batch_size!r}"
            )
        unit = batch_size
    if temperature is None:
        temperature = float(unit)
    if not isinstance(temperature, int | float) or not 0 < temperature < math.inf:
        return temperature
    lowest = floor * unit if preset == "paper-code" else 0.0
    return Geometric(temperature, factor, floor=min(lowest, temperature))
