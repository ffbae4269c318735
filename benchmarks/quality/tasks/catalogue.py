"""The tasks by name. Those on which the constants of the races were chosen are open, all others
sealed: nobody looks at what the tuner does on them before its constants are fixed.
"""

from __future__ import annotations

from . import (
    columns,
    fields,
    functions,
    games,
    generation,
    images,
    molecules,
    sequences,
    tables,
    text,
)
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
    "policy-gradient": games.PolicyGradient,
    "adversarial": games.Adversarial,
    "diffusion": generation.Diffusion,
    "denoising": generation.Denoising,
    "adding-problem": sequences.AddingProblem,
    "skip-gram": sequences.SkipGram,
    "poisson": fields.Poisson,
    "fourier-features": fields.FourierFeatures,
    "raw-table": columns.RawTable,
    "cancer": columns.Cancer,
    "friedman": columns.Friedman,
    "collaborative": columns.Collaborative,
    "molecules": molecules.Molecules,
}
TASKS = {**OPEN, **SEALED}

# They start with a net that was trained beforehand.
FINE_TUNING = frozenset({"fine-tuned-shifted", "fine-tuned-own", "fine-tuned-transformer"})

# SGD with momentum is too slow for the language models and the convolutions at these lengths, and
# for two nets at odds, vectors of users and items, columns in their own units.
NOT_FOR_SGD = frozenset(
    {
        "convolutions",
        "fine-tuned-shifted",
        "recurrent",
        "transformer",
        "fine-tuned-transformer",
        "adversarial",
        "collaborative",
        "raw-table",
    }
)

# Runs of ten times the length, and bases besides AdamW and SGD.
CHEAPEST: tuple[str, ...] = ()
FOR_OTHER_BASES: tuple[str, ...] = ()
