"""A race: the loss of every arm, minibatch by minibatch, and where it was dropped."""

import itertools
import math
import statistics
from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from annealtune.annealing.race import RaceInfo

from .end_labels import EndLabel, name_ends
from .hover import show_values
from .panels import Panel
from .style import SERIES, label

_WINNER, _SECOND, _OTHER = SERIES[1], SERIES[0], SERIES[6]
# Losses are drawn as a mean of the last few from this many minibatches on.
_SMOOTHED_FROM, _WINDOW = 40, 5


def race_panels(races: Sequence[RaceInfo]) -> list[tuple[Panel, str]]:
    """Return a drawing and a caption for every race whose losses are known."""
    return [
        (
            Panel(f"race-{race.number}", f"Race {race.number}", partial(_draw, race=race)),
            _caption(race),
        )
        for race in races
        if any(race.losses)
    ]


def _caption(race: RaceInfo) -> str:
    told = f"{str(race)[0].upper()}{str(race)[1:]}."
    if race.winner is not None:
        told += f" Why it won: {race.reason}."
    if race.restarted:
        told += " The run then started again from its weights before the race."
    if len(race.losses[0]) >= _SMOOTHED_FROM:
        told += f" Means of {_WINDOW} minibatches."
    if _highest(race) < max(itertools.chain.from_iterable(race.losses)):
        told += " Losses above the upper edge are cut off."
    return told


def _draw(axes: Axes, race: RaceInfo) -> Axes:
    labels: list[EndLabel] = []
    taken: list[tuple[float, float]] = []  # places of names inside the axes
    lowest = min(itertools.chain.from_iterable(race.losses))
    highest = _highest(race)
    margin = 0.04 * (highest - lowest) or 1.0
    axes.set_ylim(lowest - margin, highest + margin)
    axes.set_xlim(0.5, max(map(len, race.losses)) + 0.5)
    for arm in _behind_to_front(race):
        losses = race.losses[arm]
        if not losses:
            continue
        xs, ys = range(1, len(losses) + 1), _smooth(losses, race.minibatches)
        colour = _colour(race, arm)
        axes.plot(xs, ys, color=colour, linewidth=2.2 if arm == race.winner else 1.1)
        name = race.name(arm)
        texts = [f"minibatch {x}: {y:.4g}" for x, y in zip(xs, losses, strict=True)]
        show_values(axes, name, colour, xs, ys, texts, is_line=True)
        # Not by the number of losses: a spoilt minibatch has none, for no arm.
        if arm in race.dropped or race.winner is None:
            fate = "broke" if race.winner is None else "dropped"
            _mark_end(axes, f"{name} {fate}", colour, xs[-1], min(ys[-1], highest), taken)
        else:
            won = " won" if arm == race.winner else ""
            labels.append(EndLabel(name + won, colour, min(ys[-1], highest), bool(won)))
    name_ends(axes, labels)
    axes.set_xlabel("minibatch of the race")
    axes.set_ylabel("training loss")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    return axes


def _mark_end(
    axes: Axes, text: str, colour: str, x: float, y: float, taken: list[tuple[float, float]]
) -> None:
    """Put a cross where an arm was dropped, and its name beside it where there is room."""
    axes.plot([x], [y], "x", color=colour, markersize=5, clip_on=False)
    to_axes = axes.transData + axes.transAxes.inverted()
    left, height = to_axes.transform((x, y))
    height = min(height + 0.04, 1.0)
    while any(abs(left - other) < 0.4 and abs(height - at) < 0.06 for other, at in taken):
        height -= 0.06
    taken.append((left, height))
    is_late = left > 0.65
    axes.text(
        left + (-0.02 if is_late else 0.02),
        height,
        label(text),
        ha="right" if is_late else "left",
        va="center",
        color=colour,
        fontsize=8.5,
        transform=axes.transAxes,
    )


def _behind_to_front(race: RaceInfo) -> list[int]:
    """Return the arms, the winner last so that it lies on top."""
    return sorted(range(len(race.losses)), key=lambda arm: (arm == race.winner, arm == race.second))


def _colour(race: RaceInfo, arm: int) -> str:
    if arm == race.winner:
        return _WINNER
    return _SECOND if arm == race.second else _OTHER


def _highest(race: RaceInfo) -> float:
    """Return the upper edge: arms that explode must not flatten the others."""
    known = [losses for losses in race.losses if losses]
    first = max(losses[0] for losses in known)
    winner = race.losses[race.winner] if race.winner is not None else ()
    usual = statistics.median(winner) if winner else first
    edge = max(first, usual) + 0.5 * (max(first, usual) - min(map(min, known)))
    return min(edge, max(map(max, known)))


def _smooth(losses: Sequence[float], minibatches: int) -> list[float]:
    if minibatches < _SMOOTHED_FROM:
        return list(losses)
    windows = (losses[max(0, end - _WINDOW) : end] for end in range(1, len(losses) + 1))
    return [math.fsum(window) / len(window) for window in windows]
