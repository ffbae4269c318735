"""The methods: ours, what is left of them without the accept test, peers, tuned references.

A peer has the settings that its authors recommend, with the source beside it; `starts` builds them.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from annealtune import log_range

from . import starts
from .trainers import Setup, Trainer

Family = Literal["ours", "version 0.1", "paper", "ablation", "peer", "reference"]
# Ours are planned at this cost of a step: races may cost 12 % of a run of less than 2,000 steps, so
# that its schedule ends before the budget does. What a run really cost is counted, and a run that
# has spent its budget ends.
WITH_RACES = 3 * 1.12


@dataclass(frozen=True)
class Method:
    """One way to train.

    Attributes:
        name: as on the command line.
        title: for the page.
        family: what it stands for in the comparison.
        start: builds it.
        step_cost: planned cost of a step in forwards; a plain step costs 3.
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
    lr: float | None = None
    rates: tuple[float, ...] = ()
    recalibrates: bool = False
    probes_are_free: bool = False
    package: str = ""
    source: str = ""

    @property
    def dearest_step(self) -> int:
        """What a step may cost: a run ends while it can still pay one."""
        return math.ceil(self.step_cost)

    @property
    def is_installed(self) -> bool:
        return not self.package or importlib.util.find_spec(self.package) is not None


METHODS = {
    method.name: method
    for method in (
        Method(
            "self-tuned",
            "SelfTuner over AdamW",
            "ours",
            starts.self_tuned,
            step_cost=WITH_RACES,
            lr=1e-3,
            recalibrates=True,
        ),
        Method(
            "self-tuned-sgd",
            "SelfTuner over SGD with momentum",
            "ours",
            starts.self_tuned_sgd,
            step_cost=WITH_RACES,
            recalibrates=True,
        ),
        # Without a schedule there is nothing to fit into the budget: it goes on until it is spent.
        Method(
            "self-tuned-anytime",
            "SelfTuner over AdamW, length not told",
            "ours",
            starts.self_tuned_anytime,
            lr=1e-3,
            recalibrates=True,
        ),
        Method(
            "paper-text",
            "SGDSA, preset paper-text",
            "paper",
            starts.paper_text,
            step_cost=4.0,
            source="Fischetti and Stringher (2019), Algorithm 2",
        ),
        # Both losses of its accept test are taken in evaluation mode: two forwards on top.
        Method(
            "paper-code",
            "SGDSA, preset paper-code",
            "paper",
            starts.paper_code,
            step_cost=5.0,
            source="Fischetti and Stringher (2019), as their experiments ran",
        ),
        Method(
            "always-accept",
            "SGD at a random rate of the paper",
            "ablation",
            starts.always_accept,
            probes_are_free=True,
        ),
        Method(
            "always-accept-adamw",
            "AdamW at a random rate of ten",
            "ablation",
            starts.always_accept_adamw,
            probes_are_free=True,
        ),
        Method(
            "prodigy",
            "Prodigy, cosine",
            "peer",
            starts.prodigy,
            lr=1.0,
            package="prodigyopt",
            source="https://github.com/konstmish/prodigy: lr = 1, cosine annealing over all steps, "
            "safeguard_warmup, use_bias_correction, weight decay 0.01",
        ),
        Method(
            "schedule-free-adamw",
            "Schedule-Free AdamW",
            "peer",
            starts.schedule_free_adamw,
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
            starts.schedule_free_sgd,
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
            starts.d_adaptation,
            lr=1.0,
            package="dadaptation",
            source="https://github.com/facebookresearch/dadaptation: lr = 1, the schedule one "
            "would use anyway, decouple for AdamW's weight decay",
        ),
        Method(
            "dog",
            "DoG with polynomial averaging",
            "peer",
            starts.dog,
            recalibrates=True,
            package="dog",
            source="https://github.com/formll/dog: reps_rel 1e-6, with BatchNorm 1e-4; averaging "
            "is a must",
        ),
        Method(
            "line-search",
            "Stochastic line search (Armijo), our code",
            "peer",
            starts.line_search,
            source="Vaswani et al. (2019), settings of https://github.com/IssamLaradji/sls",
        ),
        Method(
            "sam",
            "SAM over SGD with momentum, cosine, our code",
            "peer",
            starts.sam,
            step_cost=6.0,
            lr=0.1,
            source="Foret et al. (2021), rho = 0.05; rate as in https://github.com/davda54/sam",
        ),
        Method(
            "sgd-cosine",
            "SGD with momentum, cosine, best of seven rates",
            "reference",
            starts.cosine_sgd,
            rates=log_range(1e-3, 1.0, 7),
        ),
        Method(
            "adamw-cosine",
            "AdamW, cosine, best of seven rates",
            "reference",
            starts.cosine_adamw,
            rates=log_range(1e-4, 1e-1, 7),
        ),
    )
}

# What version 0.1 did where nothing was given. Its records are shown; it cannot be run any more.
RETIRED = {
    name: Method(name, f"{title} (0.1)", "version 0.1", starts.retired, recalibrates=True)
    for name, title in (
        ("adamw-sa", "EmbeddedTuner over AdamW, default"),
        ("sgd-sa", "SGDSA, default"),
        ("adamw-sa-anytime", "EmbeddedTuner over AdamW, length not told"),
    )
}
SHOWN = METHODS | RETIRED
