"""The tasks by name. Those on which the constants of the races were chosen are open, all others
sealed: nobody looks at what the tuner does on them before its constants are fixed.
"""

from __future__ import annotations

from . import functions, images, tables, text
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
SEALED: dict[str, type[Task]] = {}
TASKS = {**OPEN, **SEALED}

# They start with a net that was trained beforehand.
FINE_TUNING = frozenset({"fine-tuned-shifted", "fine-tuned-own", "fine-tuned-transformer"})

# SGD with momentum is too slow for the language models and the convolutions at these lengths.
NOT_FOR_SGD = frozenset(
    {
        "convolutions",
        "fine-tuned-shifted",
        "recurrent",
        "transformer",
        "fine-tuned-transformer",
    }
)

# Runs of ten times the length, and bases besides AdamW and SGD.
CHEAPEST: tuple[str, ...] = ()
FOR_OTHER_BASES: tuple[str, ...] = ()
