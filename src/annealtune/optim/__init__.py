"""The rules applied to torch optimizers; `annealtune.optim.embedded` is the file to read."""

from annealtune.optim.embedded import EmbeddedTuner
from annealtune.optim.options.loop_options import Attribute, LoopOption, Value
from annealtune.optim.self_tuner import SelfTuner
from annealtune.optim.sgd_sa import SGDSA
from annealtune.optim.step_info import Count, Moves, StepInfo
from annealtune.optim.stochastic_sa import Shrinking, StochasticSA
from annealtune.optim.weight_population import WeightPopulation

__all__ = [
    "SGDSA",
    "Attribute",
    "Count",
    "Moves",
    "EmbeddedTuner",
    "LoopOption",
    "SelfTuner",
    "Shrinking",
    "StepInfo",
    "StochasticSA",
    "Value",
    "WeightPopulation",
]
