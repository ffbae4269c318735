"""One run as a page tells it: its races, its rate over time, what it reached, in one sentence."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from annealtune.annealing.race import RaceInfo, rate_text
from annealtune.studies.records import RunRecord
from annealtune.studies.report.thinning import shown_records
from annealtune.studies.statistics.measures import number
from annealtune.training.storage import MEAN_OF_MOVES

Curve = tuple[tuple[float, ...], tuple[float, ...]]


@dataclasses.dataclass(frozen=True)
class RunStory:
    """A run, and what follows from its records.

    Attributes:
        run: as it was read.
        name: what it is called beside others; by default the last part of its path.
    """

    run: RunRecord
    name: str = ""

    @cached_property
    def races(self) -> tuple[RaceInfo, ...]:
        """The races in order; none if their records cannot be read."""
        found = [
            race
            for record in self.run.metrics
            for race in (record.get("races") or ())
            if isinstance(race, dict)
        ]
        try:
            return tuple(map(RaceInfo.from_dict, found))
        except (KeyError, TypeError, ValueError, AttributeError):
            return ()

    @property
    def epochs(self) -> int:
        """How many epochs are complete."""
        return len(self.run.metrics)

    @property
    def planned_epochs(self) -> int | None:
        """How many epochs it was to have."""
        planned = self.run.config.get("epochs")
        return planned if isinstance(planned, int) else None

    @property
    def steps_per_epoch(self) -> float | None:
        """Steps of one epoch, known after the first one."""
        steps = number(self.run.metrics[-1], "step") if self.run.metrics else None
        return steps / self.epochs if steps else None

    @property
    def is_finished(self) -> bool:
        """Whether it has a result."""
        return self.run.result is not None

    @property
    def has_accuracy(self) -> bool:
        """Whether its task has an accuracy."""
        return any(number(record, "validation_accuracy") is not None for record in self.run.metrics)

    @property
    def has_moves(self) -> bool:
        """Whether its moves are accepted or undone."""
        return any("acceptance_rate" in record for record in self.run.metrics)

    def has(self, key: str) -> bool:
        """Whether any epoch has a finite number of this name."""
        return any(number(record, key) is not None for record in self.run.metrics)

    def curve(self, key: str) -> Curve:
        """Return epochs and values as they are drawn; where a value is not known it is NaN."""
        return self._points(key, self.shown_epochs)

    @cached_property
    def shown_epochs(self) -> Sequence[tuple[int, dict[str, Any]]]:
        """Places and records of the epochs that a page shows: of a long run not all."""
        return shown_records(list(enumerate(self.run.metrics, 1)))

    def all_values(self, key: str) -> Curve:
        """Return epochs and values of all epochs."""
        return self._points(key, enumerate(self.run.metrics, 1))

    def _points(self, key: str, records: Iterable[tuple[int, dict[str, Any]]]) -> Curve:
        pairs = [(number(record, "epoch") or n, number(record, key)) for n, record in records]
        xs = tuple(float(epoch) for epoch, _ in pairs)
        return xs, tuple(math.nan if value is None else value for _, value in pairs)

    @property
    def best_epoch(self) -> int | None:
        """The epoch whose weights were kept, or would be so far."""
        if self.run.result is not None:
            found = number(self.run.result, "best_epoch")
            return None if found is None else int(found)
        key = "validation_accuracy" if self.has_accuracy else "validation_loss"
        known = [(e, v) for e, v in zip(*self.all_values(key), strict=True) if math.isfinite(v)]
        if not known:
            return None
        best = max(known, key=lambda pair: pair[1] if self.has_accuracy else -pair[1])
        return int(best[0])

    @property
    def rate(self) -> float | None:
        """The rate that was found, or given, or the highest one that the run had.

        Of a run over H it is the mean of the moves that were accepted in the last epoch.
        """
        if self.races:
            return self.races[-1].rate
        known = [rate for rate in self.all_values("rate")[1] if math.isfinite(rate)]
        if self.has_moves:
            return known[-1] if known else None
        # The first epoch's record already tells less than what a schedule began with.
        given = self._given_rate
        return max([*known, *([] if given is None else [given])], default=None)

    @property
    def told_rate(self) -> str | None:
        """The rate and what it is, in the words of `annealtune inspect`."""
        if self.rate is None:
            return None
        told = rate_text(self.rate)
        if self.races:
            return f"{told} found"
        if self.has_moves:
            return f"{told}, {MEAN_OF_MOVES}"
        return f"{told} {'given' if self.rate == self._given_rate else 'at the highest'}"

    @property
    def _given_rate(self) -> float | None:
        options = self.run.config.get(self.run.method)
        return number(options, "lr") if isinstance(options, Mapping) else None

    def headline(self) -> str:
        """Return what happened, as one sentence."""
        if self.run.status == "failed":
            return f"Failed: {self.run.reason}."
        if not self.epochs:
            return "The run has begun; no epoch is complete yet."
        did, reached, cost = self._did(), self._reached(), self._cost()
        return f"{did} and {reached}{'; ' + cost if cost else ''}."

    def _did(self) -> str:
        method = self.run.method
        if self.races:
            steps = sum(race.minibatches for race in self.races)
            return f"Found a learning rate of {rate_text(self.races[-1].rate)} in {steps} steps"
        if self.has_moves:
            tried, accepted = (self._moves(key) for key in ("tried", "accepted"))
            if tried:
                return f"Accepted {100 * accepted / tried:.0f} % of {tried:,.0f} moves"
        if self.rate is not None and method == "self-tuned":
            return f"Held a learning rate of {rate_text(self.rate)} without a race"
        if self.rate is not None:
            return f"Trained by {method} with a learning rate of up to {rate_text(self.rate)}"
        return f"Trained by {method}"

    def _reached(self) -> str:
        result = self.run.result
        if result is not None:
            accuracy, loss = number(result, "test_accuracy"), number(result, "test_loss")
            if accuracy is not None:
                return f"reached {100 * accuracy:.1f} % test accuracy"
            return "ended without a finite test loss" if loss is None else _loss("a test", loss)
        last, of = self.run.metrics[-1], f" of {self.planned_epochs}" * bool(self.planned_epochs)
        where = f"after {self.epochs}{of} epochs"
        accuracy, loss = number(last, "validation_accuracy"), number(last, "validation_loss")
        if accuracy is not None:
            return f"is at {100 * accuracy:.1f} % validation accuracy {where}"
        return f"is {where}" if loss is None else f"is at a validation loss of {loss:.4g} {where}"

    def _cost(self) -> str:
        extra = number(self.run.metrics[-1], "extra_steps")
        if not self.races or extra is None or self.steps_per_epoch is None:
            return ""
        planned = self.steps_per_epoch * (self.planned_epochs or self.epochs)
        subject = "the race" if len(self.races) == 1 else f"{len(self.races)} races"
        return f"{subject} cost {100 * extra / planned:.0f} % extra steps"

    def _moves(self, key: str) -> float:
        return sum(
            number(move, key) or 0.0
            for line in self.run.moves
            for move in line.get("settings") or ()
            if isinstance(move, Mapping)
        )


def shown(value: Any) -> str:
    """Return the value of an option as a page shows it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _loss(which: str, loss: float) -> str:
    return f"reached {which} loss of {loss:.4g}"
