"""The tasks by name. Those on which the constants of the races were chosen are open, all others
sealed: nobody looks at what the tuner does on them before its constants are fixed.
"""

from __future__ import annotations

from . import (
    adaptation,
    columns,
    densities,
    fields,
    functions,
    games,
    generation,
    images,
    labels,
    lines,
    molecules,
    numerals,
    oscillations,
    perceptrons,
    sequences,
    shapes,
    tables,
    text,
    vision,
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
    "mixture-density": densities.MixtureDensity,
    "bag-of-words": lines.BagOfWords,
    "oscillator": oscillations.Oscillator,
    "triplets": numerals.Triplets,
    "wrong-labels": labels.WrongLabels,
    "softmax-regression": labels.SoftmaxRegression,
    "occupancy": shapes.Occupancy,
    "deep-tanh": numerals.DeepTanh,
    "rows-of-digits": numerals.RowsOfDigits,
    "fine-tuned-digits": numerals.FineTunedDigits,
}
TASKS = {**OPEN, **SEALED}

# They start with a net that was trained beforehand.
FINE_TUNING = frozenset(
    {
        "fine-tuned-shifted",
        "fine-tuned-own",
        "fine-tuned-transformer",
        "two-groups",
        "frozen-body",
        "unfrozen",
        "low-rank-adapter",
        "fine-tuned-digits",
    }
)

# SGD with momentum is too slow for transformers, the GRU and these convolutions at these lengths,
# and for two nets at odds, vectors of users and items or of a line's words, columns in their own
# units.
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
        "vision-transformer",
        "bag-of-words",
    }
)

# Runs of ten times the length: the five cheapest of each half.
CHEAPEST = (
    "logistic-regression",
    "digits",
    "autoencoder",
    "siren-image",
    "factorisation",
    "unfrozen",
    "cancer",
    "friedman",
    "fourier-features",
    "adding-problem",
)
# Bases besides AdamW and SGD.
FOR_OTHER_BASES = ("digits", "siren-image", "friedman", "denoising")
