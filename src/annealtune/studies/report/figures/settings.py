"""Which settings of H were accepted when: a map of epochs and settings."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from numpy.typing import NDArray

from annealtune.studies.records import RunRecord
from annealtune.studies.statistics.measures import number

from .style import HEIGHT, count_epochs, figure_of, in_per_cent, label

_LABELS = 24
# More rows or columns than these are no longer told apart.
_MOST_ROWS, _MOST_COLUMNS = 200, 500
_SHADES = 10
_NEVER = "#b8b8b8"


class AcceptanceMap(NamedTuple):
    """How often each setting was accepted, by epoch, over all seeds.

    Attributes:
        settings: the largest rate first.
        epochs: in order; of a long run the last one of each column.
        rates: accepted / tried, a row a setting and a column an epoch; NaN where never tried.
    """

    settings: tuple[dict[str, Any], ...]
    epochs: tuple[int, ...]
    rates: NDArray[np.float64]

    @property
    def height(self) -> float:
        """Inches that the map needs."""
        return min(7.0, max(HEIGHT, 1.1 + 0.16 * len(self.settings)))


def acceptance_map(runs: Sequence[RunRecord]) -> AcceptanceMap | None:
    """Count what became of each setting in some runs; None if they recorded no moves.

    Of a long run some epochs are counted together, of a large H the settings tried most are told.
    """
    lines = [line for run in runs for line in run.moves if (number(line, "epoch") or 0) >= 1]
    together = math.ceil(max((line["epoch"] for line in lines), default=1) / _MOST_COLUMNS)
    counts: dict[tuple[tuple[str, Any], ...], dict[int, list[float]]] = {}
    for line in lines:
        for move in line.get("settings") or ():
            tried, accepted = number(move, "tried"), number(move, "accepted")
            if not tried or accepted is None:
                continue
            # Lists, such as betas, are tuples again, so that they can be counted.
            plain = {k: tuple(v) if isinstance(v, list) else v for k, v in move["setting"].items()}
            columns = counts.setdefault(tuple(sorted(plain.items())), {})
            count = columns.setdefault(math.ceil(line["epoch"] / together), [0.0, 0.0])
            count[0] += tried
            count[1] += accepted
    if not counts:
        return None
    tried_most = sorted(counts, key=lambda key: -sum(n for n, _ in counts[key].values()))
    keys = sorted(tried_most[:_MOST_ROWS], key=_order, reverse=True)
    width = max(column for columns in counts.values() for column in columns)
    rates = np.full((len(keys), width), np.nan)
    for row, key in enumerate(keys):
        for column, (tried, accepted) in counts[key].items():
            rates[row, column - 1] = accepted / tried
    epochs = tuple(range(together, (width + 1) * together, together))
    return AcceptanceMap(tuple(dict(key) for key in keys), epochs, rates)


def draw_acceptance(axes: Axes, found: AcceptanceMap) -> Axes:
    """Draw a map: the lighter, the more often accepted; grey where never tried."""
    height = len(found.settings)
    image = axes.imshow(
        found.rates,
        aspect="auto",
        interpolation="none",
        extent=(0.5, found.epochs[-1] + 0.5, height - 0.5, -0.5),
        cmap=colormaps["viridis"].resampled(_SHADES).with_extremes(bad=_NEVER),
        vmin=0,
        vmax=1,
    )
    every = -(-height // _LABELS)
    axes.set_yticks(range(0, height, every), [_name(each) for each in found.settings[::every]])
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.grid(visible=False)
    count_epochs(axes)
    keys = {key for setting in found.settings for key in setting}
    if len(keys) == 1:
        axes.set_ylabel(label({"lr": "learning rate"}.get(*keys, *keys)))
    bar = figure_of(axes).colorbar(image, ax=axes, label="accepted / tried", pad=0.02, aspect=28)
    bar.outline.set_visible(False)
    in_per_cent(bar.ax)
    return axes


def _name(setting: dict[str, Any]) -> str:
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
