"""What a strategy is, the paper's own (simulated annealing), and three others over H.

All four by name are in `STRATEGIES`, at the end.
"""

from __future__ import annotations

import copy
import inspect
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from annealtune.annealing.acceptance import Verdict, metropolis
from annealtune.annealing.arguments import count, shown
from annealtune.annealing.neighborhood import Neighborhood, Setting, restored
from annealtune.annealing.temperature import Clock, Schedule, as_schedule

T = TypeVar("T")
# Of `Genetic`: how many members compete to be a parent, and how often a child is mutated.
_TOURNAMENT, _MUTATION = 2, 0.2


class Strategy:
    """What every strategy is: a uniform pick, no memory, and a decision that a subclass adds.

    One step calls ``pick``, ``decide``, ``observe`` and ``tick("step")`` in this order; the end of
    an epoch calls ``tick("epoch")``. All randomness comes from the generator that is passed in; the
    caller owns it, saves it and restores it. What the strategy itself must remember is in
    ``state_dict``, as plain data.

    A strategy that measures several candidates before it moves has ``candidates`` above 1. Then a
    step calls ``shortlist`` instead of ``pick``, measures every setting on it from the same point,
    which costs one evaluation each, and goes on with the one that ``select`` chooses.

    Attributes:
        picks_settings: whether the choice among the settings of H is a part of the method. Such a
            strategy says nothing about moves that come without an H (`StochasticSA`).
        candidates: how many settings are measured in each step.

    Example:
        >>> class SmallWorsenings(Strategy):
        ...     def decide(self, value, new_value, rng):
        ...         worsening = new_value - value
        ...         return Verdict.of(value, new_value, accepted=worsening < 0.01)
        >>> SmallWorsenings().decide(1.0, 1.001, random.Random(0)).accepted
        True
    """

    picks_settings: ClassVar[bool] = False
    candidates: int = 1

    @property
    def temperature(self) -> float:
        """The temperature of the next decision; NaN for a strategy that has none."""
        return math.nan

    def check(self, neighborhood: Neighborhood) -> None:
        """Raise ValueError if the strategy does not fit H; called once, before the first pick."""

    def pick(self, neighborhood: Neighborhood, rng: random.Random) -> Setting:
        """Choose the setting of the next move: uniformly (Algorithm 2, line 7), with one draw."""
        return neighborhood.pick(rng)

    def shortlist(self, neighborhood: Neighborhood, rng: random.Random) -> tuple[Setting, ...]:
        """Choose the settings to measure: different ones, from all of H."""
        return tuple(rng.sample(neighborhood, min(self.candidates, len(neighborhood))))

    def select(self, value: float, measured: Mapping[Setting, float]) -> Setting:
        """Choose the move among them by the values that they lead to from ``value``: the lowest."""
        finite = {setting: new for setting, new in measured.items() if math.isfinite(new)}
        return min(finite or measured, key=lambda setting: finite.get(setting, math.inf))

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Keep or undo the move from ``value`` to ``new_value``; left to the subclass."""
        raise NotImplementedError(
            f"{type(self).__name__} must define decide(value, new_value, rng) and return a Verdict"
        )

    def observe(self, setting: Setting, verdict: Verdict) -> None:
        """Learn from the verdict on the move with this setting."""

    def tick(self, clock: Clock) -> None:
        """Note the end of a step or of an epoch."""

    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs, as plain data."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""

    def __repr__(self) -> str:
        return shown(self)


class SimulatedAnnealing(Strategy):
    """The paper's metaheuristic: a uniform pick and the Metropolis rule.

    Every ``pick`` and every ``decide`` draws exactly one number, needed or not, so that two runs
    that differ in a decision still see the same settings afterwards. A temperature of 0 is hill
    climbing, one of ``math.inf`` a random walk.

    Args:
        temperature: a number (constant) or a schedule; a schedule is copied, so one object can
            be given to many runs.

    Example:
        >>> strategy = SimulatedAnnealing(0.0)
        >>> strategy.decide(1.0, 1.1, random.Random(0)).accepted
        False

    Reference:
        Fischetti and Stringher (2019), Section 2 and Algorithms 1 and 2.
    """

    def __init__(self, temperature: float | Schedule) -> None:
        self.schedule = copy.deepcopy(as_schedule(type(self).__name__, temperature))

    @property
    def temperature(self) -> float:
        """The temperature of the next decision."""
        return self.schedule.temperature

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Apply the Metropolis rule (Algorithm 1, lines 4-6; Algorithm 2, lines 10-12)."""
        verdict = metropolis(value, new_value, self.schedule.temperature, rng.random())
        self.schedule.observe(verdict.worsening)
        return verdict

    def tick(self, clock: Clock) -> None:
        """Cool, if the schedule follows this clock."""
        self.schedule.tick(clock)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the schedule."""
        return self.schedule.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self.schedule.load_state_dict(state)


class Tabu(Strategy):
    """Move with the best of some candidates that is not tabu, even if it worsens.

    Every step measures some settings of H, drawn without replacement. One that was used is tabu for
    the next ``tenure`` steps, unless (aspiration) it gains more than any move before. If none is
    admissible, the one whose tabu ends first is taken. A move to a value that is not finite is
    undone and does not become tabu. Our choice: settings are tabu, because weights never occur
    twice, and gains are compared, because losses of different minibatches cannot be.

    Args:
        tenure: for how many steps a setting is tabu, fewer than H has settings; by default a third
            of H, at least 1 if H has two settings or more.
        candidates: how many settings are measured in each step, at least 2.

    Example:
        >>> strategy = Tabu(tenure=1)
        >>> low, high = Setting({"lr": 0.1}), Setting({"lr": 0.9})
        >>> strategy.select(5.0, {low: 4.0, high: 4.5})
        Setting(lr=0.1)
        >>> strategy.observe(low, strategy.decide(5.0, 4.0, random.Random(0)))
        >>> strategy.select(4.0, {low: 3.5, high: 4.5})
        Setting(lr=0.9)

    Reference:
        Glover (1989), Tabu search, part I, ORSA Journal on Computing 1, 190-206.
    """

    picks_settings = True

    def __init__(self, tenure: int | None = None, candidates: int = 3) -> None:
        self.tenure = None if tenure is None else count("Tabu(tenure=...)", tenure, least=0)
        self.candidates = count("Tabu(candidates=...)", candidates, least=2)
        self._left: dict[Setting, int] = {}  # for how many steps each is tabu
        self._best_gain = -math.inf

    def check(self, neighborhood: Neighborhood) -> None:
        """Refuse a tenure that would leave nothing to pick; the default one depends on H."""
        most = len(neighborhood) - 1
        if self.tenure is None:
            self.tenure = min(max(len(neighborhood) // 3, 1), most)
        if self.tenure > most:
            raise ValueError(
                f"Tabu(tenure=...) must be smaller than the number of settings in H, here "
                f"{len(neighborhood)}, got {self.tenure!r}"
            )

    def select(self, value: float, measured: Mapping[Setting, float]) -> Setting:
        """Choose the best admissible candidate, else the one whose tabu ends first."""
        finite = {setting: new for setting, new in measured.items() if math.isfinite(new)}
        admissible = {
            setting: new
            for setting, new in finite.items()
            if setting not in self._left or value - new > self._best_gain
        }
        if finite and not admissible:
            return min(finite, key=self._left.__getitem__)
        return super().select(value, admissible or measured)

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Keep the selected move, whether it improves or worsens."""
        return Verdict.of(value, new_value, accepted=True)

    def observe(self, setting: Setting, verdict: Verdict) -> None:
        """Let one step of every tabu pass; the setting that was used becomes tabu."""
        self._left = {tabu: left - 1 for tabu, left in self._left.items() if left > 1}
        if not verdict.accepted:
            return
        self._best_gain = max(self._best_gain, -verdict.worsening)
        if self.tenure:
            self._left[setting] = self.tenure

    def state_dict(self) -> dict[str, Any]:
        """Return for how long each setting is tabu, and the best gain so far."""
        tabu = [[dict(setting), left] for setting, left in self._left.items()]
        return {"tabu": tabu, "best_gain": self._best_gain}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._left = {restored(options): left for options, left in state["tabu"]}
        self._best_gain = state["best_gain"]


class VariableNeighborhood(Strategy):
    r"""Pick from nested sets :math:`N_1 \subset \dots \subset N_{levels} = H`, from tame to risky.

    A setting is picked uniformly from :math:`N_k` and its move is kept iff it does not worsen.
    After a success the next pick is from :math:`N_1`, after a failure from :math:`N_{k+1}`, and
    after a failure in H itself from :math:`N_1` again. :math:`N_k` holds the settings with the
    smallest rates, a share of :math:`k / levels` of all: for ``levels=4`` and the rates 1, 2, ... 8
    the sets reach up to 2, 4, 6 and 8.

    This is the reduced version, without a local search. Our choice: the neighborhoods are sets of
    settings, and an equal move is kept, but only an improvement is a success: otherwise a rate too
    small to change anything would be kept for good.

    Args:
        levels: the number of nested sets, at most the number of different rates in H.

    Example:
        >>> strategy, rng = VariableNeighborhood(levels=2), random.Random(0)
        >>> setting = Setting({"lr": 0.1})
        >>> strategy.observe(setting, strategy.decide(1.0, 1.5, rng)), strategy.level
        (None, 2)
        >>> strategy.observe(setting, strategy.decide(1.0, 0.5, rng)), strategy.level
        (None, 1)

    Reference:
        Mladenović and Hansen (1997), Variable neighborhood search, Computers and Operations
        Research 24, 1097-1100.
    """

    picks_settings = True

    def __init__(self, levels: int = 4) -> None:
        self.levels = count("VariableNeighborhood(levels=...)", levels, least=1)
        self.level = 1
        self._sets: tuple[Neighborhood, ...] = ()

    @property
    def temperature(self) -> float:
        """Always 0: no worsening is kept."""
        return 0.0

    def check(self, neighborhood: Neighborhood) -> None:
        """Divide H into nested sets, or say why that cannot be done."""
        rates = sorted({setting["lr"] for setting in neighborhood if "lr" in setting})
        if self.levels > len(rates):
            raise ValueError(
                "VariableNeighborhood(levels=...) must not exceed the number of different learning "
                f"rates in H, here {len(rates)}, got {self.levels!r}"
            )
        bounds = [rates[k * len(rates) // self.levels - 1] for k in range(1, self.levels + 1)]
        self._sets = tuple(
            Neighborhood(setting for setting in neighborhood if setting["lr"] <= bound)
            for bound in bounds
        )

    def pick(self, neighborhood: Neighborhood, rng: random.Random) -> Setting:
        """Pick uniformly from the present set, with exactly one draw."""
        return self._sets[self.level - 1].pick(rng)

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Keep the move iff it does not worsen."""
        return metropolis(value, new_value, self.temperature, rng.random())

    def observe(self, setting: Setting, verdict: Verdict) -> None:
        """Return to the most conservative set after a success, advance after a failure."""
        improved = verdict.accepted and verdict.worsening < 0
        self.level = 1 if improved else self.level % self.levels + 1

    def state_dict(self) -> dict[str, Any]:
        """Return the number of the present set."""
        return {"level": self.level}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self.level = state["level"]


class Genetic(SimulatedAnnealing):
    """Breed a population of settings on their measured gain; keep moves by the Metropolis rule.

    Each generation tries every member ``trials`` times, taking turns, so that all are measured at
    the same stage of the run. A member's fitness is what its moves gained, kept or not. Then the
    fittest survives, and the other places are filled with children: two winners of tournaments of
    two, for each option the value of the one or the other, and in one of five a mutation, which
    moves one option to a neighboring value. A child that is not in H, because H is not a full grid,
    is replaced by its fitter parent. A new value that is not finite makes a fitness of ``-inf``.

    Our choice: the members are settings, measured by the moves that the run makes anyway; a
    mutation goes to a neighbor in the sorted values of H, to any other if they cannot be sorted.

    Args:
        temperature: a number (constant) or a schedule, for the accept test; a schedule is copied.
        population: the number of members, at least 2; if H is smaller, some settings occur twice.
        trials: how often each is tried in a generation.

    Attributes:
        members: the present generation, first the survivor of the one before; none before a pick.

    Example:
        >>> from annealtune.annealing import grid
        >>> strategy, rng = Genetic(0.0, population=4, trials=1), random.Random(0)
        >>> neighborhood = grid(lr=[0.1, 0.2, 0.3, 0.4])
        >>> for _ in range(40):  # where the largest rate gains the most
        ...     setting = strategy.pick(neighborhood, rng)
        ...     strategy.observe(setting, strategy.decide(1.0, 1.0 - setting["lr"], rng))
        >>> strategy.members[0]
        Setting(lr=0.4)

    Reference:
        Holland (1975), Adaptation in Natural and Artificial Systems; Goldberg and Deb (1991), A
        comparative analysis of selection schemes used in genetic algorithms, Foundations of
        Genetic Algorithms 1, 69-93.
    """

    picks_settings = True

    def __init__(self, temperature: float | Schedule, population: int = 8, trials: int = 4) -> None:
        super().__init__(temperature)
        self.population = count("Genetic(population=...)", population, least=2)
        self.trials = count("Genetic(trials=...)", trials, least=1)
        self.members: tuple[Setting, ...] = ()
        self._gains: list[float] = []  # of each member in this generation, summed up
        self._tried = 0  # in this generation, by all members

    def pick(self, neighborhood: Neighborhood, rng: random.Random) -> Setting:
        """Return the next member; before the first of a generation, breed that generation."""
        if not self.members or self._tried == self.population * self.trials:
            self.members = tuple(self._bred(neighborhood, rng))
            self._gains, self._tried = [0.0] * self.population, 0
        return self.members[self._tried % self.population]

    def observe(self, setting: Setting, verdict: Verdict) -> None:
        """Credit the member with what its move gained, kept or not."""
        gain = -verdict.worsening if math.isfinite(verdict.worsening) else -math.inf
        self._gains[self._tried % self.population] += gain
        self._tried += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the schedule, the members and what they gained."""
        return {
            "schedule": super().state_dict(),
            "members": [dict(setting) for setting in self.members],
            "gains": list(self._gains),
            "tried": self._tried,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        super().load_state_dict(state["schedule"])
        self.members = tuple(restored(options) for options in state["members"])
        self._gains = list(state["gains"])
        self._tried = state["tried"]

    def _bred(self, neighborhood: Neighborhood, rng: random.Random) -> list[Setting]:
        """Return the next generation; the first is drawn from H, all of it before any twice."""
        bred: list[Setting] = []
        if self.members:  # sums of gains rank as their means do: trials are equal
            bred.append(self.members[self._gains.index(max(self._gains))])
            bred += [self._child(neighborhood, rng) for _ in range(self.population - 1)]
        while len(bred) < self.population:
            bred += rng.sample(neighborhood, min(self.population - len(bred), len(neighborhood)))
        return bred

    def _child(self, neighborhood: Neighborhood, rng: random.Random) -> Setting:
        one, other = self._winner(rng), self._winner(rng)
        parents = self.members[one], self.members[other]
        options = {name: parents[rng.random() < 0.5][name] for name in neighborhood.options}
        if rng.random() < _MUTATION:
            near = {name: _next_to(name, options[name], neighborhood) for name in options}
            if mutable := [name for name in options if near[name]]:
                name = _one_of(mutable, rng)
                options[name] = _one_of(near[name], rng)
        child = Setting(options)
        if child in neighborhood:
            return child
        return parents[self._gains[other] > self._gains[one]]

    def _winner(self, rng: random.Random) -> int:
        """Return the place of the fittest of some members, drawn with replacement."""
        drawn = [int(rng.random() * self.population) for _ in range(_TOURNAMENT)]
        return max(drawn, key=self._gains.__getitem__)


def _next_to(name: str, value: Any, neighborhood: Neighborhood) -> list[Any]:
    """Return the values of an option in H that are next to this one; none if it is the only one."""
    values = list(dict.fromkeys(setting[name] for setting in neighborhood))
    try:
        ordered = sorted(values)
    except TypeError:  # None among numbers, for instance: all others are equally near
        return [other for other in values if other != value]
    place = ordered.index(value)
    return [*ordered[max(place - 1, 0) : place], *ordered[place + 1 : place + 2]]


def _one_of(values: Sequence[T], rng: random.Random) -> T:
    return values[int(rng.random() * len(values))]


STRATEGIES: dict[str, type[Strategy]] = {
    "simulated-annealing": SimulatedAnnealing,
    "tabu": Tabu,
    "variable-neighborhood": VariableNeighborhood,
    "genetic": Genetic,
}


def takes_temperature(cls: type) -> bool:
    """Tell whether the constructor of a strategy has an argument ``temperature``."""
    return "temperature" in inspect.signature(cls).parameters


def make_strategy(
    cls: type[Strategy], options: Mapping[str, Any], temperature: float | Schedule
) -> Strategy:
    """Make a strategy with its options, and with the temperature if it takes one.

    Example:
        >>> make_strategy(Tabu, {"candidates": 2}, temperature=1.0)
        Tabu(tenure=None, candidates=2)
    """
    given = {"temperature": temperature} if takes_temperature(cls) else {}
    return cls(**given, **options)
