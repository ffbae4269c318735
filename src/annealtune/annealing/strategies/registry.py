"""The strategies by name, for configurations and for the command line."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from annealtune.annealing.strategies.genetic import Genetic
from annealtune.annealing.strategies.great_deluge import GreatDeluge
from annealtune.annealing.strategies.hill_climbing import HillClimbing
from annealtune.annealing.strategies.late_acceptance import LateAcceptance
from annealtune.annealing.strategies.protocol import Strategy
from annealtune.annealing.strategies.random_walk import RandomWalk
from annealtune.annealing.strategies.simulated_annealing import SimulatedAnnealing
from annealtune.annealing.strategies.tabu import Tabu
from annealtune.annealing.strategies.threshold_accepting import ThresholdAccepting
from annealtune.annealing.strategies.variable_neighborhood import VariableNeighborhood
from annealtune.annealing.temperature import Schedule
from annealtune.errors import did_you_mean

STRATEGIES: dict[str, type[Strategy]] = {
    "simulated-annealing": SimulatedAnnealing,
    "threshold-accepting": ThresholdAccepting,
    "late-acceptance": LateAcceptance,
    "great-deluge": GreatDeluge,
    "hill-climbing": HillClimbing,
    "random-walk": RandomWalk,
    "tabu": Tabu,
    "variable-neighborhood": VariableNeighborhood,
    "genetic": Genetic,
}


def takes_temperature(cls: type) -> bool:
    """Tell whether the constructor of a strategy has an argument ``temperature``.

    Example:
        >>> takes_temperature(Genetic), takes_temperature(Tabu)
        (True, False)
    """
    return "temperature" in _parameters(cls)


def make_strategy(
    owner: str,
    strategy: str | type,
    options: Mapping[str, Any],
    temperature: float | Schedule,
) -> Strategy:
    """Build a strategy from its name, or from a class of the user's own, and its options.

    Args:
        owner: who was given the strategy, for messages.
        strategy: one of the names in `STRATEGIES`, or a class.
        options: arguments of its constructor, other than the temperature.
        temperature: a number or a schedule, for a strategy that takes one; ignored otherwise.

    Raises:
        TypeError: if the strategy is neither a name nor a class, or instances of the class
            are not a `Strategy`.
        ValueError: if the name or an option is unknown, or an option breaks its rule.

    Example:
        >>> make_strategy("EmbeddedTuner", "tabu", {"candidates": 2}, temperature=1.0)
        Tabu(tenure=None, candidates=2)
    """
    cls = _class_of(owner, strategy)
    parameters = _parameters(cls)
    known = [name for name in parameters if name != "temperature"]
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    for name in options:
        if name == "temperature" or not (name in known or takes_any):
            rule = (
                f"the options of {cls.__name__} must be among {', '.join(known)}"
                if known
                else f"{cls.__name__} has no options: there must be none"
            )
            raise ValueError(
                f"{owner}(strategy=...): {rule}, got {name!r}{did_you_mean(name, known)}"
            )
    given = {"temperature": temperature} if takes_temperature(cls) else {}
    built = cls(**given, **options)
    if not isinstance(built, Strategy):
        raise TypeError(
            f"{owner}(strategy=...) must make a Strategy, got {built!r} from {cls.__name__}; "
            "derive the class from annealtune.PlainStrategy"
        )
    return built


def _parameters(cls: type) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(cls).parameters
    except ValueError:  # some built-in types have no signature; they make no strategies either
        return {}


def _class_of(owner: str, strategy: str | type) -> type:
    if isinstance(strategy, type):
        return strategy
    if not isinstance(strategy, str):
        raise TypeError(
            f"{owner}(strategy=...) must be the name of a strategy or a class, got {strategy!r}"
        )
    if strategy not in STRATEGIES:
        raise ValueError(
            f"{owner}(strategy=...) must be one of {', '.join(STRATEGIES)}, got {strategy!r}"
            f"{did_you_mean(strategy, STRATEGIES)}"
        )
    return STRATEGIES[strategy]
