"""Algorithm 1 of the paper for any problem; imports neither torch nor anything third-party."""

from annealtune.search.annealer import Annealer
from annealtune.search.genetic import GeneticSearch
from annealtune.search.problem import Breedable, Problem
from annealtune.search.result import IterationInfo, Result

__all__ = ["Annealer", "GeneticSearch", "Problem", "Breedable", "Result", "IterationInfo"]
