"""The methods: ours, what is left of them without the accept test, peers, tuned references.

A peer has the settings that its authors recommend, with the source beside it; the same weight
decay of 0.01 wherever AdamW is underneath, none for SGD.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from annealtune import SGDSA, EmbeddedTuner, grid, log_range
from annealtune.annealing import PAPER_RATES

from .own_peers import SAM, StochasticLineSearch
from .trainers import Annealed, OwnStep, PolynomialAveraging, ScheduleFree, Setup, Trainer

Family = Literal["ours", "paper", "ablation", "peer", "reference"]
WEIGHT_DECAY = 0.01
WARM_UP = 0.05
# Ours are planned at this cost of a step, after so many forwards for the search at the start: a
# little above what the default needs in up to 2,000 steps, so that its schedule ends before the
# budget does; a longer one loses its last half percent, at rates of nearly zero. What a run really
# cost is counted, and a run that has spent its budget ends.
SELDOM_PROBING, SEARCH = 3.06, 40


@dataclass(frozen=True)
class Method:
    """One way to train.

    Attributes:
        name: as on the command line.
        title: for the page.
        family: what it stands for in the comparison.
        start: builds it.
        step_cost: planned cost of a step in forwards; a plain step costs 3.
        first_cost: planned cost before the first step, on top.
        lr: the learning rate it is given, None if it takes none.
        rates: what its rate is chosen from on the validation part, for the references.
        recalibrates: whether it draws minibatches to evaluate averaged weights with BatchNorm.
        probes_are_free: for ablations whose steps would be the same without the second forward.
        package: what must be installed, if it is no part of this library.
        source: where its settings come from.
    """

    name: str
    title: str
    family: Family
    start: Callable[[Setup], Trainer]
    step_cost: float = 3.0
    first_cost: int = 0
    lr: float | None = None
    rates: tuple[float, ...] = ()
    recalibrates: bool = False
    probes_are_free: bool = False
    package: str = ""
    source: str = ""

    @property
    def dearest_step(self) -> int:
        """What a step may cost: a run ends while it can still pay one."""
        return 4 if self.family == "ours" else math.ceil(self.step_cost)

    @property
    def is_installed(self) -> bool:
        return not self.package or importlib.util.find_spec(self.package) is not None


# --- Ours ---


def _adamw(setup: Setup) -> torch.optim.AdamW:
    return torch.optim.AdamW(setup.model.parameters(), lr=setup.lr, weight_decay=WEIGHT_DECAY)


def _sgd(setup: Setup) -> torch.optim.SGD:
    return torch.optim.SGD(setup.model.parameters(), lr=setup.lr, momentum=0.9)


def _adamw_sa(setup: Setup) -> Trainer:
    tuner = EmbeddedTuner(
        _adamw(setup), model=setup.model, total_steps=setup.steps, seed=setup.seed
    )
    return Annealed(setup, tuner, is_averaged=True)


def _adamw_sa_anytime(setup: Setup) -> Trainer:
    tuner = EmbeddedTuner(_adamw(setup), model=setup.model, seed=setup.seed)
    return Annealed(setup, tuner, is_averaged=True)


def _sgd_sa(setup: Setup) -> Trainer:
    tuner = SGDSA(setup.model, total_steps=setup.steps, seed=setup.seed)
    return Annealed(setup, tuner, is_averaged=True)


def _paper_text(setup: Setup) -> Trainer:
    tuner = SGDSA(setup.model, preset="paper-text", epochs=setup.epochs, seed=setup.seed)
    return Annealed(setup, tuner, is_averaged=False)


def _paper_code(setup: Setup) -> Trainer:
    tuner = SGDSA(setup.model, preset="paper-code", batch_size=setup.batch_size, seed=setup.seed)
    return Annealed(setup, tuner, is_averaged=False)


def _always_accept(setup: Setup) -> Trainer:
    tuner = SGDSA(setup.model, grid(lr=PAPER_RATES), temperature=math.inf, seed=setup.seed)
    return Annealed(setup, tuner, is_averaged=False)


def _always_accept_adamw(setup: Setup) -> Trainer:
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


def _cosine_sgd(setup: Setup) -> Trainer:
    return Trainer(setup, _sgd(setup))


def _cosine_adamw(setup: Setup) -> Trainer:
    return Trainer(setup, _adamw(setup))


def _prodigy(setup: Setup) -> Trainer:
    from prodigyopt import Prodigy

    optimizer = Prodigy(
        setup.model.parameters(),
        lr=setup.lr,
        weight_decay=WEIGHT_DECAY,
        safeguard_warmup=True,
        use_bias_correction=True,
    )
    return Trainer(setup, optimizer)


def _schedule_free_adamw(setup: Setup) -> Trainer:
    from schedulefree import AdamWScheduleFree

    optimizer = AdamWScheduleFree(
        setup.model.parameters(),
        lr=setup.lr,
        weight_decay=WEIGHT_DECAY,
        warmup_steps=round(WARM_UP * setup.steps),
    )
    return ScheduleFree(setup, optimizer)


def _schedule_free_sgd(setup: Setup) -> Trainer:
    from schedulefree import SGDScheduleFree

    optimizer = SGDScheduleFree(
        setup.model.parameters(),
        lr=setup.lr,
        momentum=0.9,
        warmup_steps=round(WARM_UP * setup.steps),
    )
    return ScheduleFree(setup, optimizer)


def _d_adaptation(setup: Setup) -> Trainer:
    from dadaptation import DAdaptAdam

    optimizer = DAdaptAdam(
        setup.model.parameters(), lr=setup.lr, weight_decay=WEIGHT_DECAY, decouple=True
    )
    return Trainer(setup, optimizer)


def _dog(setup: Setup) -> Trainer:
    from dog import DoG, PolynomialDecayAverager

    # The first movement; its documentation gives one value for nets with BatchNorm, one for others.
    movement = 1e-4 if setup.has_batch_norm else 1e-6
    optimizer = DoG(setup.model.parameters(), reps_rel=movement)
    return PolynomialAveraging(setup, optimizer, PolynomialDecayAverager(setup.model))


def _line_search(setup: Setup) -> Trainer:
    search = StochasticLineSearch(setup.model, setup.steps_per_epoch, setup.forwards_left)
    return OwnStep(setup, search)


def _sam(setup: Setup) -> Trainer:
    base = _sgd(setup)
    return OwnStep(setup, SAM(setup.model, base), scheduled=base)


METHODS = {
    method.name: method
    for method in (
        Method(
            "adamw-sa",
            "EmbeddedTuner over AdamW, default",
            "ours",
            _adamw_sa,
            step_cost=SELDOM_PROBING,
            first_cost=SEARCH,
            lr=1e-3,
            recalibrates=True,
        ),
        Method(
            "sgd-sa",
            "SGDSA, default",
            "ours",
            _sgd_sa,
            step_cost=SELDOM_PROBING,
            first_cost=SEARCH,
            recalibrates=True,
        ),
        # Without a schedule there is nothing to fit into the budget: it goes on until it is spent.
        Method(
            "adamw-sa-anytime",
            "EmbeddedTuner over AdamW, length not told",
            "ours",
            _adamw_sa_anytime,
            lr=1e-3,
            recalibrates=True,
        ),
        Method(
            "paper-text",
            "SGDSA, preset paper-text",
            "paper",
            _paper_text,
            step_cost=4.0,
            source="Fischetti and Stringher (2019), Algorithm 2",
        ),
        # Both losses of its accept test are taken in evaluation mode: two forwards on top.
        Method(
            "paper-code",
            "SGDSA, preset paper-code",
            "paper",
            _paper_code,
            step_cost=5.0,
            source="Fischetti and Stringher (2019), as their experiments ran",
        ),
        Method(
            "always-accept",
            "SGD at a random rate of the paper",
            "ablation",
            _always_accept,
            probes_are_free=True,
        ),
        Method(
            "always-accept-adamw",
            "AdamW at a random rate of ten",
            "ablation",
            _always_accept_adamw,
            probes_are_free=True,
        ),
        Method(
            "prodigy",
            "Prodigy, cosine",
            "peer",
            _prodigy,
            lr=1.0,
            package="prodigyopt",
            source="https://github.com/konstmish/prodigy: lr = 1, cosine annealing over all steps, "
            "safeguard_warmup, use_bias_correction, weight decay 0.01",
        ),
        Method(
            "schedule-free-adamw",
            "Schedule-Free AdamW",
            "peer",
            _schedule_free_adamw,
            lr=0.0025,
            recalibrates=True,
            package="schedulefree",
            source="https://github.com/facebookresearch/schedule_free: default rate, warm-up "
            "recommended, BatchNorm recalibrated over 50 minibatches before an evaluation",
        ),
        Method(
            "schedule-free-sgd",
            "Schedule-Free SGD",
            "peer",
            _schedule_free_sgd,
            lr=1.0,
            recalibrates=True,
            package="schedulefree",
            source="https://github.com/facebookresearch/schedule_free: default rate, 10 to 50 "
            "times a classical one; warm-up and BatchNorm as above",
        ),
        Method(
            "d-adaptation",
            "D-Adapted Adam, cosine",
            "peer",
            _d_adaptation,
            lr=1.0,
            package="dadaptation",
            source="https://github.com/facebookresearch/dadaptation: lr = 1, the schedule one "
            "would use anyway, decouple for AdamW's weight decay",
        ),
        Method(
            "dog",
            "DoG with polynomial averaging",
            "peer",
            _dog,
            recalibrates=True,
            package="dog",
            source="https://github.com/formll/dog: reps_rel 1e-6, with BatchNorm 1e-4; averaging "
            "is a must",
        ),
        Method(
            "line-search",
            "Stochastic line search (Armijo), our code",
            "peer",
            _line_search,
            source="Vaswani et al. (2019), settings of https://github.com/IssamLaradji/sls",
        ),
        Method(
            "sam",
            "SAM over SGD with momentum, cosine, our code",
            "peer",
            _sam,
            step_cost=6.0,
            lr=0.1,
            source="Foret et al. (2021), rho = 0.05; rate as in https://github.com/davda54/sam",
        ),
        Method(
            "sgd-cosine",
            "SGD with momentum, cosine, best of seven rates",
            "reference",
            _cosine_sgd,
            rates=log_range(1e-3, 1.0, 7),
        ),
        Method(
            "adamw-cosine",
            "AdamW, cosine, best of seven rates",
            "reference",
            _cosine_adamw,
            rates=log_range(1e-4, 1e-1, 7),
        ),
    )
}
