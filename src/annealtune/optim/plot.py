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


def plot_run(path: str | os.PathLike[str], history: History, races: Sequence[RaceInfo]) -> Path:
    """Draw what `SelfTuner.plot` promises."""
    try:
        import matplotlib.style
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "SelfTuner.plot draws by matplotlib, which is not installed: "
            "pip install 'annealtune[plot]'"
        ) from error
    with matplotlib.style.context(["default", {"axes.grid": True, "svg.fonttype": "none"}]):
        figure = Figure(figsize=(10, 5), layout="constrained")
        raced = [race for race in races if any(race.losses)]
        axes = figure.subplot_mosaic("RL;RS" if raced else "L;S")  # a race, loss, size of steps
        losses, rates = axes["L"], axes["S"]
        if raced:
            _draw_race(axes["R"], raced[-1])
        for race in races:
            for each in (losses, rates):
                each.axvspan(race.step, race.step + race.minibatches, color="#eeeeee", zorder=0)
        steps = [point.step for point in history.points]
        losses.plot(steps, [point.loss for point in history.points])
        rates.plot(steps, [point.rate for point in history.points])
        if steps:
            rates.set_yscale("log")
        found = f": {rate_text(races[-1].rate)} found" if races else ""
        losses.set_title(f"SelfTuner{found}", loc="left")
        losses.set_ylabel("training loss")
        rates.set_ylabel("learning rate")
        rates.set_xlabel("step")
        figure.savefig(path)
    return Path(path)


def _draw_race(axes: Axes, race: RaceInfo) -> None:
    """Draw the losses of every arm; a cross is where one was dropped."""
    known = [losses for losses in race.losses if losses]
    first, best = max(losses[0] for losses in known), min(map(min, known))
    edge = first + 0.5 * (first - best)  # arms explode, and would flatten the rest
    for arm, arms_losses in enumerate(race.losses):
        curve = [loss if loss <= edge else float("nan") for loss in arms_losses]
        won, crossed = arm == race.winner, [len(curve) - 1] if arm in race.dropped else []
        name = race.name(arm) + (" won" if won else "")
        steps, width = range(1, len(curve) + 1), 2.5 if won else 1.0
        axes.plot(steps, curve, label=name, linewidth=width, marker="x", markevery=crossed)
    axes.legend()
    axes.set_title(f"race {race.number}, from step {race.step}", loc="left")
    axes.set_xlabel("minibatch of the race")
    axes.set_ylabel("training loss")
