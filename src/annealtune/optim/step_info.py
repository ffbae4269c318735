"""What a report needs to know of a step, and the counts of all steps."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, NamedTuple

from annealtune.annealing import Setting
from annealtune.annealing.neighborhood import restored

# A longer H is shown without the settings that were never tried.
_LONG = 20


@dataclasses.dataclass(frozen=True, slots=True)
class StepInfo:
    """One move, immutable: what was tried and what became of it.

    Attributes:
        step: number of the step, from 0.
        setting: the setting that was picked; ``setting["lr"]`` is its rate.
        loss: value of the accept test before the move.
        new_loss: value of the accept test at the tentative point.
        worsening: ``new_loss - loss``.
        accept_probability: clipped to 1.
        temperature: the temperature of this decision.
        accepted: whether the move was kept.
    """

    step: int
    setting: Setting
    loss: float
    new_loss: float
    worsening: float
    accept_probability: float
    temperature: float
    accepted: bool

    @property
    def outcome(self) -> Literal["accepted", "rejected"]:
        """What became of the move, in a word."""
        return "accepted" if self.accepted else "rejected"

    @property
    def improved(self) -> bool:
        """Whether the tentative point was better than the current one."""
        return math.isfinite(self.new_loss) and self.worsening < 0


class Count(NamedTuple):
    """How often a setting was tried, improved the loss, was accepted."""

    tried: int = 0
    improved: int = 0
    accepted: int = 0

    @property
    def acceptance_rate(self) -> float:
        """Share of the tried moves that were kept; NaN before the first."""
        return self.accepted / self.tried if self.tried else math.nan

    @property
    def improvement_rate(self) -> float:
        """Share of the tried moves that lowered the loss; NaN before the first."""
        return self.improved / self.tried if self.tried else math.nan


@dataclasses.dataclass(frozen=True)
class Moves:
    """The counts of a run so far, in total and per setting. ``print`` shows it as a table.

    Attributes:
        total: of all settings.
        settings: of each setting.
    """

    total: Count
    settings: dict[Setting, Count]

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("setting", "tried", "improved", "accepted")]
        long = len(self.settings) > _LONG
        shown = [(s, count) for s, count in self.settings.items() if count.tried or not long]
        for name, count in [*shown, ("all", self.total)]:
            rates = (count.improvement_rate, count.acceptance_rate)
            shares = [f"{rate:.1%}" if count.tried else "-" for rate in rates]
            rows.append((str(name), str(count.tried), *shares))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        return "\n".join(
            "  ".join(
                [row[0].ljust(widths[0])]
                + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            )
            for row in rows
        )


class Tally:
    """Counts per setting, in the order in which the settings were first known."""

    def __init__(self, settings: tuple[Setting, ...] = ()) -> None:
        # Tried, improved, accepted.
        self._counts: dict[Setting, list[int]] = {setting: [0, 0, 0] for setting in settings}

    def add(self, info: StepInfo) -> None:
        """Count one move."""
        counts = self._counts.setdefault(info.setting, [0, 0, 0])
        counts[0] += 1
        counts[1] += info.improved
        counts[2] += info.accepted

    def moves(self) -> Moves:
        """Return the counts, in total and per setting."""
        total = Count(*(sum(column) for column in zip(*self._counts.values(), strict=True)))
        return Moves(total, {setting: Count(*c) for setting, c in self._counts.items()})

    def state_dict(self) -> list[tuple[dict[str, Any], int, int, int]]:
        """Return the counts as plain data."""
        return [(dict(setting), *Count(*c)) for setting, c in self._counts.items()]

    def load_state_dict(self, state: list[tuple[dict[str, Any], int, int, int]]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._counts = {restored(options): list(count) for options, *count in state}
