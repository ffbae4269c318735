"""How each method is started: the optimizer with its settings, and what steps it.

The same weight decay of 0.01 wherever AdamW is underneath, none for SGD.
"""

from __future__ import annotations

import math

import torch

from annealtune import SGDSA, EmbeddedTuner, grid, log_range
from annealtune.annealing import PAPER_RATES

from .own_peers import SAM, StochasticLineSearch
from .trainers import Annealed, OwnStep, PolynomialAveraging, ScheduleFree, Setup, Trainer

WEIGHT_DECAY = 0.01
WARM_UP = 0.05

# --- Ours ---


def _adamw(setup: Setup) -> torch.optim.AdamW:
    return torch.optim.AdamW(setup.model.parameters(), lr=setup.lr, weight_decay=WEIGHT_DECAY)


def _sgd(setup: Setup) -> torch.optim.SGD:
    return torch.optim.SGD(setup.model.parameters(), lr=setup.lr, momentum=0.9)


def self_tuned(setup: Setup) -> Trainer:
    from annealtune import SelfTuner

    tuner = SelfTuner(_adamw(setup), model=setup.model, total_steps=setup.steps, seed=setup.seed)
    return Annealed(setup, tuner, is_averaged=True)


def self_tuned_anytime(setup: Setup) -> Trainer:
    from annealtune import SelfTuner

    tuner = SelfTuner(_adamw(setup), model=setup.model, seed=setup.seed)
    return Annealed(setup, tuner, is_averaged=True)


def self_tuned_sgd(setup: Setup) -> Trainer:
    from annealtune import SelfTuner

    base = torch.optim.SGD(setup.model.parameters(), lr=0.1, momentum=0.9)
    tuner = SelfTuner(base, model=setup.model, total_steps=setup.steps, seed=setup.seed)
    return Annealed(setup, tuner, is_averaged=True)


def retired(setup: Setup) -> Trainer:
    raise NotImplementedError("version 0.1 must be checked out to run its default")


def paper_text(setup: Setup) -> Trainer:
    tuner = SGDSA(setup.model, preset="paper-text", epochs=setup.epochs, seed=setup.seed)
    return Annealed(setup, tuner, is_averaged=False)


def paper_code(setup: Setup) -> Trainer:
    tuner = SGDSA(
        setup.model,
        preset="paper-code",
        batch_size=setup.batch_size,
        epochs=setup.epochs,
        seed=setup.seed,
    )
    return Annealed(setup, tuner, is_averaged=False)


def always_accept(setup: Setup) -> Trainer:
    tuner = SGDSA(setup.model, grid(lr=PAPER_RATES), temperature=math.inf, seed=setup.seed)
    return Annealed(setup, tuner, is_averaged=False)


def always_accept_adamw(setup: Setup) -> Trainer:
    base = torch.optim.AdamW(setup.model.parameters(), weight_decay=WEIGHT_DECAY)
    tuner = EmbeddedTuner(
        base,
        model=setup.model,
        neighborhood=grid(lr=log_range(1e-5, 0.3, 10)),
        temperature=math.inf,
        seed=setup.seed,
    )
    return Annealed(setup, tuner, is_averaged=False)


# --- Peers and references ---


def cosine_sgd(setup: Setup) -> Trainer:
    return Trainer(setup, _sgd(setup))


def cosine_adamw(setup: Setup) -> Trainer:
    return Trainer(setup, _adamw(setup))


def prodigy(setup: Setup) -> Trainer:
    from prodigyopt import Prodigy

    optimizer = Prodigy(
        setup.model.parameters(),
        lr=setup.lr,
        weight_decay=WEIGHT_DECAY,
        safeguard_warmup=True,
        use_bias_correction=True,
    )
    return Trainer(setup, optimizer)


def schedule_free_adamw(setup: Setup) -> Trainer:
    from schedulefree import AdamWScheduleFree

    optimizer = AdamWScheduleFree(
        setup.model.parameters(),
        lr=setup.lr,
        weight_decay=WEIGHT_DECAY,
        warmup_steps=round(WARM_UP * setup.steps),
    )
    return ScheduleFree(setup, optimizer)


def schedule_free_sgd(setup: Setup) -> Trainer:
    from schedulefree import SGDScheduleFree

    optimizer = SGDScheduleFree(
        setup.model.parameters(),
        lr=setup.lr,
        momentum=0.9,
        warmup_steps=round(WARM_UP * setup.steps),
    )
    return ScheduleFree(setup, optimizer)


def d_adaptation(setup: Setup) -> Trainer:
    from dadaptation import DAdaptAdam

    optimizer = DAdaptAdam(
        setup.model.parameters(), lr=setup.lr, weight_decay=WEIGHT_DECAY, decouple=True
    )
    return Trainer(setup, optimizer)


def dog(setup: Setup) -> Trainer:
    from dog import DoG, PolynomialDecayAverager

    # The first movement; its documentation gives one value for nets with BatchNorm, one for others.
    movement = 1e-4 if setup.has_batch_norm else 1e-6
    optimizer = DoG(setup.model.parameters(), reps_rel=movement)
    return PolynomialAveraging(setup, optimizer, PolynomialDecayAverager(setup.model))


def line_search(setup: Setup) -> Trainer:
    search = StochasticLineSearch(setup.model, setup.steps_per_epoch, setup.forwards_left)
    return OwnStep(setup, search)


def sam(setup: Setup) -> Trainer:
    base = _sgd(setup)
    return OwnStep(setup, SAM(setup.model, base), scheduled=base)
