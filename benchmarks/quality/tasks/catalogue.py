"""The tasks by name. Those on which the constants of the races were chosen are open, all others
sealed: nobody looks at what the tuner does on them before its constants are fixed.
"""

from __future__ import annotations

from . import adaptation, functions, images, perceptrons, tables, text, vision
from .task import Task

# The seventeen of decision 0015.
OPEN: dict[str, type[Task]] = {
    "digits": images.Digits,
    "convolutions": images.Convolutions,
    "deep": images.Deep,
    "fine-tuned-shifted": images.FineTunedShifted,
    "fine-tuned-own": images.FineTunedOwn,
    "contrastive": images.Contrastive,
    "autoencoder": images.Autoencoder,
    "recurrent": text.Recurrent,
    "transformer": text.Transformer,
    "fine-tuned-transformer": text.FineTunedTransformer,
    "words": text.Words,
    "siren-image": functions.SirenImage,
    "siren-sound": functions.SirenSound,
    "heat-equation": functions.HeatEquation,
    "factorisation": tables.Factorisation,
    "graph": tables.Graph,
    "logistic-regression": tables.LogisticRegression,
}
SEALED: dict[str, type[Task]] = {
    "two-groups": adaptation.TwoGroups,
    "frozen-body": adaptation.FrozenBody,
    "unfrozen": adaptation.Unfrozen,
    "low-rank-adapter": adaptation.LowRankAdapter,
    "wide": perceptrons.Wide,
    "residual": perceptrons.Residual,
    "batches-of-four": perceptrons.BatchesOfFour,
    "fashion-convolutions": vision.FashionConvolutions,
    "vision-transformer": vision.VisionTransformer,
    "cifar-convolutions": vision.CifarConvolutions,
}
TASKS = {**OPEN, **SEALED}

# SGD with momentum is too slow for transformers, the GRU and these convolutions at these lengths.
NOT_FOR_SGD = frozenset(
    {
        "convolutions",
        "fine-tuned-shifted",
        "recurrent",
        "transformer",
        "fine-tuned-transformer",
        "vision-transformer",
    }
)
