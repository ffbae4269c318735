"""The metaheuristics that can stand in for simulated annealing, and what an own one is made of."""

from annealtune.annealing import (
    Genetic,
    PlainStrategy,
    SimulatedAnnealing,
    Tabu,
    VariableNeighborhood,
    Verdict,
)

__all__ = [
    "SimulatedAnnealing",
    "Tabu",
    "VariableNeighborhood",
    "Genetic",
    "PlainStrategy",
    "Verdict",
]
