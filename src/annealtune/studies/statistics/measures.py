"""What a run is judged by, what it spent, and which learning rate it had."""

import json
import math
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any, Literal, NamedTuple

from annealtune.studies.records import RunRecord, Study

NOT_AVAILABLE = "n/a"
# Accuracies are ratios of counts. Equal ones agree to this many digits, as do their means and
# differences, but not to the last bit.
DIGITS = 12
MINUS = "\N{MINUS SIGN}"
# A curve over the rate needs this many of them.
FEWEST_RATES = 3


class Measure(NamedTuple):
    """One number of a run.

    Attributes:
        epoch: ``"last"``, as in the paper's Table 1, or ``"best"`` on the validation set.
        part: the data it is measured on.
        quantity: ``"paper_loss"`` is the sum of the minibatches' mean losses divided by the number
            of images, the scale of the paper's Table 1.
    """

    epoch: Literal["last", "best"]
    part: Literal["validation", "test"]
    quantity: Literal["accuracy", "loss", "paper_loss"]

    @property
    def key(self) -> str:
        """Its name in a file."""
        return f"{self.epoch}_{self.part}_{self.quantity}"

    @property
    def title(self) -> str:
        """Its name for a reader."""
        return f"{self.part} {self.quantity_title}, {self.epoch} epoch"

    @property
    def quantity_title(self) -> str:
        """The name of its quantity for a reader."""
        return {"accuracy": "accuracy", "loss": "loss", "paper_loss": "loss (paper's scale)"}[
            self.quantity
        ]

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger number is the better one."""
        return self.quantity == "accuracy"

    def best(self, values: list[float]) -> float:
        """Return the best of some values."""
        return max(values) if self.higher_is_better else min(values)

    def worst(self, values: list[float]) -> float:
        """Return the worst of some values."""
        return min(values) if self.higher_is_better else max(values)

    def text(self, value: float | None) -> str:
        """Return a value as it is shown: accuracies in per cent, losses as decimals.

        Example:
            >>> Measure("last", "validation", "accuracy").text(0.8676)
            '86.76 %'
            >>> Measure("last", "validation", "paper_loss").text(0.001084)
            '0.001084'
        """
        if value is None:
            return NOT_AVAILABLE
        return self.number(value) + (" %" if self.quantity == "accuracy" else "")

    def difference(self, value: float | None) -> str:
        """Return a difference of two values as it is shown, with its sign and unit.

        Example:
            >>> Measure("last", "validation", "accuracy").difference(0.0123)
            '+1.23 points'
        """
        if value is None:
            return NOT_AVAILABLE
        unit = " points" if self.quantity == "accuracy" else ""
        return f"{self.number(value, signed=True)}{unit}"

    def number(self, value: float, *, signed: bool = False) -> str:
        """Return a value without its unit."""
        if self.quantity == "accuracy":
            text = f"{100 * value:.2f}"
        else:
            text = _loss(value, 6 if self.quantity == "paper_loss" else 4)
        shown = float(text)
        sign = "+" if signed and shown > 0 else ""
        return sign + (text.replace("-", MINUS) if shown else text.removeprefix("-"))


MEASURES = (
    Measure("last", "validation", "accuracy"),
    Measure("last", "validation", "loss"),
    Measure("last", "validation", "paper_loss"),
    Measure("best", "validation", "accuracy"),
    Measure("best", "validation", "loss"),
    Measure("best", "validation", "paper_loss"),
    Measure("last", "test", "accuracy"),
    Measure("last", "test", "loss"),
    Measure("best", "test", "accuracy"),
    Measure("best", "test", "loss"),
)


def score(run: RunRecord, measure: Measure) -> float | None:
    """Return what a run reached, None if it did not finish or the number is missing.

    The test set is looked at once, with the weights of the best epoch: there is no test score of
    the last epoch, except where the test set takes the place of the validation set.
    """
    if run.result is None:
        return None
    if measure.part == "test":
        if measure.epoch == "best":
            return number(run.result, f"test_{measure.quantity}")
        if _validated_on(run) != "test":
            return None
    if measure.quantity == "paper_loss":
        epoch = run.result.get("epochs" if measure.epoch == "last" else "best_epoch")
        records = [record for record in run.metrics if record.get("epoch") == epoch]
        return number(records[0], "validation_paper_loss") if records else None
    return number(run.result, f"{measure.epoch}_validation_{measure.quantity}")


def test_set_chose(study: Study) -> bool:
    """Whether the test set chose the best epoch, as in the paper, in any run of a study."""
    planned = study.experiment.get("validate_on", "validation")
    return planned == "test" or any(_validated_on(run) == "test" for run in study.runs)


def main_measure(study: Study) -> Measure:
    """Return what the methods of a study are ranked by.

    The accuracy on the test set, which chose nothing; where it chose the best epoch, the accuracy
    of the last epoch, which nothing chose. Runs that have only losses are ranked by the loss.
    """
    quantity: Literal["accuracy", "loss"] = "loss" if has_only_losses(study) else "accuracy"
    if test_set_chose(study):
        return Measure("last", "validation", quantity)
    return Measure("best", "test", quantity)


def has_only_losses(study: Study) -> bool:
    """Whether the runs of a study know no accuracy, as in regression."""
    records = [record for run in study.runs for record in run.metrics]
    return any("validation_loss" in record for record in records) and not any(
        "validation_accuracy" in record for record in records
    )


def kind_of(study: Study, method: str) -> str:
    """Return the method behind a label, which may be a name of the user's own."""
    configs = [study.configs.get(method, {}), *(run.config for run in study.of(method))]
    return next((str(each["method"]) for each in configs if "method" in each), method)


def number(record: Mapping[str, Any], key: str) -> float | None:
    """Return a finite number of a record, None for anything else."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def mean_result(runs: Iterable[RunRecord], key: str) -> float | None:
    """Return the mean of a number of ``result.json`` over the finished runs that have it."""
    known = [n for run in runs if (n := number(run.result or {}, key)) is not None]
    return fmean(known) if known else None


class RateSweep(NamedTuple):
    """Methods of a study that differ in their learning rate alone.

    Attributes:
        kind: the method behind their labels.
        labels: by rate, the lowest first.
    """

    kind: str
    labels: dict[float, str]


def sweeps_of(study: Study) -> list[RateSweep]:
    """Return every kind of method that stands at three or more learning rates, largest first."""
    groups: dict[tuple[str, str], dict[float, str]] = {}
    for label in study.methods:
        kind, config = kind_of(study, label), study.configs.get(label, {})
        options = config.get(kind)
        rate = number(options, "lr") if isinstance(options, Mapping) else None
        if rate is not None and rate > 0:
            rest = json.dumps({**config, kind: {**config[kind], "lr": None}}, sort_keys=True)
            groups.setdefault((kind, rest), {})[rate] = label
    sweeps = [
        RateSweep(kind, dict(sorted(labels.items())))
        for (kind, _), labels in groups.items()
        if len(labels) >= FEWEST_RATES
    ]
    return sorted(sweeps, key=lambda sweep: -len(sweep.labels))


def rate_found(run: RunRecord) -> float | None:
    """Return the rate that a run's last race was decided for; None if it had no race."""
    races = [race for record in run.metrics for race in record.get("races") or ()]
    rates = [rate for race in races if (rate := number(race, "rate"))]
    return rates[-1] if rates else None


def _loss(value: float, digits: int) -> str:
    """Return a loss with a fixed number of digits where that shows something."""
    if value and not 10**-digits <= abs(value) < 10**6:
        return f"{value:.2e}"
    return f"{value:.{digits}f}"


def _validated_on(run: RunRecord) -> str:
    """Return which set chose the best epoch of a run, ``"validation"`` or ``"test"``."""
    found = run.result or {}
    return str(found.get("validated_on", run.config.get("validate_on", "validation")))
