"""The output of Algorithm 2: the best weights on the validation set."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from annealtune.optim.average import WeightAverage
from annealtune.optim.context import Part
from annealtune.optim.parameters import numbers_of, parameters_of
from annealtune.optim.ranks import Ranks
from annealtune.optim.run_state import (
    Gradients,
    Pairs,
    PutAside,
    are_equal,
    carry_out,
    check_named,
    kept,
    named_pairs,
    named_tensors,
    unchanged,
    write,
)

Score = Callable[[], Any]
Which = Literal["average", "last"]

_SCORING = (
    "must not be called by the score that validate() calls: the model has the weights that are to "
    "be scored, in evaluation mode; call it before or after"
)
_SHOWN = (
    "must not be called within best(), or before train() after a framework's training: the weights "
    "are not those that are trained; leave best(), or call train(), first"
)
# A look is clearly better where the mean of the paired differences exceeds this many of its
# standard errors.
_CLEARLY = 2.0


class Look(NamedTuple):
    """One look at the validation set.

    Attributes:
        step: how many steps were made before it.
        value: of the weights, the better ones where two were scored.
        kept: whether they were kept, in place of those before.
        weights: which ones they are: the ``"average"`` or the ``"last"``.
    """

    step: int
    value: float
    kept: bool
    weights: Which


class _Scored(NamedTuple):
    """Weights with what they score.

    Attributes:
        numbers: smaller is better, one for each part of the validation set.
        then: decides where values are equal.
        weights: which ones they are.
        copies: of weights and buffers, by name.
    """

    numbers: list[float]
    then: float
    weights: Which
    copies: dict[str, Tensor]

    @property
    def rank(self) -> tuple[float, float]:
        """What is compared; what is not finite comes last."""
        found = _mean(self.numbers), self.then
        value, then = (x if math.isfinite(x) else math.inf for x in found)
        return value, then


class Keeper(Part):
    r"""Remembers the weights that were best on the validation set.

    A look replaces the weights that are kept if its value is better. Where a score is several
    numbers :math:`s_i`, noise does not decide: with :math:`d_i = s_i - b_i`, their differences to
    those of the look with the best mean so far, it replaces them unless

    .. math:: \bar d > 2 \, \mathrm{se}(d)

    So of the looks that are not clearly worse than the best, the last one is kept.

    Args:
        owner: whose errors they are.
        base: whose weights are kept, if there is one.
        model: whose weights and buffers are kept.
        ranks: the processes that train it: they decide by the mean of their scores.

    Attributes:
        looks: all of them so far.

    Example:
        >>> model = nn.Linear(1, 1)
        >>> keeper = Keeper("Adam", None, model)
        >>> for step, value in enumerate([0.5, 0.3, 0.4]):
        ...     _ = nn.init.constant_(model.weight, value)
        ...     _ = keeper.take(value, step=step)
        >>> with keeper.shown():
        ...     print(round(model.weight.item(), 1))
        0.3

    Reference:
        Fischetti and Stringher (2019), Algorithm 2, Output.
    """

    def __init__(
        self,
        owner: str,
        base: Optimizer | None,
        model: nn.Module,
        ranks: Ranks | None = None,
    ) -> None:
        self._owner = owner
        self._base = base
        self._model = model
        self._ranks = ranks
        self.looks: tuple[Look, ...] = ()
        self._maximize: bool | None = None  # once it is known
        self._best: list[float] = []  # the numbers of the look with the best mean
        self._best_rank = math.inf, math.inf
        self._kept: dict[str, Tensor] = {}
        self._has_warned = False

    @property
    def has_weights(self) -> bool:
        """Whether weights are kept."""
        return bool(self._best)

    def look(
        self, score: Score, *, step: int, maximize: bool, average: WeightAverage | None = None
    ) -> float:
        """Score the average, if there is one, and the weights in the model; keep what is best.

        Nothing but this is changed, also where the score fails. Arguments and value are those of
        `OptimizerWrapper.validate`; ``step`` is how many were made.
        """
        if not callable(score):
            raise TypeError(
                f"{self._owner}.validate(score) must be given a function that computes the score, "
                f"got {score!r}; write validate(lambda: validation_loss(model))"
            )
        self._check_direction(maximize)
        scored = []
        try:
            self.pending = _SCORING
            if average is not None:
                with average.swapped_in():
                    scored.append(self._scored(score, "average", maximize=maximize))
            scored.append(self._scored(score, "last", maximize=maximize))
        finally:
            self.pending = ""
        return self._add(scored, step, maximize=maximize).value

    def take(
        self,
        value: float,
        *,
        step: int,
        weights: Which = "last",
        maximize: bool = False,
        then: float = 0.0,
    ) -> bool:
        """Take in a look that somebody else has made at the weights in the model, as they are.

        Between equal values ``then`` decides; smaller is better.

        Returns:
            Whether they are kept.
        """
        self._check_direction(maximize)
        numbers = self._means([_turned(float(value), maximize=maximize)])
        found = _Scored(numbers, then, weights, self._copies())
        return self._add([found], step, maximize=maximize).kept

    def shown(self, average: WeightAverage | None = None) -> AbstractContextManager[None]:
        """Give the model what is kept, or else the average, if any; then it is what it was."""
        return self.put_aside(average).shown()

    def put_aside(self, average: WeightAverage | None = None) -> PutAside:
        """Put the present weights aside, for these to be shown."""
        return PutAside(self, _SHOWN, self._base, self._model, self._pairs(average))

    def load(self, average: WeightAverage | None = None) -> None:
        """Give the model what is kept, or else the average, if any, for good."""
        pairs = self._pairs(average)
        carry_out(lambda: write(pairs, self._model.modules()))

    def _pairs(self, average: WeightAverage | None) -> Pairs:
        if self.has_weights:
            return named_pairs(self._base, self._model, self._kept)
        return [] if average is None else average.pairs()

    @torch.no_grad()
    def _scored(self, score: Score, weights: Which, *, maximize: bool) -> _Scored:
        """Call the score; afterwards everything is as before, also the weights."""
        copies = self._copies()
        modules = list(self._model.modules())
        own = [] if self._base is None else parameters_of(self._base)
        gradients = Gradients([*own, *self._model.parameters()])
        try:
            with kept(gradients), unchanged((), modules):
                gradients.put_aside()  # out of reach of a zero_grad
                for module in modules:
                    module.training = False
                numbers = numbers_of(f"{self._owner}.validate(score): the score", score())
        finally:
            pairs = named_pairs(self._base, self._model, copies)
            write([(t, value) for t, value in pairs if not are_equal(t, value)], modules)
        turned = [_turned(number, maximize=maximize) for number in numbers]
        return _Scored(self._means(turned), 0.0, weights, copies)

    def _add(self, scored: list[_Scored], step: int, *, maximize: bool) -> Look:
        """Note a look at some weights, and keep the best of them if they are not worse."""
        counts = {len(found.numbers) for found in scored} | {len(self._best)} - {0}
        if len(counts) > 1:
            raise ValueError(
                f"{self._owner}.validate(score) must return as many numbers at every look, for "
                f"they are compared one by one, got {sorted(counts)} of them"
            )
        better = min(scored, key=lambda found: found.rank)  # of equal ones the average
        is_kept = self._is_kept(better)
        if is_kept:
            self._kept = better.copies
            if better.rank < self._best_rank:
                self._best, self._best_rank = better.numbers, better.rank
        self._maximize = maximize
        value = _turned(_mean(better.numbers), maximize=maximize)
        self.looks = (*self.looks, Look(step, value, is_kept, better.weights))
        broken = [found.weights for found in scored if not math.isfinite(_mean(found.numbers))]
        is_heard = self._ranks is None or self._ranks.is_first
        if broken and is_heard and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{self._owner}.validate: the score of the {broken[0]} weights is not finite: "
                "weights with such a score are not kept",
                stacklevel=4,
            )
        return self.looks[-1]

    def _is_kept(self, found: _Scored) -> bool:
        """Tell whether weights replace those that are kept."""
        if not math.isfinite(found.rank[0]):
            return False
        if len(found.numbers) == 1 or not self._best:
            return found.rank < self._best_rank
        pairs = zip(found.numbers, self._best, strict=True)
        differences = torch.tensor([number - best for number, best in pairs], dtype=torch.float64)
        error = differences.std() / math.sqrt(len(differences))
        return bool(differences.mean() <= _CLEARLY * error)

    def _check_direction(self, maximize: bool) -> None:
        if not isinstance(maximize, bool):
            raise TypeError(
                f"{self._owner}.validate(maximize=...) must be True or False, got {maximize!r}"
            )
        if self._maximize is not None and maximize != self._maximize:
            raise ValueError(
                f"{self._owner}.validate(maximize=...) must be the same at every look, "
                f"{self._maximize} so far, got {maximize}"
            )

    def _means(self, numbers: list[float]) -> list[float]:
        ranks = self._ranks
        return numbers if ranks is None else ranks.means(numbers, "score", len(self.looks))

    @torch.no_grad()
    def _copies(self) -> dict[str, Tensor]:
        live = named_tensors(self._base, self._model)
        return {name: t.detach().clone() for name, t in live.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the looks, and the weights that are kept."""
        keeper = {
            "looks": [tuple(look) for look in self.looks],
            "maximize": self._maximize,
            "best": torch.tensor(self._best, dtype=torch.float64),
            "rank": self._best_rank,
            "weights": {name: value.clone() for name, value in self._kept.items()},
        }
        return {"keeper": keeper}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken.

        Raises:
            StateError: if the weights are those of another model.
        """
        saved = state["keeper"]
        if saved["weights"]:
            check_named(self._owner, self._base, self._model, saved["weights"])
        live = named_tensors(self._base, self._model)
        self.looks = tuple(Look(*look) for look in saved["looks"])
        self._maximize = saved["maximize"]
        self._best, self._best_rank = saved["best"].double().tolist(), tuple(saved["rank"])
        self._kept = {
            name: value.to(live.get(name, value), copy=True)
            for name, value in saved["weights"].items()
        }


def _mean(numbers: list[float]) -> float:
    """Return the mean, NaN or infinite where it is not finite."""
    try:
        return statistics.fmean(numbers)
    except (OverflowError, ValueError):  # of huge numbers, of both infinities
        return math.nan


def _turned(value: float, *, maximize: bool) -> float:
    """Return a number of which smaller is better; and back."""
    return 0.0 - value if maximize else value  # never a negative zero
