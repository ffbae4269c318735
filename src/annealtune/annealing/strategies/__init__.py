"""Metaheuristics over a neighborhood, one a file."""

from annealtune.annealing.strategies.plain import PlainStrategy
from annealtune.annealing.strategies.protocol import Comparing, Strategy
from annealtune.annealing.strategies.simulated_annealing import SimulatedAnnealing

__all__ = ["Comparing", "PlainStrategy", "SimulatedAnnealing", "Strategy"]
