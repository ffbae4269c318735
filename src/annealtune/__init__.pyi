# The public names and where they live, for people, for type checkers and for __init__.py.

from .optim import (
    SelfTuner as SelfTuner,
    SGDSA as SGDSA,
    EmbeddedTuner as EmbeddedTuner,
    StochasticSA as StochasticSA,
    Shrinking as Shrinking,
    StepInfo as StepInfo,
)
from .annealing import (
    # the set H
    grid as grid,
    log_range as log_range,
    Neighborhood as Neighborhood,
    Setting as Setting,
    # temperatures
    Automatic as Automatic,
    Constant as Constant,
    Geometric as Geometric,
    Reheating as Reheating,
    # strategies
    PlainStrategy as PlainStrategy,
    Verdict as Verdict,
    SimulatedAnnealing as SimulatedAnnealing,
    ThresholdAccepting as ThresholdAccepting,
    LateAcceptance as LateAcceptance,
    GreatDeluge as GreatDeluge,
    HillClimbing as HillClimbing,
    RandomWalk as RandomWalk,
    Tabu as Tabu,
    VariableNeighborhood as VariableNeighborhood,
    Genetic as Genetic,
)
from .search import Annealer as Annealer, GeneticSearch as GeneticSearch
from .training import load as load
from .errors import AnnealtuneError as AnnealtuneError, NonFiniteLossError as NonFiniteLossError

__version__: str
