"""Metaheuristics over a neighborhood, one a file."""

from annealtune.annealing.strategies.protocol import Strategy
from annealtune.annealing.strategies.simulated_annealing import SimulatedAnnealing

__all__ = ["SimulatedAnnealing", "Strategy"]
