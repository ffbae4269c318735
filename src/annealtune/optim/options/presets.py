"""The temperatures of the paper: as its text states them and as its experiments ran."""

from __future__ import annotations

import math
from typing import Any, Literal

from annealtune.annealing import Geometric, Schedule

Preset = Literal["paper-text", "paper-code"]


def preset_temperature(
    owner: str,
    preset: Any,
    temperature: float | Schedule | None,
    batch_size: Any,
    factor: float,
    floor: float,
) -> float | Schedule:
    """Return the schedule of a preset: T0 = 1, cooled per epoch.

    The authors' program compares losses that are divided by the batch size once more than the
    mean, so for ``"paper-code"`` its T0 and floor are multiplied by ``batch_size``. A temperature
    that is given replaces T0, in units of the loss; a schedule replaces everything.

    Args:
        owner: name of the optimizer's class, for messages.
        preset: ``"paper-text"`` or ``"paper-code"``.
        temperature: what the user gave.
        batch_size: what the user gave.
        factor: the cooling factor of the paper.
        floor: the lowest temperature of the authors' program, in its own unit.

    Raises:
        ValueError: if the preset is unknown or ``"paper-code"`` has no batch size.
    """
    if preset not in ("paper-text", "paper-code"):
        raise ValueError(
            f"{owner}(preset=...) must be 'paper-text' or 'paper-code', got {preset!r}"
        )
    unit = 1
    if preset == "paper-code":
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(
                f"{owner}(preset='paper-code', batch_size=...) must be given the size of a "
                f"minibatch, which is the unit of its temperature, got {batch_size!r}"
            )
        unit = batch_size
    if temperature is None:
        temperature = float(unit)
    if not isinstance(temperature, int | float) or not 0 < temperature < math.inf:
        return temperature
    lowest = floor * unit if preset == "paper-code" else 0.0
    return Geometric(temperature, factor, floor=min(lowest, temperature))
