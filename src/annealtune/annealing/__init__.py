"""The rules of simulated annealing: pure Python on floats, no torch."""

from annealtune.annealing.acceptance import Verdict, accept_probability, metropolis
from annealtune.annealing.neighborhood import PAPER_RATES, Neighborhood, Setting, grid
from annealtune.annealing.race import RaceInfo
from annealtune.annealing.strategies import (
    STRATEGIES,
    Genetic,
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
    "Constant",
    "Genetic",
    "Geometric",
    "Neighborhood",
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
    "make_strategy",
    "metropolis",
    "takes_temperature",
]
