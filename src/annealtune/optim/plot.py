"""A picture of a run of SelfTuner, for those who train without the program. Needs matplotlib."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from annealtune.annealing.race_info import RaceInfo, rate_text
from annealtune.optim.history import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RUN, _WINNER, _OTHER, _SHADE = "#0072b2", "#d55e00", "#8a8a8a", "#eeeeee"
_SETTINGS = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "savefig.facecolor": "white",
    "svg.fonttype": "none",
}


def plot_run(path: str | os.PathLike[str], history: History, races: Sequence[RaceInfo]) -> Path:
    """Draw loss and rate over the steps, every race with its arms; write it into a file.

    Args:
        path: its ending decides the format: ``.png``, ``.svg``, ``.pdf`` and what else matplotlib
            knows.
        history: of the run.
        races: of the run.

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
        figure = Figure(figsize=(8, 5), layout="constrained")
        known = figure.canvas.get_supported_filetypes()
        if path.suffix.removeprefix(".").lower() not in known:
            raise ValueError(
                f"SelfTuner.plot(path=...) must end in one of {', '.join(map('.{}'.format, known))}"
                f", got {str(path)!r}"
            )
        losses, rates = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        for race in races:
            for axes in (losses, rates):
                axes.axvspan(race.step, race.step + race.minibatches, color=_SHADE, zorder=0)
            _draw_arms(losses, rates, race)
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


def _draw_arms(losses: Axes, rates: Axes, race: RaceInfo) -> None:
    """Draw what every arm did for as long as it was in the race, the winner on top."""
    seen = [loss for arm in race.losses for loss in arm]
    edge = _highest(race)
    for arm in sorted(range(len(race.settings)), key=lambda arm: arm == race.winner):
        won = arm == race.winner
        look = {"color": _WINNER if won else _OTHER, "linewidth": 1.8 if won else 1.0}
        made = len(race.losses[arm]) if race.losses else race.minibatches
        rate = race.settings[arm].get("lr", race.rate)
        rates.plot([race.step, race.step + made], [rate, rate], **look)  # type: ignore[arg-type]
        name = race.name(arm) + (" won" if won else "")
        rates.annotate(
            name,
            (race.step + made, rate),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=look["color"],
        )
        if seen:
            curve = [loss if loss <= edge else float("nan") for loss in race.losses[arm]]
            losses.plot(range(race.step, race.step + made), curve, **look)  # type: ignore[arg-type]


def _highest(race: RaceInfo) -> float:
    """Return the loss above which nothing is drawn: arms explode, and would flatten the rest."""
    firsts = [losses[0] for losses in race.losses if losses]
    lowest = min((min(losses) for losses in race.losses if losses), default=0.0)
    return max(firsts, default=0.0) + 0.5 * (max(firsts, default=0.0) - lowest)
