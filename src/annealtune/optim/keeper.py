"""The output of Algorithm 2: the best weights on the validation set."""

from __future__ import annotations

import contextlib
import math
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from annealtune.optim.average import WeightAverage
from annealtune.optim.context import Part, StateError
from annealtune.optim.parameters import numbers_of, parameters_of
from annealtune.optim.ranks import Ranks
from annealtune.optim.run_state import (
    Gradients,
    Pairs,
    PutAside,
    are_equal,
    check_named,
    kept,
    named_pairs,
    named_tensors,
    unchanged,
    write,
    write_all,
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
        copies: of weights and buffers, by name; of those in the model if there are none.
    """

    numbers: list[float]
    then: float
    weights: Which
    copies: dict[str, Tensor] | None

    @property
    def value(self) -> float:
        """The mean, NaN or infinite where it is not finite."""
        try:
            return statistics.fmean(self.numbers)
        except (OverflowError, ValueError):  # of huge numbers, of both infinities
            return math.nan

    @property
    def rank(self) -> tuple[float, float]:
        """What is compared; what is not finite comes last."""
        return _finite(self.value), _finite(self.then)


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
        self._then = math.inf
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

        Nothing but this is changed, also where the score fails.

        Args:
            score: as in `OptimizerWrapper.validate`.
            step: how many steps were made.
            maximize: whether larger scores are better.
            average: of the weights.

        Returns:
            The value of the better of the two.
        """
        if not callable(score):
            raise TypeError(
                f"{self._owner}.validate(score) must be given a function that computes the score, "
                f"got {score!r}; write validate(lambda: validation_loss(model))"
            )
        self._check_direction(maximize)
        try:
            self.pending = _SCORING
            scored = []
            if average is not None:
                with average.swapped_in():
                    scored.append(self._scored(score, "average", maximize=maximize))
            scored.append(self._scored(score, "last", maximize=maximize))
        finally:
            self.pending = ""
        counts = {len(found.numbers) for found in scored} | {len(self._best)} - {0}
        if len(counts) > 1:
            raise ValueError(
                f"{self._owner}.validate(score) must return as many numbers at every look, for "
                f"they are compared one by one, got {sorted(counts)} of them"
            )
        better = min(scored, key=lambda found: found.rank)  # of equal ones the average
        self._add(better, step, maximize=maximize, broken=[s for s in scored if not _is_sound(s)])
        return _turned(better.value, maximize=maximize)

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

        Args:
            value: what they score.
            step: how many steps were made.
            weights: which ones they are.
            maximize: whether larger values are better.
            then: decides between equal values; smaller is better.

        Returns:
            Whether they are kept.
        """
        self._check_direction(maximize)
        numbers = self._means([_turned(float(value), maximize=maximize)])
        scored = _Scored(numbers, then, weights, None)
        self._add(scored, step, maximize=maximize, broken=[] if _is_sound(scored) else [scored])
        return self.looks[-1].kept

    @contextlib.contextmanager
    def shown(self, average: WeightAverage | None = None) -> Iterator[None]:
        """Give the model what is kept, or else the average, if any; then it is what it was."""
        with self.put_aside(average).shown():
            yield

    def put_aside(self, average: WeightAverage | None = None) -> PutAside:
        """Put the present weights aside, for these to be shown."""
        return PutAside(self, _SHOWN, self._base, self._model, self._pairs(average))

    def load(self, average: WeightAverage | None = None) -> None:
        """Give the model what is kept, or else the average, if any, for good, all or nothing."""
        write_all(self._pairs(average), self._model)

    def _pairs(self, average: WeightAverage | None) -> Pairs:
        if self.has_weights:
            return named_pairs(self._base, self._model, self._kept)
        return [] if average is None else average.pairs()

    @torch.no_grad()
    def _scored(self, score: Score, weights: Which, *, maximize: bool) -> _Scored:
        """Call the score; afterwards everything is as before, also the weights.

        Raises:
            RuntimeError: if it has changed the weights.
            TypeError: if it did not return numbers.
        """
        copies = self._copies()
        modules = list(self._model.modules())
        gradients = Gradients(self._parameters())
        try:
            with kept(gradients), unchanged((), modules):
                gradients.put_aside()  # out of reach of a zero_grad
                for module in modules:
                    module.training = False
                numbers = numbers_of(f"{self._owner}.validate(score): the score", score())
        except BaseException:
            self._put_back(copies)
            raise
        if changed := self._put_back(copies):
            raise RuntimeError(
                f"{self._owner}.validate(score): the score must not change the weights, got other "
                f"values in {', '.join(changed[:5])}, which are put back; change a copy of the "
                "model: copy.deepcopy(model)"
            )
        turned = [_turned(number, maximize=maximize) for number in numbers]
        return _Scored(self._means(turned), 0.0, weights, copies)

    def _put_back(self, copies: Mapping[str, Tensor]) -> list[str]:
        """Put back weights that are not what they were; return their names."""
        live = named_tensors(self._base, self._model)
        own = set(map(id, self._parameters()))
        changed = [
            name
            for name, value in copies.items()
            if name in live and id(live[name]) in own
            if not are_equal(live[name], value)
        ]
        if changed:
            written = [(live[name], copies[name]) for name in changed]
            write(written, list(self._model.modules()))
        return changed

    def _add(self, found: _Scored, step: int, *, maximize: bool, broken: Sequence[_Scored]) -> None:
        """Note a look, and keep its weights if they are not worse."""
        is_kept = self._is_kept(found)
        if is_kept:
            kept = self._copies() if found.copies is None else found.copies
            if not self._best or found.rank < (statistics.fmean(self._best), self._then):
                self._best, self._then = found.numbers, _finite(found.then)
            self._kept = kept
        self._maximize = maximize
        value = _turned(found.value, maximize=maximize)
        self.looks = (*self.looks, Look(step, value, is_kept, found.weights))
        for one in broken:
            self._warn(one)

    def _is_kept(self, found: _Scored) -> bool:
        if not _is_sound(found):
            return False
        if not self._best:
            return True
        if len(found.numbers) == 1:
            return found.rank < (self._best[0], self._then)
        numbers, best = (torch.tensor(n, dtype=torch.float64) for n in (found.numbers, self._best))
        differences = numbers - best
        error = differences.std() / math.sqrt(len(differences))
        return bool(differences.mean() <= _CLEARLY * error)

    def _warn(self, found: _Scored) -> None:
        if self._has_warned or not (self._ranks is None or self._ranks.is_first):
            return
        self._has_warned = True
        warnings.warn(
            f"{self._owner}.validate: the score of the {found.weights} weights is not finite: they "
            "are not kept, nor are others with such a score",
            stacklevel=5,
        )

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

    def _parameters(self) -> list[Tensor]:
        own = [] if self._base is None else parameters_of(self._base)
        return [*own, *self._model.parameters()]

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
            "then": self._then,
            "weights": {name: value.clone() for name, value in self._kept.items()},
        }
        return {"keeper": keeper}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken.

        Raises:
            StateError: if it does not fit.
        """
        saved = state["keeper"]
        looks = [Look(*look) for look in saved["looks"]]
        is_turned, has_best = isinstance(saved["maximize"], bool), len(saved["best"]) > 0
        if is_turned != bool(looks) or has_best != bool(saved["weights"]):
            raise StateError(
                f"{self._owner}.load_state_dict: there must be a direction where there are looks, "
                f"and weights where there is a best one, got maximize={saved['maximize']!r} with "
                f"{len(looks)} looks and {len(saved['weights'])} tensors"
            )
        if has_best:
            check_named(self._owner, self._base, self._model, saved["weights"])
        live = named_tensors(self._base, self._model)
        self.looks = tuple(looks)
        self._maximize = saved["maximize"]
        self._best = saved["best"].double().tolist()
        self._then = float(saved["then"])
        self._kept = {
            name: value.to(live.get(name, value), copy=True)
            for name, value in saved["weights"].items()
        }


def _turned(value: float, *, maximize: bool) -> float:
    """Return a number of which smaller is better; and back."""
    return 0.0 - value if maximize else value  # never a negative zero


def _is_sound(found: _Scored) -> bool:
    return math.isfinite(found.value)


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.inf
