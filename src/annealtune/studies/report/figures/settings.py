"""Which settings of H were accepted when: a map of epochs and settings."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from numpy.typing import NDArray

from annealtune.studies.records import RunRecord, Study

from .panels import Panel
from .style import HEIGHT, count_epochs, figure_of, in_per_cent, label

_LABELS = 24
_SHADES = 10
_NEVER = "#b8b8b8"

Setting = dict[str, Any]


def setting_panels(study: Study) -> list[Panel]:
    """Return a map for each method that chose among settings."""
    panels = []
    for place, method in enumerate(study.methods, 1):
        settings, rates = acceptance_of(study.of(method))
        if len(settings) > 1:
            draw = partial(draw_acceptance, settings=settings, rates=rates)
            height = min(7.0, max(HEIGHT, 1.1 + 0.16 * len(settings)))
            title = f"Share accepted of each setting, {method}; grey: not tried"
            panels.append(Panel(f"settings-{place}", title, draw, height))
    return panels


def acceptance_of(runs: Sequence[RunRecord]) -> tuple[list[Setting], NDArray[np.float64]]:
    """Count what became of each setting in some runs.

    Returns:
        The settings, the largest rate first; accepted / tried over all runs, a row a setting and a
        column an epoch, NaN where it was never tried.
    """
    lines = [line for run in runs for line in run.moves]
    width = max((line["epoch"] for line in lines), default=0)
    counts: dict[tuple[tuple[str, Any], ...], NDArray[np.float64]] = {}
    for line in lines:
        for move in line["settings"]:
            # Lists, such as betas, are tuples again, so that they can be counted.
            plain = {k: tuple(v) if isinstance(v, list) else v for k, v in move["setting"].items()}
            count = counts.setdefault(tuple(sorted(plain.items())), np.zeros((2, width)))
            count[:, line["epoch"] - 1] += [move["accepted"], move["tried"]]
    keys = sorted(counts, key=_order, reverse=True)
    with np.errstate(invalid="ignore"):  # 0 / 0 in epochs without a try
        rates = np.array([accepted / tried for accepted, tried in (counts[key] for key in keys)])
    return [dict(key) for key in keys], rates


def draw_acceptance(axes: Axes, settings: list[Setting], rates: NDArray[np.float64]) -> Axes:
    """Draw a map: the lighter, the more often accepted; grey where never tried."""
    height, width = rates.shape
    image = axes.imshow(
        rates,
        aspect="auto",
        interpolation="none",
        extent=(0.5, width + 0.5, height - 0.5, -0.5),
        cmap=colormaps["viridis"].resampled(_SHADES).with_extremes(bad=_NEVER),
        vmin=0,
        vmax=1,
    )
    every = -(-height // _LABELS)
    axes.set_yticks(range(0, height, every), [_name(each) for each in settings[::every]])
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.grid(visible=False)
    count_epochs(axes)
    keys = {key for setting in settings for key in setting}
    if len(keys) == 1:
        axes.set_ylabel(label({"lr": "learning rate"}.get(*keys, *keys)))
    bar = figure_of(axes).colorbar(image, ax=axes, label="accepted / tried", pad=0.02, aspect=28)
    bar.outline.set_visible(False)
    in_per_cent(bar.ax)
    return axes


def _name(setting: Setting) -> str:
    texts = {
        key: f"{value:g}" if isinstance(value, float) else str(value)
        for key, value in setting.items()
    }
    if len(texts) == 1:
        return label(next(iter(texts.values())))
    return label(", ".join(f"{key} {text}" for key, text in texts.items()))


def _order(key: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    """Numbers by size, whatever else by its text after them; the rate counts first."""
    ordered = sorted(key, key=lambda item: (item[0] != "lr", item[0]))
    return tuple(
        (name, 1, float(value), "")
        if isinstance(value, int | float)
        else (name, 0, 0.0, str(value))
        for name, value in ordered
    )
