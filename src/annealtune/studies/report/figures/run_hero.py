"""The first picture of a run: accuracy and loss, with the learning rate under them."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from annealtune.annealing.race import RaceInfo, rate_text
from annealtune.studies.report.run_story import RunStory

from .end_labels import EndLabel, name_ends
from .hover import show_values
from .panels import Panel
from .style import FAINT, INK, SERIES, count_epochs, in_per_cent, legend, line

_VALIDATION, _TRAINING, _RATE = SERIES[0], SERIES[6], SERIES[1]
_POINTS_UP_TO = 40
# More names do not fit beside the axes.
_NAMED_UP_TO = 10


def hero(stories: Sequence[RunStory]) -> Panel | None:
    """Return the first picture of one run or of several; None before the first epoch."""
    rows = _rows(stories)
    if not rows:
        return None
    height = 0.6 + sum(1.9 if row != "rate" else 1.5 for row in rows)

    def draw(axes: Axes) -> Axes:
        figure = axes.get_figure(root=True)
        assert isinstance(figure, Figure)
        axes.remove()
        ratios = [1.9 if row != "rate" else 1.5 for row in rows]
        found = figure.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=ratios)
        for row, each in zip(rows, found[:, 0], strict=True):
            _DRAW[row](each, stories)
        last: Axes = found[-1, 0]
        count_epochs(last)
        return last

    return Panel("hero", "Accuracy, loss and learning rate", draw, height, is_wide=True)


def _rows(stories: Sequence[RunStory]) -> list[str]:
    keys = {"accuracy": "validation_accuracy", "loss": "validation_loss", "rate": "rate"}
    rows = [row for row, key in keys.items() if any(story.has(key) for story in stories)]
    if "rate" not in rows and any(story.has("radius") for story in stories):
        rows.append("radius")
    return rows


def _accuracy(axes: Axes, stories: Sequence[RunStory]) -> None:
    axes.set_ylabel("accuracy")
    lines: list[tuple[str, str, str]] = [("validation_accuracy", "validation", _VALIDATION)]
    if len(stories) == 1:
        lines.append(("train_eval_accuracy", "training", _TRAINING))
    _lines(axes, stories, lines, lambda v: f"{100 * v:.2f} %", best="validation_accuracy")
    in_per_cent(axes)


def _loss(axes: Axes, stories: Sequence[RunStory]) -> None:
    axes.set_ylabel("loss")
    lines: list[tuple[str, str, str]] = [("validation_loss", "validation", _VALIDATION)]
    if len(stories) == 1:
        lines.append(("train_eval_loss", "training", _TRAINING))
    best = "" if any(story.has_accuracy for story in stories) else "validation_loss"
    _lines(axes, stories, lines, lambda v: f"{v:.4g}", logarithmic=True, best=best)


def _rate(axes: Axes, stories: Sequence[RunStory]) -> None:
    axes.set_ylabel("learning rate")
    ends, heights = [], []
    for place, story in enumerate(stories):
        colour = _RATE if len(stories) == 1 else SERIES[place % len(SERIES)]
        xs, ys = _rate_line(story)
        if not any(map(math.isfinite, ys)):
            continue
        axes.plot(xs, ys, color=colour, linewidth=1.9)
        texts = [f"epoch {x:.3g}: {rate_text(y)}" for x, y in zip(xs, ys, strict=True)]
        show_values(axes, _series(stories, story, "rate"), colour, xs, ys, texts, is_line=True)
        # The last steps of a decay go to nothing: two and a half decades show all that matters.
        heights += [y for y in ys if y > max(ys) / 300]
        if story.rate is not None:
            ends.append((story, colour))
        if len(stories) == 1:
            heights += _arms(axes, story)
    if heights and min(heights) > 0:
        _count_in_powers(axes, heights, rate_text)
        axes.set_ylim(min(heights) / 1.5, max(heights) * 1.7)
    if len(stories) == 1 and stories[0].races:
        race = stories[0].races[-1]
        name_ends(axes, [EndLabel(f"found {rate_text(race.rate)}", _RATE, race.rate)], _share(axes))


def _radius(axes: Axes, stories: Sequence[RunStory]) -> None:
    axes.set_ylabel("radius of a move")
    _lines(axes, stories, [("radius", "", _RATE)], lambda value: f"{value:.3g}", logarithmic=True)


_DRAW = {"accuracy": _accuracy, "loss": _loss, "rate": _rate, "radius": _radius}


def _lines(
    axes: Axes,
    stories: Sequence[RunStory],
    lines: Sequence[tuple[str, str, str]],
    form: Any,
    *,
    logarithmic: bool = False,
    best: str = "",
) -> None:
    """Draw some numbers of every run over the epochs, named at their ends."""
    labels, known = [], []
    for place, story in enumerate(stories):
        for key, what, own in lines:
            colour = own if len(stories) == 1 else SERIES[place % len(SERIES)]
            xs, ys = story.curve(key)
            finite = [y for y in ys if math.isfinite(y)]
            if not finite:
                continue
            known += finite
            mark: dict[str, Any] = {"marker": "o", "markersize": 3}
            mark = mark if len(xs) <= _POINTS_UP_TO else {}
            axes.plot(xs, ys, color=colour, linewidth=1.9 if what != "training" else 1.2, **mark)
            name = _series(stories, story, what)
            texts = [f"epoch {x:.0f}: {form(y)}" for x, y in zip(xs, ys, strict=True)]
            show_values(axes, name, colour, xs, ys, texts, is_line=True)
            labels.append(EndLabel(name, colour, finite[-1]))
    if len(stories) == 1:
        _shade_races(axes, stories[0])
    if logarithmic and known and min(known) > 0 and max(known) / min(known) > 5:
        _count_in_powers(axes, known, lambda value: f"{value:g}")
    labels += _best(axes, stories, best, form) if best else []
    where = axes.get_subplotspec()
    if len(labels) <= _NAMED_UP_TO:
        name_ends(axes, labels, _share(axes))
    elif where is not None and where.is_first_row():
        legend(axes, [line(each.text, each.colour) for each in labels])


def _count_in_powers(axes: Axes, values: Sequence[float], form: Callable[[float], str]) -> None:
    """Use a logarithmic axis whose numbers do not touch, however narrow its range is."""
    axes.set_yscale("log")
    is_narrow = max(values) / min(values) < 30
    axes.yaxis.set_major_locator(LogLocator(subs=[1, 2, 5] if is_narrow else [1], numticks=6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: form(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _share(axes: Axes) -> float:
    """Return the part of the figure's height that one of several axes takes."""
    place = axes.get_subplotspec()
    return 0.76 if place is None else 0.8 / place.get_gridspec().nrows


def _series(stories: Sequence[RunStory], story: RunStory, what: str) -> str:
    return what if len(stories) == 1 else story.name


def _best(axes: Axes, stories: Sequence[RunStory], key: str, form: Any) -> list[EndLabel]:
    """Mark the best epoch of a single run; return what to write beside the axes."""
    if len(stories) != 1 or stories[0].best_epoch is None:
        return []
    values = dict(zip(*stories[0].all_values(key), strict=True))
    best = values.get(float(stories[0].best_epoch), math.nan)
    if not math.isfinite(best):
        return []
    axes.plot(stories[0].best_epoch, best, "o", markersize=8, markerfacecolor="none", color=INK)
    return [EndLabel(f"best {form(best)}", INK, best)]


def _rate_line(story: RunStory) -> tuple[list[float], list[float]]:
    """Return the rate over the epochs; after a race it begins where the race has ended."""
    xs, ys = map(list, story.curve("rate"))
    if not story.races or story.steps_per_epoch is None:
        return xs, ys
    last = story.races[-1]
    end = (last.step + last.minibatches) / story.steps_per_epoch
    after = [(x, y) for x, y in zip(xs, ys, strict=True) if x > end]
    return [end, *(x for x, _ in after)], [last.rate, *(y for _, y in after)]


def _arms(axes: Axes, story: RunStory) -> list[float]:
    """Draw the rate of every arm for as long as it ran; return the rates."""
    rates = []
    for race in story.races:
        if story.steps_per_epoch is None:
            continue
        for arm, setting in enumerate(race.settings):
            rate = setting.get("lr")
            if not isinstance(rate, float) or rate <= 0:
                continue
            begin = race.step / story.steps_per_epoch
            end = (race.step + _length(race, arm)) / story.steps_per_epoch
            won = arm == race.winner
            colour = _RATE if won else SERIES[6]
            axes.plot([begin, end], [rate, rate], color=colour, linewidth=1.9 if won else 1.0)
            fate = race.fate(arm)
            text = f"arm of race {race.number}: {fate}"
            show_values(axes, race.name(arm), colour, [begin, end], [rate, rate], [text, text])
            if arm in race.dropped:
                axes.plot([end], [rate], "x", color=colour, markersize=4)
            rates.append(rate)
    _shade_races(axes, story)
    return rates


def _length(race: RaceInfo, arm: int) -> int:
    """Return how many minibatches an arm took part in: all, if it stayed or no losses are known."""
    is_short = arm in race.dropped and arm < len(race.losses)
    return len(race.losses[arm]) if is_short else race.minibatches


def _shade_races(axes: Axes, story: RunStory) -> None:
    if story.steps_per_epoch is None or not story.races:
        return
    for race in story.races:
        begin = race.step / story.steps_per_epoch
        end = (race.step + race.minibatches) / story.steps_per_epoch
        axes.axvspan(begin, end, color=FAINT, alpha=0.55, linewidth=0, zorder=0)
    place = axes.get_subplotspec()
    if place is not None and place.is_first_row():
        count = len(story.races)
        axes.text(
            story.races[0].step / story.steps_per_epoch,
            1.02,
            "race" if count == 1 else f"{count} races",
            transform=axes.get_xaxis_transform(),
            fontsize=8.5,
            va="bottom",
        )
