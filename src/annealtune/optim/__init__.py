"""The rules applied to torch optimizers.

Read `annealtune.optim.self_tuner` for Algorithm 3 and `annealtune.optim.embedded` for Algorithm 2.
"""

from annealtune.optim.annealing_state import Count, Moves, StepInfo
from annealtune.optim.embedded import EmbeddedTuner
from annealtune.optim.self_tuner import SelfTuner
from annealtune.optim.sgd_sa import SGDSA
from annealtune.optim.stochastic_sa import Shrinking, StochasticSA

__all__ = [
    "SGDSA",
    "Count",
    "EmbeddedTuner",
    "Moves",
    "SelfTuner",
    "Shrinking",
    "StepInfo",
    "StochasticSA",
]
