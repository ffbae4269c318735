"""The metaheuristics that can stand in for simulated annealing, and what an own one is made of."""

from annealtune.annealing import (
    Genetic,
    SimulatedAnnealing,
    Strategy,
    Tabu,
    VariableNeighborhood,
    Verdict,
)

__all__ = [
    "SimulatedAnnealing",
    "Tabu",
    "VariableNeighborhood",
    "Genetic",
    "Strategy",
    "Verdict",
]
