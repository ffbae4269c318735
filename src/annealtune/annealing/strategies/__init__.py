"""Metaheuristics over a neighborhood, one a file."""

from annealtune.annealing.strategies.genetic import Genetic
from annealtune.annealing.strategies.great_deluge import GreatDeluge
from annealtune.annealing.strategies.hill_climbing import HillClimbing
from annealtune.annealing.strategies.late_acceptance import LateAcceptance
from annealtune.annealing.strategies.protocol import Comparing, PlainStrategy, Strategy
from annealtune.annealing.strategies.random_walk import RandomWalk
from annealtune.annealing.strategies.registry import STRATEGIES, make_strategy, takes_temperature
from annealtune.annealing.strategies.simulated_annealing import SimulatedAnnealing
from annealtune.annealing.strategies.tabu import Tabu
from annealtune.annealing.strategies.threshold_accepting import ThresholdAccepting
from annealtune.annealing.strategies.variable_neighborhood import VariableNeighborhood

__all__ = [
    "Strategy",
    "Comparing",
    "PlainStrategy",
    "SimulatedAnnealing",
    "ThresholdAccepting",
    "LateAcceptance",
    "GreatDeluge",
    "HillClimbing",
    "RandomWalk",
    "Tabu",
    "VariableNeighborhood",
    "Genetic",
    "STRATEGIES",
    "make_strategy",
    "takes_temperature",
]
