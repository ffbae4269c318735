"""The rules of simulated annealing: pure Python on floats, no torch."""

from annealtune.annealing.acceptance import Verdict, accept_probability, metropolis
from annealtune.annealing.neighborhood import PAPER_RATES, Neighborhood, Setting, grid, log_range
from annealtune.annealing.race import RaceInfo, rate_text
from annealtune.annealing.strategies import (
    STRATEGIES,
    Comparing,
    Genetic,
    PlainStrategy,
    SimulatedAnnealing,
    Strategy,
    Tabu,
    VariableNeighborhood,
    make_strategy,
    takes_temperature,
)
from annealtune.annealing.temperature import Automatic, Constant, Geometric, Reheating, Schedule

__all__ = [
    "PAPER_RATES",
    "STRATEGIES",
    "Automatic",
    "Comparing",
    "Constant",
    "Genetic",
    "Geometric",
    "Neighborhood",
    "PlainStrategy",
    "RaceInfo",
    "Reheating",
    "Schedule",
    "Setting",
    "SimulatedAnnealing",
    "Strategy",
    "Tabu",
    "VariableNeighborhood",
    "Verdict",
    "accept_probability",
    "grid",
    "log_range",
    "make_strategy",
    "metropolis",
    "rate_text",
    "takes_temperature",
]
