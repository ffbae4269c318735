"""One run: accuracy, loss and rate over the epochs, its races, its accept test."""

import dataclasses
import math
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from annealtune.annealing.race import RaceInfo, rate_text
from annealtune.studies.records import RunRecord
from annealtune.studies.statistics.measures import number

from .curves import DECAY, curve, drawn_values
from .panels import Panel
from .settings import acceptance_map, draw_acceptance
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
# Losses are drawn as a mean of the last few from this many minibatches on.
_SMOOTHED_FROM, _WINDOW = 40, 5


@dataclasses.dataclass(frozen=True)
class RunView:
    """A run, and what follows from its records."""

    run: RunRecord

    @cached_property
    def races(self) -> tuple[RaceInfo, ...]:
        """The races in order."""
        found = (race for record in self.run.metrics for race in record.get("races") or ())
        return tuple(map(RaceInfo.from_dict, found))

    @property
    def steps_per_epoch(self) -> float:
        """Steps of one epoch, known after the first one."""
        steps = number(self.run.metrics[-1], "step") if self.run.metrics else None
        return steps / len(self.run.metrics) if steps else math.nan

    def has(self, key: str) -> bool:
        """Whether any epoch has a finite number of this name."""
        return any(number(record, key) is not None for record in self.run.metrics)

    @property
    def best_epoch(self) -> int | None:
        """The epoch whose weights were kept; None before the run is finished."""
        found = number(self.run.result or {}, "best_epoch")
        return None if found is None else int(found)

    @property
    def rate(self) -> float | None:
        """The rate that the last race found, else the highest; over H the last epoch's mean."""
        if self.races:
            return self.races[-1].rate
        known = [rate for each in self.run.metrics if (rate := number(each, "rate")) is not None]
        if not known:
            return None
        return known[-1] if self.has("acceptance_rate") else max(known)


# --- accuracy, loss and rate ---


def hero_panel(view: RunView) -> Panel | None:
    """Return the first picture of a run; None before the first epoch."""
    keys = ("validation_accuracy", "validation_loss", "rate", "radius")
    rows = [key for key in keys if view.has(key)]
    if not rows:
        return None
    ratios = [1.5 if row == "rate" else 1.9 for row in rows]

    def draw(axes: Axes) -> Axes:
        figure = figure_of(axes)
        axes.remove()
        found = figure.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=ratios)
        for key, each in zip(rows, found[:, 0], strict=True):
            (_draw_rate if key == "rate" else _draw_row)(each, view, key)
            each.set_ylabel({"rate": "learning rate"}.get(key, key.removeprefix("validation_")))
            for race in view.races:
                span = np.array([race.step, race.step + race.minibatches]) / view.steps_per_epoch
                each.axvspan(*span, color=FAINT, alpha=0.55, linewidth=0, zorder=0)
        count_epochs(found[-1, 0])
        legend(found[-1, 0], _handles(view))
        last: Axes = found[-1, 0]
        return last

    return Panel("hero", "Accuracy, loss and learning rate", draw, 0.7 + sum(ratios), is_wide=True)


def _handles(view: RunView) -> list[Any]:
    found = [line("validation", _VALIDATION, linewidth=1.9)]
    if view.has("train_eval_loss"):
        found.append(line("training", _TRAINING, linewidth=1.2))
    if view.best_epoch is not None:
        found.append(line("best epoch", INK, linestyle="none", markersize=7, **_RING))
    if view.races:
        found.append(line(f"rate, found {rate_text(view.races[-1].rate)}", _RATE, linewidth=1.9))
        found.append(line("arm of a race, dropped at ×", _TRAINING, marker="x", markersize=4))
    elif view.rate is not None:
        found.append(line("rate", _RATE, linewidth=1.9))
    return found


def _draw_row(axes: Axes, view: RunView, key: str) -> None:
    """Draw a number on the validation set, on the training set if it is known, and the best."""
    training = key.replace("validation", "train_eval")
    dots: dict[str, Any] = {"marker": "o", "markersize": 3} if len(view.run.metrics) <= 40 else {}
    axes.plot(*curve(view.run, key), color=_VALIDATION, linewidth=1.9, label="validation", **dots)
    if training != key and view.has(training):
        axes.plot(*curve(view.run, training), color=_TRAINING, linewidth=1.2, label="training")
    best = view.best_epoch
    value = None if best is None else number(view.run.metrics[best - 1], key)
    if best is not None and value is not None:
        axes.plot(best, value, color=INK, markersize=8, **_RING)
    if key.endswith("accuracy"):
        in_per_cent(axes)
    else:
        in_powers(axes, drawn_values(axes), ratio=5)


def _draw_rate(axes: Axes, view: RunView, key: str) -> None:
    """Draw the rate, and that of every arm of a race for as long as it ran."""
    xs, ys = curve(view.run, key)
    if view.races:  # after a race the line begins where it has ended
        end = (view.races[-1].step + view.races[-1].minibatches) / view.steps_per_epoch
        after = xs > end
        xs = np.concatenate([[end], xs[after]])
        ys = np.concatenate([[view.races[-1].rate], ys[after]])
    axes.plot(xs, ys, color=_RATE, linewidth=1.9, label="rate")
    heights = [y for y in ys if y > np.nanmax(ys) / DECAY] + _draw_arms(axes, view)
    if heights:
        in_powers(axes, heights, ratio=1)
        axes.set_ylim(min(heights) / 1.5, max(heights) * 1.7)


def _draw_arms(axes: Axes, view: RunView) -> list[float]:
    """Draw the rate of every arm for as long as it ran; return the rates."""
    rates = []
    for race in view.races:
        for arm, setting in enumerate(race.settings):
            rate = setting.get("lr")
            if not isinstance(rate, float) or rate <= 0:
                continue
            is_dropped = arm in race.dropped
            length = len(race.losses[arm]) if is_dropped and race.losses else race.minibatches
            span = np.array([race.step, race.step + length]) / view.steps_per_epoch
            won = arm == race.winner
            colour, width = (_RATE, 1.9) if won else (_TRAINING, 1.0)
            name = f"race {race.number}: {race.fate(arm)}"
            axes.plot(span, [rate, rate], color=colour, linewidth=width, label=label(name, 60))
            if is_dropped:
                axes.plot(span[1:], [rate], "x", color=colour, markersize=4)
            rates.append(rate)
    return rates


# --- races ---


def race_panels(races: Sequence[RaceInfo]) -> list[tuple[Panel, str]]:
    """Return a drawing and a caption for every race whose losses are known."""
    return [
        (
            Panel(f"race-{race.number}", f"Race {race.number}", partial(_draw_race, race=race)),
            f"{str(race)[0].upper()}{str(race)[1:]}.",
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


# --- looks and the accept test ---


def average_panels(view: RunView) -> list[Panel]:
    """Return what the averaged weights score against the last ones; empty if that is not known."""
    return [
        panel
        for what in ("accuracy", "loss")
        if view.has(f"last_weights_validation_{what}")
        for panel in _panel(
            view,
            f"average-{what}",
            f"Validation {what} of the averaged and of the last weights",
            {f"validation_{what}": "averaged", f"last_weights_validation_{what}": "last"},
            f"validation {what}",
        )
    ]


def accept_panels(view: RunView) -> list[Panel]:
    """Return settings, acceptance and temperature of a run with moves; empty for others."""
    shares = {"acceptance_rate": "accepted", "improvement_rate": "improving"}
    heat = {"temperature": "temperature"}
    found = [
        *_panel(view, "acceptance", "Accepted and improving moves", shares, "share of the moves"),
        *_panel(view, "temperature", "Temperature at the end of each epoch", heat, "temperature"),
    ]
    settings = acceptance_map([view.run])
    if settings is not None and len(settings.settings) > 1:
        title = "Share accepted of each setting; grey: not tried"
        draw = partial(draw_acceptance, found=settings)
        found.append(Panel("settings", title, draw, settings.height))
    return found


def _panel(view: RunView, name: str, title: str, keys: dict[str, str], axis: str) -> list[Panel]:
    """Return a panel of some numbers over the epochs; none if the run has not the first one."""
    draw = partial(_draw_keys, view=view, keys=keys, axis=axis)
    return [Panel(name, title, draw)] if view.has(next(iter(keys))) else []


def _draw_keys(axes: Axes, view: RunView, keys: dict[str, str], axis: str) -> Axes:
    for (key, name), colour in zip(keys.items(), SERIES, strict=False):
        axes.plot(*curve(view.run, key), color=colour, linewidth=1.9, label=name)
    if "acceptance_rate" in keys:
        axes.set_ylim(-0.03, 1.03)
    if axis.endswith(("accuracy", "moves")):
        in_per_cent(axes)
    else:
        in_powers(axes, drawn_values(axes), ratio=5)
    axes.set_ylabel(axis)
    count_epochs(axes)
    if len(keys) > 1:
        legend(axes, axes.get_legend_handles_labels()[0])
    return axes
