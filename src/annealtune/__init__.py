"""annealtune: train once, tune nothing; the hyper-parameters anneal inside the run.

The names below are imported when they are first used, so that the rules and the program's help
do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from annealtune.annealing import (
        Automatic,
        Constant,
        Genetic,
        Geometric,
        GreatDeluge,
        HillClimbing,
        LateAcceptance,
        Neighborhood,
        PlainStrategy,
        RandomWalk,
        Reheating,
        Setting,
        SimulatedAnnealing,
        Tabu,
        ThresholdAccepting,
        VariableNeighborhood,
        Verdict,
        grid,
        log_range,
    )
    from annealtune.errors import AnnealtuneError, NonFiniteLossError
    from annealtune.optim import (
        SGDSA,
        Attribute,
        EmbeddedTuner,
        SelfTuner,
        Shrinking,
        StepInfo,
        StochasticSA,
        Value,
        WeightPopulation,
    )
    from annealtune.search import Annealer, GeneticSearch

__version__ = "0.2.0"

_HOMES = {
    # optimizers
    "SelfTuner": "annealtune.optim",
    "SGDSA": "annealtune.optim",
    "EmbeddedTuner": "annealtune.optim",
    "StochasticSA": "annealtune.optim",
    "Shrinking": "annealtune.optim",
    "StepInfo": "annealtune.optim",
    # options of the loop
    "Attribute": "annealtune.optim",
    "Value": "annealtune.optim",
    # the set H
    "grid": "annealtune.annealing",
    "log_range": "annealtune.annealing",
    "Neighborhood": "annealtune.annealing",
    "Setting": "annealtune.annealing",
    # temperatures and strategies
    "Automatic": "annealtune.annealing",
    "Constant": "annealtune.annealing",
    "Geometric": "annealtune.annealing",
    "Reheating": "annealtune.annealing",
    "PlainStrategy": "annealtune.annealing",
    "Verdict": "annealtune.annealing",
    "SimulatedAnnealing": "annealtune.annealing",
    "ThresholdAccepting": "annealtune.annealing",
    "LateAcceptance": "annealtune.annealing",
    "GreatDeluge": "annealtune.annealing",
    "HillClimbing": "annealtune.annealing",
    "RandomWalk": "annealtune.annealing",
    "Tabu": "annealtune.annealing",
    "VariableNeighborhood": "annealtune.annealing",
    "Genetic": "annealtune.annealing",
    # any problem
    "Annealer": "annealtune.search",
    "GeneticSearch": "annealtune.search",
    "WeightPopulation": "annealtune.optim",
    # errors
    "AnnealtuneError": "annealtune.errors",
    "NonFiniteLossError": "annealtune.errors",
}

__all__ = [
    "SelfTuner",
    "SGDSA",
    "EmbeddedTuner",
    "StochasticSA",
    "Shrinking",
    "StepInfo",
    "Attribute",
    "Value",
    "grid",
    "log_range",
    "Neighborhood",
    "Setting",
    "Automatic",
    "Constant",
    "Geometric",
    "Reheating",
    "PlainStrategy",
    "Verdict",
    "SimulatedAnnealing",
    "ThresholdAccepting",
    "LateAcceptance",
    "GreatDeluge",
    "HillClimbing",
    "RandomWalk",
    "Tabu",
    "VariableNeighborhood",
    "Genetic",
    "Annealer",
    "GeneticSearch",
    "WeightPopulation",
    "AnnealtuneError",
    "NonFiniteLossError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'annealtune' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
