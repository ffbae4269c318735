"""A picture of a run of SelfTuner, for those who train without the program. Needs matplotlib."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from annealtune.annealing.race import RaceInfo, rate_text
from annealtune.optim.history import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RUN, _WINNER, _OTHER, _SHADE = "#0072b2", "#d55e00", "#8a8a8a", "#eeeeee"
# Share of the height of the axes that a name takes.
_ROW = 0.045
_SETTINGS = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "savefig.facecolor": "white",
    "svg.fonttype": "none",
}


def plot_run(
    path: str | os.PathLike[str],
    history: History,
    races: Sequence[RaceInfo],
    *,
    sign: float = 1.0,
) -> Path:
    """Draw loss and rate over the steps, every race with its arms; write it into a file.

    Args:
        path: its ending decides the format: ``.png``, ``.svg``, ``.pdf`` and what else matplotlib
            knows.
        history: of the run.
        races: of the run.
        sign: -1 where the loss is maximized.

    Returns:
        The path.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if matplotlib does not know the ending.
    """
    try:
        import matplotlib.style
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "SelfTuner.plot draws by matplotlib, which is not installed: "
            "pip install 'annealtune[plot]'"
        ) from error
    path = Path(path)
    with matplotlib.style.context(["default", _SETTINGS]):
        figure = Figure(figsize=(10, 5), layout="constrained")
        known = figure.canvas.get_supported_filetypes()
        if path.suffix.removeprefix(".").lower() not in known:
            raise ValueError(
                f"SelfTuner.plot(path=...) must end in one of {', '.join(map('.{}'.format, known))}"
                f", got {str(path)!r}"
            )
        shown = next((race for race in reversed(races) if any(race.losses)), None)
        axes = figure.subplot_mosaic(
            "L;S" if shown is None else "RL;RS",  # R: a race, L: loss, S: size of the steps
            width_ratios=None if shown is None else [2, 3],
            height_ratios=[3, 2],
        )
        losses, rates = axes["L"], axes["S"]
        losses.sharex(rates)
        if shown is not None:
            _draw_race(axes["R"], shown, sign)
        for race in races:
            for each in (losses, rates):
                each.axvspan(race.step, race.step + race.minibatches, color=_SHADE, zorder=0)
            _draw_rates(rates, race)
        _draw_points(losses, rates, history)
        found = f": {rate_text(races[-1].rate)} found" if races else ""
        losses.set_title(f"SelfTuner{found}", loc="left")
        losses.set_ylabel("training loss")
        rates.set_ylabel("learning rate")
        rates.set_xlabel("step")
        figure.savefig(path)
    return path


def _draw_points(losses: Axes, rates: Axes, history: History) -> None:
    points = history.points
    steps = [point.step for point in points]
    losses.plot(steps, [point.loss for point in points], color=_RUN)
    rates.plot(steps, [point.rate for point in points], color=_RUN)
    if any(line.get_ydata().size for line in rates.lines):  # type: ignore[union-attr]
        rates.set_yscale("log")


def _draw_rates(axes: Axes, race: RaceInfo) -> None:
    """Draw the rate of every arm for as long as it was in the race."""
    for arm, setting in enumerate(race.settings):
        # Minibatches that were spoilt for all have no losses: only who was dropped ends early.
        ends_early = bool(race.losses) and arm in race.dropped
        made = len(race.losses[arm]) if ends_early else race.minibatches
        rate = setting.get("lr", race.rate)
        colour = _WINNER if arm == race.winner else _OTHER
        axes.plot([race.step, race.step + made], [rate, rate], color=colour)


def _draw_race(axes: Axes, race: RaceInfo, sign: float) -> None:
    """Draw the losses of every arm, the winner on top; a cross is where one was dropped."""
    edge = _edge(race, sign)
    ends = []
    for arm in sorted(range(len(race.losses)), key=lambda arm: arm == race.winner):
        if not race.losses[arm]:
            continue
        won = arm == race.winner
        colour = _WINNER if won else _OTHER
        curve = [loss if sign * loss <= edge else float("nan") for loss in race.losses[arm]]
        axes.plot(range(1, len(curve) + 1), curve, color=colour, linewidth=2.0 if won else 1.0)
        last = sign * min(sign * race.losses[arm][-1], edge)
        if arm in race.dropped:
            axes.plot([len(curve)], [last], "x", color=colour)
        ends.append((last, race.name(arm) + (" won" if won else ""), colour))
    _write_names(axes, ends)
    axes.set_title(f"race {race.number}, from step {race.step}", loc="left")
    axes.set_xlabel("minibatch of the race")
    axes.set_ylabel("training loss")


def _write_names(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write names beside the axes, near the heights at which their lines end, moved apart."""
    low, high = axes.get_ylim()
    height = -1.0
    for y, name, colour in sorted(ends):
        height = max((y - low) / (high - low), height + _ROW)
        axes.text(
            1.02, height, name, color=colour, fontsize=8, va="center", transform=axes.transAxes
        )


def _edge(race: RaceInfo, sign: float) -> float:
    """Return the loss, times the sign, above which nothing is drawn.

    Arms explode, and would flatten the rest.
    """
    known = [[sign * loss for loss in losses] for losses in race.losses if losses]
    first = max((losses[0] for losses in known), default=0.0)
    best = min(map(min, known), default=0.0)
    return first + 0.5 * (first - best)
