"""The tasks by name. Those on which constants of the library were chosen are open, all others
sealed: nothing was chosen by what the tuner does on them.
"""

from __future__ import annotations

from . import (
    adaptation,
    fresh,
    functions,
    games,
    gates,
    generation,
    images,
    numerals,
    tables,
    text,
)
from .task import Task

# The seventeen of decision 0015.
_DEVELOPED: dict[str, type[Task]] = {
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
# Sealed in a first round, opened after it: those with an even SHA-256 of their name.
OPENED: dict[str, type[Task]] = {
    "wide": images.Wide,
    "residual": images.Residual,
    "fashion-convolutions": images.FashionConvolutions,
    "adversarial": games.Adversarial,
    "denoising": generation.Denoising,
    "adding-problem": text.AddingProblem,
    "skip-gram": text.SkipGram,
    "poisson": functions.Poisson,
    "raw-table": tables.RawTable,
    "friedman": tables.Friedman,
    "collaborative": tables.Collaborative,
    "molecules": tables.Molecules,
}
# The others of the first round: run once before, with other constants; nothing was chosen on them.
_KEPT: dict[str, type[Task]] = {
    "two-groups": adaptation.TwoGroups,
    "frozen-body": adaptation.FrozenBody,
    "unfrozen": adaptation.Unfrozen,
    "low-rank-adapter": adaptation.LowRankAdapter,
    "batches-of-four": images.BatchesOfFour,
    "vision-transformer": images.VisionTransformer,
    "cifar-convolutions": images.CifarConvolutions,
    "policy-gradient": games.PolicyGradient,
    "diffusion": generation.Diffusion,
    "fourier-features": functions.FourierFeatures,
    "cancer": tables.Cancer,
}
# Written for the second round, and run with its constants.
_SECOND: dict[str, type[Task]] = {
    "mixture-density": generation.MixtureDensity,
    "bag-of-words": text.BagOfWords,
    "oscillator": functions.Oscillator,
    "triplets": numerals.Triplets,
    "wrong-labels": images.WrongLabels,
    "softmax-regression": images.SoftmaxRegression,
    "occupancy": functions.Occupancy,
    "deep-tanh": numerals.DeepTanh,
    "rows-of-digits": numerals.RowsOfDigits,
    "fine-tuned-digits": numerals.FineTunedDigits,
}
# Written for the third round, when all constants of version 0.2 were fixed.
_THIRD: dict[str, type[Task]] = {
    "variational": generation.Variational,
    "coupling-flow": generation.CouplingFlow,
    "strengths": generation.Strengths,
    "experts": gates.Experts,
    "hypernetwork": gates.Hypernetwork,
    "dilated-convolutions": text.DilatedConvolutions,
    "punctuation": text.Punctuation,
    "fine-tuned-grey": adaptation.FineTunedGrey,
    "biases-only": adaptation.BiasesOnly,
}
# One of the third round, opened after it: it showed a defect, and the fix was chosen on it.
_MOVED: dict[str, type[Task]] = {"point-clouds": gates.PointClouds}
# Written for the fourth round. No tuner was run on them when they were written: they were tried
# with fixed rates only. All of them stay, whatever comes out.
FRESH: dict[str, type[Task]] = {
    "shapes": fresh.Shapes,
    "masked-characters": fresh.MaskedCharacters,
    "vowels": fresh.Vowels,
    "links": fresh.Links,
    "mixed-table": fresh.MixedTable,
    "turned-images": fresh.TurnedImages,
    "drawn-again": fresh.DrawnAgain,
    "twenty-layers": fresh.TwentyLayers,
    "deblurring": fresh.Deblurring,
    "forged-digits": fresh.ForgedDigits,
}
OPEN = {**_DEVELOPED, **OPENED, **_MOVED}
SEALED = {**_KEPT, **_SECOND, **_THIRD, **FRESH}
TASKS = {**OPEN, **SEALED}

# SGD with momentum is too slow for transformers, the GRU and these convolutions at these lengths,
# and for two nets at odds, vectors of users and items, of words or of players, columns in their own
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
        "strengths",
        "punctuation",
        "masked-characters",
        "links",
        "forged-digits",
    }
)

# Seconds of a run of AdamW at one rate, on one core: medians of records, of the fresh ones tries.
# What takes long has fewer seeds (`plan.seeds_of`).
SECONDS = {
    "two-groups": 3.4,
    "frozen-body": 4.0,
    "unfrozen": 1.0,
    "low-rank-adapter": 7.7,
    "batches-of-four": 4.9,
    "vision-transformer": 9.7,
    "cifar-convolutions": 8.8,
    "policy-gradient": 11.3,
    "diffusion": 3.2,
    "fourier-features": 1.3,
    "cancer": 1.1,
    "mixture-density": 1.7,
    "bag-of-words": 2.3,
    "oscillator": 3.2,
    "triplets": 2.4,
    "wrong-labels": 2.2,
    "softmax-regression": 2.3,
    "occupancy": 2.2,
    "deep-tanh": 2.9,
    "rows-of-digits": 2.6,
    "fine-tuned-digits": 1.7,
    "variational": 6.5,
    "coupling-flow": 10.1,
    "strengths": 4.6,
    "experts": 9.5,
    "hypernetwork": 12.8,
    "dilated-convolutions": 16.6,
    "punctuation": 5.5,
    "fine-tuned-grey": 14.0,
    "biases-only": 13.7,
    "shapes": 3.4,
    "masked-characters": 4.3,
    "vowels": 2.0,
    "links": 2.8,
    "mixed-table": 1.2,
    "turned-images": 1.4,
    "drawn-again": 0.9,
    "twenty-layers": 2.6,
    "deblurring": 2.3,
    "forged-digits": 2.2,
}
# Runs of ten times the length: the ten cheapest of the sealed ones.
CHEAPEST = tuple(sorted(SECONDS, key=lambda task: SECONDS[task])[:10])
# Bases besides AdamW and SGD. Muon takes minutes on the last of the sealed ones.
_FEW_OPEN = ("digits", "words", "siren-image", "friedman")
_FEW_SEALED = ("cancer", "wrong-labels")
FOR_OTHER_BASES = {
    "adafactor": (*_FEW_OPEN, *_FEW_SEALED),
    "adagrad": _FEW_OPEN,
    "lion": (*_FEW_OPEN, *_FEW_SEALED),
    "muon": (*_FEW_OPEN, *_FEW_SEALED[:-1]),
    "rmsprop": _FEW_OPEN,
}
