"""The other pictures of a run: averaged against last weights, and the accept test at work."""

import math
from functools import partial

from matplotlib.axes import Axes

from annealtune.studies.report.run_story import RunStory

from .end_labels import EndLabel, name_ends
from .hover import show_values
from .panels import Panel
from .setting_map import acceptance_map, draw_acceptance
from .style import SERIES, count_epochs, in_per_cent, in_powers

_AVERAGED, _LAST = SERIES[0], SERIES[1]


def average_panels(story: RunStory) -> list[tuple[Panel, str]]:
    """Return what the averaged weights score against the last ones; empty if that is not known."""
    found = []
    for what in ("accuracy", "loss"):
        keys = (f"validation_{what}", f"last_weights_validation_{what}")
        if all(map(story.has, keys)):
            draw = partial(_average, story=story, what=what)
            panel = Panel(f"average-{what}", f"Validation {what}", draw)
            found.append((panel, f"Validation {what} of the averaged and of the last weights."))
    return found


def accept_panels(story: RunStory) -> list[tuple[Panel, str]]:
    """Return settings, acceptance and temperature of a run with moves; empty for others."""
    if not story.has_moves:
        return []
    found = [
        (
            Panel("acceptance", "Accepted moves", partial(_acceptance, story=story)),
            "Share of the moves that were kept, and of those that made things better.",
        )
    ]
    if story.has("temperature"):
        found.append(
            (
                Panel("temperature", "Temperature", partial(_temperature, story=story)),
                "Temperature of each epoch's last accept test.",
            )
        )
    settings = acceptance_map([story.run])
    if settings is not None and len(settings.settings) > 1:
        draw = partial(draw_acceptance, found=settings)
        panel = Panel("settings", "Settings accepted", draw, settings.height)
        found.append((panel, "How often each setting was accepted, by epoch; grey: not tried."))
    return found


def _average(axes: Axes, story: RunStory, what: str) -> Axes:
    form = _in_per_cent if what == "accuracy" else _in_digits
    labels, known = [], []
    names = {"averaged": (f"validation_{what}", _AVERAGED)}
    names["last"] = (f"last_weights_validation_{what}", _LAST)
    for name, (key, colour) in names.items():
        xs, ys = story.curve(key)
        finite = [y for y in ys if math.isfinite(y)]
        axes.plot(xs, ys, color=colour, linewidth=1.9 if name == "averaged" else 1.2)
        texts = [f"epoch {x:.0f}: {form(y)}" for x, y in zip(xs, ys, strict=True)]
        show_values(axes, f"{name} weights", colour, xs, ys, texts, is_line=True)
        labels.append(EndLabel(name, colour, finite[-1]))
        known += finite
    if what == "accuracy":
        in_per_cent(axes)
    elif min(known) > 0 and max(known) / min(known) > 5:
        in_powers(axes)
    axes.set_ylabel(f"validation {what}")
    name_ends(axes, labels)
    count_epochs(axes)
    return axes


def _acceptance(axes: Axes, story: RunStory) -> Axes:
    labels = []
    for key, name, colour in (
        ("acceptance_rate", "accepted", SERIES[0]),
        ("improvement_rate", "improving", SERIES[2]),
    ):
        xs, ys = story.curve(key)
        finite = [y for y in ys if math.isfinite(y)]
        if finite:
            axes.plot(xs, ys, color=colour, linewidth=1.9)
            texts = [f"epoch {x:.0f}: {_in_per_cent(y)}" for x, y in zip(xs, ys, strict=True)]
            show_values(axes, name, colour, xs, ys, texts, is_line=True)
            labels.append(EndLabel(name, colour, finite[-1]))
    axes.set_ylim(-0.03, 1.03)
    in_per_cent(axes)
    axes.set_ylabel("share of the moves")
    name_ends(axes, labels)
    count_epochs(axes)
    return axes


def _temperature(axes: Axes, story: RunStory) -> Axes:
    xs, ys = story.curve("temperature")
    axes.plot(xs, ys, color=SERIES[1], linewidth=1.9)
    texts = [f"epoch {x:.0f}: {_in_digits(y)}" for x, y in zip(xs, ys, strict=True)]
    show_values(axes, "temperature", SERIES[1], xs, ys, texts, is_line=True)
    positive = [y for y in ys if y > 0]
    if positive and max(positive) / min(positive) > 5:
        in_powers(axes)
    axes.set_ylabel("temperature")
    count_epochs(axes)
    return axes


def _in_per_cent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _in_digits(value: float) -> str:
    return f"{value:.4g}"
