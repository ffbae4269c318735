"""The methods as the page shows them: order, families, settings and where those come from."""

from __future__ import annotations

from typing import Literal, NamedTuple

from .summaries import COSINE, HELD_CENTRE

Family = Literal["ours", "control", "reference", "peer", "version 0.1", "paper"]


class Shown(NamedTuple):
    """One method.

    Attributes:
        name: as in the records.
        family: what it stands for in the comparison.
        label: for people.
        settings: what it is given.
        source: where that comes from: a publication or an address.
    """

    name: str
    family: Family
    label: str
    settings: str
    source: str = ""


SHOWN = {
    method.name: method
    for method in (
        Shown(
            "self-tuned",
            "ours",
            "self-tuned",
            "SelfTuner over the base, told the length; no rate is given. Steps of all arms count: "
            "it trains on fewer minibatches than a run without a race",
        ),
        Shown(
            "anytime",
            "ours",
            "self-tuned, no length",
            "SelfTuner that is not told the length: the rate never decays, the averaged weights "
            "count",
        ),
        Shown(
            COSINE,
            "reference",
            "cosine, best rate",
            "the base along a cosine to nothing, at the rate of the grid with the lowest "
            "validation score on seed 0: about five runs, around the best of the nine that were "
            "held",
        ),
        Shown(
            HELD_CENTRE,
            "control",
            "fixed 3e-3",
            "the base at 3e-3, held, decayed and averaged as SelfTuner does it: the centre of its "
            "first race over AdamW",
        ),
        Shown(
            "held-centre",
            "control",
            "relative centre",
            "the same at the rate that changes the weights by a given share in the first step",
        ),
        Shown(
            "held-quarter", "control", "quarter of centre", "the same at a quarter of the centre"
        ),
        Shown(
            "random-arm",
            "control",
            "random arm",
            "SelfTuner, but any arm of a race may win, dropped ones included",
        ),
        Shown(
            "prodigy",
            "peer",
            "Prodigy",
            "lr = 1, cosine annealing over all steps, safeguard_warmup, use_bias_correction, "
            "weight decay 0.01",
            "https://github.com/konstmish/prodigy",
        ),
        Shown(
            "schedule-free-adamw",
            "peer",
            "Schedule-Free AdamW",
            "default rate 0.0025, warm-up over 5 % of the steps, weight decay 0.01, BatchNorm "
            "recalibrated before the evaluation",
            "https://github.com/facebookresearch/schedule_free",
        ),
        Shown(
            "schedule-free-sgd",
            "peer",
            "Schedule-Free SGD",
            "default rate 1, momentum 0.9, warm-up over 5 % of the steps, BatchNorm recalibrated "
            "before the evaluation",
            "https://github.com/facebookresearch/schedule_free",
        ),
        Shown(
            "d-adaptation",
            "peer",
            "D-Adaptation",
            "DAdaptAdam, lr = 1, cosine, decoupled weight decay 0.01",
            "https://github.com/facebookresearch/dadaptation",
        ),
        Shown(
            "dog",
            "peer",
            "DoG",
            "reps_rel 1e-6, with BatchNorm 1e-4; polynomial averaging",
            "https://github.com/formll/dog",
        ),
        Shown(
            "mechanic",
            "peer",
            "Mechanic",
            "around AdamW along a cosine, lr = 1, weight decay 0.01, otherwise its defaults",
            "https://github.com/optimizedlearning/mechanic",
        ),
        Shown(
            "line-search",
            "peer",
            "line search",
            "stochastic Armijo line search, our code: c = 0.1, factor 0.9, gamma = 2, first rate "
            "1; the forwards of its tries count",
            "Vaswani et al. (2019); settings of https://github.com/IssamLaradji/sls",
        ),
        Shown(
            "autolrs",
            "peer",
            "AutoLRS",
            "over AdamW, our code, stages shortened to the run: half of all gradients go into "
            "trials of rates within the grid",
            "Jin et al. (2021); https://github.com/YuchenJin/autolrs",
        ),
        Shown(
            "version-0.2",
            "version 0.1",
            "annealtune 0.1",
            "the default of version 0.1 over AdamW, its code taken from git",
        ),
        Shown(
            "paper-text",
            "paper",
            "SGD-SA, text",
            "SGDSA, preset paper-text",
            "Fischetti and Stringher (2019), Algorithm 2",
        ),
        Shown(
            "paper-code",
            "paper",
            "SGD-SA, code",
            "SGDSA, preset paper-code",
            "Fischetti and Stringher (2019), as their experiments ran",
        ),
    )
}
# The few that stand in figures with room for a few.
CHIEF = ("self-tuned", COSINE, HELD_CENTRE, "prodigy", "schedule-free-adamw")


def of_families(*families: Family) -> list[str]:
    return [name for name, method in SHOWN.items() if method.family in families]


def label(name: str) -> str:
    """Return what people call a method; one that is not known keeps its name."""
    return SHOWN[name].label if name in SHOWN else name
