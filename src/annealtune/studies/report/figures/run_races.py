"""A race: the loss of every arm, minibatch by minibatch, and where it was dropped."""

import itertools
import math
from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from annealtune.annealing.race_info import RaceInfo

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
    labels = []
    lowest = min(itertools.chain.from_iterable(race.losses))
    highest = _highest(race)
    margin = 0.04 * (highest - lowest) or 1.0
    axes.set_ylim(lowest - margin, highest + margin)
    axes.set_xlim(0.5, race.minibatches + 0.5)
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
        if len(losses) < race.minibatches or arm in race.dropped:
            _mark_end(axes, name, colour, xs[-1], min(ys[-1], highest))
        else:
            won = " won" if arm == race.winner else ""
            labels.append(EndLabel(name + won, colour, min(ys[-1], highest), bool(won)))
    name_ends(axes, labels)
    axes.set_xlabel("minibatch of the race")
    axes.set_ylabel("training loss")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    return axes


def _mark_end(axes: Axes, name: str, colour: str, x: float, y: float) -> None:
    axes.plot([x], [y], "x", color=colour, markersize=5, clip_on=False)
    is_late = x > 0.7 * axes.get_xlim()[1]
    axes.annotate(
        label(f"{name} dropped"),
        (x, y),
        xytext=(-5 if is_late else 5, 5),
        textcoords="offset points",
        ha="right" if is_late else "left",
        va="bottom",
        color=colour,
        fontsize=8.5,
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
    firsts = [losses[0] for losses in race.losses if losses]
    best = min(losses[-1] for losses in race.losses if losses)
    everything = sorted(itertools.chain.from_iterable(race.losses))
    usual = everything[math.ceil(0.9 * (len(everything) - 1))]
    edge = max(max(firsts) + 0.25 * abs(max(firsts) - best), usual)
    return min(edge, everything[-1])


def _smooth(losses: Sequence[float], minibatches: int) -> list[float]:
    if minibatches < _SMOOTHED_FROM:
        return list(losses)
    windows = (losses[max(0, end - _WINDOW) : end] for end in range(1, len(losses) + 1))
    return [math.fsum(window) / len(window) for window in windows]
