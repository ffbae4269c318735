"""Variable neighborhood search: conservative settings first, riskier ones if those fail."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from annealtune.annealing.acceptance import Verdict
from annealtune.annealing.arguments import count
from annealtune.annealing.neighborhood import Neighborhood, Setting
from annealtune.annealing.strategies.hill_climbing import HillClimbing

LEVELS, ORDER = 4, "lr"


class VariableNeighborhood(HillClimbing):
    r"""Pick from nested sets :math:`N_1 \subset \dots \subset N_{levels} = H`, from tame to risky.

    A setting is picked uniformly from :math:`N_k` and its move is kept iff it does not worsen.
    After a success the next pick is from :math:`N_1`, after a failure from :math:`N_{k+1}`, and
    after a failure in H itself from :math:`N_1` again. By default :math:`N_k` holds the settings
    with the smallest values of one option, a share of :math:`k / levels` of all its values: for
    ``levels=4`` and the rates 1, 2, ... 8 the sets reach up to 2, 4, 6 and 8.

    From the literature: the nested neighborhoods, a random point of the present one (its reduced
    version, without a local search), advance on failure and return on success. Our choice: the
    neighborhoods are sets of settings; an equal move is kept, as by hill climbing, but only an
    improvement is a success: otherwise a rate too small to change anything would be kept for good.

    Args:
        levels: the number of nested sets.
        order: the option whose values lead from conservative (small) to risky (large).
        nested: the sets themselves, instead of ``levels`` and ``order``, each containing the one
            before; the last is H.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if a set is empty or does not contain the one before it.

    Example:
        >>> from annealtune.annealing import grid
        >>> strategy, neighborhood = VariableNeighborhood(levels=2), grid(lr=[0.1, 0.2, 0.4, 0.8])
        >>> rng, setting = random.Random(0), neighborhood[0]
        >>> strategy.observe(setting, strategy.decide(1.0, 1.5, rng)), strategy.level
        (None, 2)
        >>> strategy.observe(setting, strategy.decide(1.0, 0.5, rng)), strategy.level
        (None, 1)

    Reference:
        Mladenović and Hansen (1997), Variable neighborhood search, Computers and Operations
        Research 24, 1097-1100.
    """

    picks_settings = True

    def __init__(
        self,
        levels: int = LEVELS,
        order: str = ORDER,
        *,
        nested: Sequence[Neighborhood | Iterable[Mapping[str, Any]]] | None = None,
    ) -> None:
        if not isinstance(order, str):
            raise TypeError(
                f"VariableNeighborhood(order=...) must be the name of an option, got {order!r}"
            )
        self.order = order
        self.nested = None if nested is None else _nested(nested)
        if self.nested is not None and (levels, order) != (LEVELS, ORDER):
            raise ValueError(
                "VariableNeighborhood(nested=...) must be given alone: its sets are the levels and "
                f"their order, got levels={levels!r} and order={order!r} too"
            )
        if self.nested is None:
            self.levels = count("VariableNeighborhood(levels=...)", levels, least=1)
        else:
            self.levels = len(self.nested)
        self.level = 1
        self._sets: tuple[Neighborhood, ...] = ()
        self._checked: Neighborhood | None = None

    def check(self, neighborhood: Neighborhood) -> None:
        """Divide H into nested sets, or check that the given ones fit it.

        Raises:
            ValueError: if an inner set would be empty, if H has no such option or its values
                cannot be ordered, or if the given sets do not end with H.
        """
        if self.nested is None:
            self._sets = _divided(neighborhood, self.order, self.levels)
        else:
            _check_whole(self.nested[-1], neighborhood)
            self._sets = self.nested
        self._checked = neighborhood

    def pick(self, neighborhood: Neighborhood, rng: random.Random) -> Setting:
        """Pick uniformly from the present set, with exactly one draw."""
        if self._checked is not neighborhood:
            self.check(neighborhood)
        return self._sets[self.level - 1].pick(rng)

    def observe(self, setting: Setting, verdict: Verdict) -> None:
        """Return to the most conservative set after a success, advance after a failure."""
        improved = verdict.accepted and verdict.worsening < 0
        self.level = 1 if improved else self.level % self.levels + 1

    def state_dict(self) -> dict[str, Any]:
        """Return the number of the present set."""
        return {"neighborhood": self.level}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken.

        Raises:
            ValueError: if there were more sets.
        """
        level = state["neighborhood"]
        if level > self.levels:
            raise ValueError(
                "VariableNeighborhood.load_state_dict: the state must come from at most "
                f"{self.levels} nested sets, got one in set {level}"
            )
        self.level = level

    def __repr__(self) -> str:
        if self.nested is not None:
            return f"VariableNeighborhood(nested={list(self.nested)!r})"
        return f"VariableNeighborhood(levels={self.levels!r}, order={self.order!r})"


def _divided(neighborhood: Neighborhood, order: str, levels: int) -> tuple[Neighborhood, ...]:
    if order not in neighborhood.options:
        raise ValueError(
            "VariableNeighborhood(order=...) must be an option of H, one of "
            f"{', '.join(neighborhood.options)}, got {order!r}"
        )
    values = {setting[order] for setting in neighborhood}
    try:
        ordered = sorted(values)
    except TypeError:
        raise ValueError(
            "VariableNeighborhood(order=...) must be an option whose values can be ordered from "
            f"small to large, got {order!r} with {', '.join(sorted(map(repr, values)))}"
        ) from None
    if levels > len(ordered):
        raise ValueError(
            f"VariableNeighborhood(levels=...) must not exceed the number of different values of "
            f"{order!r} in H, here {len(ordered)}, or a set would be empty, got {levels!r}"
        )
    bounds = [ordered[level * len(ordered) // levels - 1] for level in range(1, levels + 1)]
    return tuple(
        Neighborhood(setting for setting in neighborhood if setting[order] <= bound)
        for bound in bounds
    )


def _nested(given: Any) -> tuple[Neighborhood, ...]:
    sets = list(given) if _is_collection(given) else [given]
    if not all(map(_is_collection, sets)):  # the members of a single neighborhood are mappings
        raise TypeError(
            "VariableNeighborhood(nested=...) must be a list of neighborhoods, from the smallest "
            f"to H, got {given!r}"
        )
    lists = [list(settings) for settings in sets]
    if not lists or not all(lists):
        raise ValueError(
            "VariableNeighborhood(nested=...) must hold neighborhoods that are not empty, got "
            f"{lists!r}"
        )
    nested = tuple(Neighborhood(settings) for settings in lists)
    for inner, outer in itertools.pairwise(nested):
        outside = [setting for setting in inner if setting not in outer]
        if outside:
            raise ValueError(
                "VariableNeighborhood(nested=...) must hold neighborhoods of which each contains "
                f"the one before, got {outside[0]!r} in a smaller one only"
            )
    return nested


def _is_collection(given: Any) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, str | Mapping)


def _check_whole(last: Neighborhood, neighborhood: Neighborhood) -> None:
    for setting in last:
        if setting not in neighborhood:
            refused = setting in neighborhood.dropped
            raise ValueError(
                f"VariableNeighborhood(nested=...) must hold settings of H, got {setting!r}, which "
                + ("the optimizer refuses" if refused else f"is not in {neighborhood!r}")
            )
    for setting in neighborhood:
        if setting not in last:
            raise ValueError(
                "VariableNeighborhood(nested=...) must end with all of H, got a last neighborhood "
                f"without {setting!r}"
            )
