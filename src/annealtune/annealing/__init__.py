"""The rules of simulated annealing: pure Python on floats, no torch."""

from annealtune.annealing.acceptance import Verdict, accept_probability, metropolis
from annealtune.annealing.neighborhood import PAPER_RATES, Neighborhood, Setting, grid, log_range
from annealtune.annealing.strategies import (
    Comparing,
    PlainStrategy,
    SimulatedAnnealing,
    Strategy,
)
from annealtune.annealing.temperature import (
    Automatic,
    Constant,
    Geometric,
    Reheating,
    Schedule,
)

__all__ = [
    "PAPER_RATES",
    "Automatic",
    "Comparing",
    "Constant",
    "Geometric",
    "Neighborhood",
    "PlainStrategy",
    "Reheating",
    "Schedule",
    "Setting",
    "SimulatedAnnealing",
    "Strategy",
    "Verdict",
    "accept_probability",
    "grid",
    "log_range",
    "metropolis",
]
