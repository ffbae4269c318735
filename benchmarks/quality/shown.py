"""The methods as the page shows them: order, settings and where those come from."""

from __future__ import annotations

from typing import NamedTuple

from .summaries import COSINE, HELD_CENTRE


class Shown(NamedTuple):
    """One method.

    Attributes:
        name: as in the records.
        label: for people.
        settings: what it is given.
        source: where that comes from: a publication or an address.
    """

    name: str
    label: str
    settings: str
    source: str = ""


SHOWN = {
    method.name: method
    for method in (
        Shown(
            "self-tuned",
            "self-tuned",
            "SelfTuner over the base, told the length; no rate is given. Steps of all arms count: "
            "it trains on fewer minibatches than a run without a race",
        ),
        Shown(
            "anytime",
            "self-tuned, no length",
            "SelfTuner that is not told the length: the rate never decays, the averaged weights "
            "count",
        ),
        Shown(
            COSINE,
            "cosine, best rate",
            "the base along a cosine to nothing after the same warm-up, averaged as SelfTuner does "
            "it, at the best of about five rates around the best one held",
        ),
        Shown(
            HELD_CENTRE,
            "fixed 3e-3",
            "the base at 3e-3, warmed up, held, decayed and averaged as SelfTuner does it: the "
            "centre of its first race over AdamW",
        ),
        Shown(
            "held-centre",
            "relative centre",
            "the same at the rate whose thirtieth step along the first gradient changes the "
            "weights by 2 % of their size: the centre over bases that are not Adam",
        ),
        Shown("held-quarter", "quarter of centre", "the same at a quarter of the centre"),
        Shown(
            "random-arm",
            "random arm",
            "SelfTuner, but any arm of a race may win, dropped ones included",
        ),
        Shown(
            "prodigy",
            "Prodigy",
            "lr = 1, cosine annealing over all steps, safeguard_warmup, use_bias_correction, "
            "weight decay 0.01; SelfTuner's average",
            "https://github.com/konstmish/prodigy",
        ),
        Shown(
            "schedule-free-adamw",
            "Schedule-Free AdamW",
            "default rate 0.0025, warm-up over 5 % of the steps, weight decay 0.01, BatchNorm "
            "recalibrated before the evaluation",
            "https://github.com/facebookresearch/schedule_free",
        ),
        Shown(
            "schedule-free-sgd",
            "Schedule-Free SGD",
            "default rate 1, momentum 0.9, warm-up over 5 % of the steps, BatchNorm recalibrated "
            "before the evaluation",
            "https://github.com/facebookresearch/schedule_free",
        ),
        Shown(
            "d-adaptation",
            "D-Adaptation",
            "DAdaptAdam, lr = 1, cosine, decoupled weight decay 0.01; SelfTuner's average",
            "https://github.com/facebookresearch/dadaptation",
        ),
        Shown(
            "dog",
            "DoG",
            "reps_rel 1e-6, with BatchNorm 1e-4; polynomial averaging",
            "https://github.com/formll/dog",
        ),
        Shown(
            "mechanic",
            "Mechanic",
            "around AdamW along a cosine, lr = 1, weight decay 0.01, otherwise its defaults; "
            "SelfTuner's average",
            "https://github.com/optimizedlearning/mechanic",
        ),
        Shown(
            "line-search",
            "line search",
            "stochastic Armijo line search, our code: c = 0.1, factor 0.9, gamma = 2, first rate "
            "1; the forwards of its tries count; SelfTuner's average",
            "Vaswani et al. (2019); settings of https://github.com/IssamLaradji/sls",
        ),
        Shown(
            "autolrs",
            "AutoLRS",
            "over AdamW, our code, stages shortened to the run: half of all gradients go into "
            "trials of rates from 1e-5 to 1e-1; SelfTuner's average",
            "Jin et al. (2021); https://github.com/YuchenJin/autolrs",
        ),
        Shown(
            "version-0.2",
            "annealtune 0.2",
            "the default of version 0.2 over AdamW, its code taken from git",
        ),
        Shown(
            "paper-text",
            "SGD-SA, text",
            "SGDSA, preset paper-text",
            "Fischetti and Stringher (2019), Algorithm 2",
        ),
        Shown(
            "paper-code",
            "SGD-SA, code",
            "SGDSA, preset paper-code",
            "Fischetti and Stringher (2019), as their experiments ran",
        ),
    )
}
# The few that stand in figures with room for a few.
CHIEF = ("self-tuned", COSINE, HELD_CENTRE, "prodigy", "schedule-free-adamw")


def label(name: str) -> str:
    """Return what people call a method; one that is not known keeps its name."""
    return SHOWN[name].label if name in SHOWN else name
