"""One run: accuracy, loss and rate over the epochs, and its races."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from annealtune.annealing.race import RaceInfo, rate_text
from annealtune.studies.records import RunRecord
from annealtune.studies.statistics import number

from .curves import DECAY, curve, drawn_values, has
from .panels import Panel
from .style import (
    FAINT,
    INK,
    RAMP,
    SERIES,
    count_epochs,
    figure_of,
    in_per_cent,
    in_powers,
    label,
    legend,
    line,
)

_VALIDATION, _RATE, _TRAINING = SERIES[0], SERIES[1], SERIES[6]
_RING: dict[str, Any] = {"marker": "o", "markerfacecolor": "none"}
_LAST: dict[str, Any] = {"linewidth": 1.2, "linestyle": ":"}
# Losses are drawn as a mean of the last few from this many minibatches on.
_SMOOTHED_FROM, _WINDOW = 40, 5


def races_of(run: RunRecord) -> list[RaceInfo]:
    """Return the races of a run in order."""
    found = (race for record in run.metrics for race in record.get("races") or ())
    return [RaceInfo.from_dict(race) for race in found]


def steps_per_epoch(run: RunRecord) -> float:
    """Return the steps of one epoch of a run that has an epoch."""
    return float(run.metrics[-1]["step"] / len(run.metrics))


# --- accuracy, loss and rate ---


def hero_panel(run: RunRecord) -> Panel | None:
    """Return the first picture of a run; None before the first epoch."""
    keys = ("validation_accuracy", "validation_loss", "rate", "radius")
    rows = [key for key in keys if has([run], key)]
    if not rows:
        return None
    ratios = [1.5 if row == "rate" else 1.9 for row in rows]
    draw = partial(_draw_hero, run=run, rows=rows, ratios=ratios)
    return Panel("hero", "Accuracy, loss and learning rate", draw, 0.7 + sum(ratios), is_wide=True)


def _draw_hero(axes: Axes, run: RunRecord, rows: list[str], ratios: list[float]) -> Axes:
    figure, races, epoch = figure_of(axes), races_of(run), steps_per_epoch(run)
    axes.remove()
    found = figure.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
    for key, each in zip(rows, found, strict=True):
        (_draw_rate if key == "rate" else _draw_row)(each, run, key)
        each.set_ylabel({"rate": "learning rate"}.get(key, key.removeprefix("validation_")))
        for race in races:
            span = np.array([race.step, race.step + race.minibatches]) / epoch
            each.axvspan(*span, color=FAINT, alpha=0.55, linewidth=0, zorder=0)
    last: Axes = found[-1]
    count_epochs(last)
    legend(last, _handles(run, races))
    return last


def _handles(run: RunRecord, races: list[RaceInfo]) -> list[Any]:
    found = [line("validation", _VALIDATION, linewidth=1.9)]
    if has([run], "last_weights_validation_loss"):
        found.append(line("the same without averaging", _VALIDATION, **_LAST))
    if has([run], "train_eval_loss"):
        found.append(line("training", _TRAINING, linewidth=1.2))
    if run.result:
        found.append(line("best epoch", INK, linestyle="none", markersize=7, **_RING))
    if races:
        found.append(line(f"rate, found {rate_text(races[-1].rate)}", _RATE, linewidth=1.9))
        found.append(line("arm of a race, dropped at ×", _TRAINING, marker="x", markersize=4))
    elif has([run], "rate"):
        found.append(line("rate", _RATE, linewidth=1.9))
    return found


def _draw_row(axes: Axes, run: RunRecord, key: str) -> None:
    """Draw a number on the validation set, on the training set if it is known, and the best."""
    training, last = key.replace("validation", "train_eval"), f"last_weights_{key}"
    dots: dict[str, Any] = {"marker": "o", "markersize": 3} if len(run.metrics) <= 40 else {}
    axes.plot(*curve(run, key), color=_VALIDATION, linewidth=1.9, label="validation", **dots)
    if has([run], last):
        axes.plot(*curve(run, last), color=_VALIDATION, label="without averaging", **_LAST)
    if training != key and has([run], training):
        axes.plot(*curve(run, training), color=_TRAINING, linewidth=1.2, label="training")
    best = run.result["best_epoch"] if run.result else None
    if best is not None and (value := number(run.metrics[best - 1], key)) is not None:
        axes.plot(best, value, color=INK, markersize=8, **_RING)
    if key.endswith("accuracy"):
        in_per_cent(axes)
    else:
        in_powers(axes, drawn_values(axes), ratio=5)


def _draw_rate(axes: Axes, run: RunRecord, key: str) -> None:
    """Draw the rate, and that of every arm of a race for as long as it ran."""
    races, (xs, ys) = races_of(run), curve(run, key)
    if races:  # after a race the line begins where it has ended
        end = (races[-1].step + races[-1].minibatches) / steps_per_epoch(run)
        after = xs > end
        xs = np.concatenate([[end], xs[after]])
        ys = np.concatenate([[races[-1].rate], ys[after]])
    axes.plot(xs, ys, color=_RATE, linewidth=1.9, label="rate")
    heights = [y for y in ys if y > np.nanmax(ys) / DECAY]
    for race in races:
        heights += _draw_arms(axes, race, steps_per_epoch(run))
    if heights:
        in_powers(axes, heights, ratio=1)
        axes.set_ylim(min(heights) / 1.5, max(heights) * 1.7)


def _draw_arms(axes: Axes, race: RaceInfo, epoch: float) -> list[float]:
    """Draw the rate of every arm for as long as it ran; return the rates.

    Args:
        axes: to draw into.
        race: whose arms.
        epoch: steps of one epoch.
    """
    rates = []
    for arm, setting in enumerate(race.settings):
        rate = setting.get("lr")
        if not isinstance(rate, float) or rate <= 0:
            continue
        is_dropped = arm in race.dropped
        length = len(race.losses[arm]) if is_dropped and race.losses else race.minibatches
        span = np.array([race.step, race.step + length]) / epoch
        colour, width = (_RATE, 1.9) if arm == race.winner else (_TRAINING, 1.0)
        name = f"race {race.number}: {race.fate(arm)}"
        axes.plot(span, [rate, rate], color=colour, linewidth=width, label=label(name, 60))
        if is_dropped:
            axes.plot(span[1:], [rate], "x", color=colour, markersize=4)
        rates.append(rate)
    return rates


# --- races ---


def race_panels(races: Sequence[RaceInfo]) -> list[Panel]:
    """Return a drawing for every race whose losses are known."""
    return [
        Panel(
            f"race-{race.number}",
            f"Race {race.number}",
            partial(_draw_race, race=race),
            caption=f"{str(race)[0].upper()}{str(race)[1:]}.",
        )
        for race in races
        if any(race.losses)
    ]


def _draw_race(axes: Axes, race: RaceInfo) -> Axes:
    known = [losses for losses in race.losses if losses]
    shades = len(RAMP) - 1
    for arm, losses in enumerate(race.losses):
        if not losses:
            continue
        won = arm == race.winner
        colour = SERIES[0] if won else RAMP[round(arm * shades / max(1, len(race.losses) - 1))]
        fate = " won" if won else " dropped" if arm in race.dropped else ""
        window = _WINDOW if race.minibatches >= _SMOOTHED_FROM else 1
        ends = range(1, len(losses) + 1)
        ys = [float(np.mean(losses[max(0, end - window) : end])) for end in ends]
        look: dict[str, Any] = {"linewidth": 2.2, "zorder": 3} if won else {"linewidth": 1.1}
        name = label(race.name(arm) + fate)
        axes.plot(ends, ys, color=colour, label=name, **look)
        if arm in race.dropped:
            axes.plot(len(ys), ys[-1], "x", color=colour, markersize=5)
    # Arms that explode must not flatten the others.
    highest = 3 * max(losses[0] for losses in known)
    if highest < max(map(max, known)):
        axes.set_ylim(top=highest)
    axes.set_xlabel("minibatch of the race")
    axes.set_ylabel("training loss")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    legend(axes, axes.get_legend_handles_labels()[0])
    return axes
