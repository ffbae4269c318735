"""Which settings of H were accepted when: a map of epochs and settings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from numpy.typing import NDArray

from annealtune.studies.records import RunRecord
from annealtune.studies.statistics.measures import number

from .style import HEIGHT, count_epochs, in_per_cent, label

_LABELS = 24
# More rows or columns than these are no longer told apart.
_MOST_ROWS, _MOST_COLUMNS = 200, 500
_SHADES = 10
_SAME = 0.01
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
    def differs(self) -> bool:
        """Whether there is anything to see: the shares are not all the same, to one per cent."""
        known = self.rates[np.isfinite(self.rates)]
        return bool(known.size) and float(known.max() - known.min()) > _SAME

    @property
    def height(self) -> float:
        """Inches that the map needs."""
        return min(7.0, max(HEIGHT, 1.1 + 0.16 * len(self.settings)))


def acceptance_map(runs: Sequence[RunRecord]) -> AcceptanceMap | None:
    """Count what became of each setting in some runs; None if they recorded no moves.

    Of a long run some epochs are counted together, of a large H the settings tried most are told.
    """
    last = max((e for run in runs for line in run.moves if (e := number(line, "epoch"))), default=1)
    together = max(1, math.ceil(last / _MOST_COLUMNS))
    counts: dict[tuple[tuple[str, Any], ...], dict[int, list[float]]] = {}
    for run in runs:
        for line in run.moves:
            epoch = number(line, "epoch")
            for move in _moves(line):
                tried, accepted = number(move, "tried"), number(move, "accepted")
                if not epoch or epoch < 1 or not tried or accepted is None:
                    continue
                key = tuple(sorted((name, _plain(v)) for name, v in move["setting"].items()))
                column = math.ceil(int(epoch) / together)
                count = counts.setdefault(key, {}).setdefault(column, [0.0, 0.0])
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
    colours = colormaps["viridis"].resampled(_SHADES).with_extremes(bad=_NEVER)
    image = axes.imshow(
        found.rates,
        aspect="auto",
        interpolation="none",
        extent=(0.5, found.epochs[-1] + 0.5, height - 0.5, -0.5),
        cmap=colours,
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
    bar = axes.figure.colorbar(image, ax=axes, label="accepted / tried", pad=0.02, aspect=28)
    bar.outline.set_visible(False)
    in_per_cent(bar.ax)
    return axes


def _moves(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings of an epoch's record; those of another form are none."""
    moves = line.get("settings")
    if not isinstance(moves, list):
        return []
    return [
        move for move in moves if isinstance(move, dict) and isinstance(move.get("setting"), dict)
    ]


def _plain(value: Any) -> Any:
    """Return a value that can be counted: lists, such as betas, are tuples again."""
    return tuple(value) if isinstance(value, list) else value


def _name(setting: dict[str, Any]) -> str:
    if len(setting) == 1:
        return label(_text(*setting.values()))
    return label(", ".join(f"{key} {_text(value)}" for key, value in setting.items()))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " / ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _order(key: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    """Numbers by size, whatever else by its text after them; the rate counts first."""
    ordered = sorted(key, key=lambda item: (item[0] != "lr", item[0]))
    return tuple(
        (name, 1, float(value), "")
        if isinstance(value, int | float)
        else (name, 0, 0.0, str(value))
        for name, value in ordered
    )
