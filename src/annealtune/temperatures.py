"""How warm the accept test is and how it cools: what ``temperature=`` takes beside a number."""

from annealtune.annealing import Automatic, Constant, Geometric, Reheating

__all__ = ["Automatic", "Constant", "Geometric", "Reheating"]
