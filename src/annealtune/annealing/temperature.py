"""How warm the search is and how it cools.

A schedule has a current ``temperature``. It is told the worsening of every measured move
(``observe``) and the end of every step and every epoch (``tick``); each schedule follows one of
the two clocks and ignores the other. Its ``state_dict`` is plain data, so that a resumed run
continues at the same temperature to the last bit.
"""

from __future__ import annotations

import copy
import math
import statistics
from typing import Any, ClassVar, Literal

from annealtune.annealing.arguments import count, not_negative, number, positive, shown

Clock = Literal["step", "epoch"]


class Schedule:
    """What every temperature schedule offers; a subclass overrides what it needs.

    Its state is what changes: the attributes in ``_changing``, each with a leading underscore.
    """

    _changing: ClassVar[tuple[str, ...]] = ("temperature",)
    _temperature: float

    @property
    def temperature(self) -> float:
        """The temperature of the next accept test."""
        return self._temperature

    def observe(self, worsening: float) -> None:
        """Learn from the worsening of a measured move."""

    def tick(self, clock: Clock) -> None:
        """Note the end of a step or of an epoch."""

    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs, as plain data."""
        return {name: copy.copy(getattr(self, f"_{name}")) for name in self._changing}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        for name in self._changing:
            setattr(self, f"_{name}", copy.copy(state[name]))

    def __repr__(self) -> str:
        return shown(self)


class Constant(Schedule):
    """A constant temperature; 0 is greedy, ``math.inf`` accepts every finite worsening.

    Args:
        temperature: not negative and not NaN.

    Example:
        >>> Constant(0.5).temperature
        0.5
    """

    def __init__(self, temperature: float) -> None:
        self._temperature = not_negative("Constant(temperature=...)", temperature)

    def __repr__(self) -> str:
        return f"Constant({self._temperature!r})"


class Geometric(Schedule):
    r"""Geometric cooling, :math:`T = \alpha T` at every tick of its clock, never below a floor.

    Args:
        initial: the first temperature T0, positive.
        factor: the cooling factor alpha, between 0 and 1.
        per: the clock it follows, ``"epoch"`` (Algorithm 2) or ``"step"`` (Algorithm 1).
        floor: the temperature it does not fall below.

    Raises:
        ValueError: if an argument breaks its rule.

    Example:
        >>> schedule = Geometric(1.0, 0.8)
        >>> schedule.tick("step"), schedule.tick("epoch")
        (None, None)
        >>> schedule.temperature
        0.8

    Reference:
        Fischetti and Stringher (2019), equation 2; alpha of 0.95-0.99 per step, 0.7-0.8 per epoch.
    """

    def __init__(
        self, initial: float, factor: float, *, per: Clock = "epoch", floor: float = 0.0
    ) -> None:
        self.initial = self._temperature = positive("Geometric(initial=...)", initial)
        self.factor = number("Geometric(factor=...)", factor)
        if not 0 < self.factor < 1:
            raise ValueError(
                f"Geometric(factor=...) must lie between 0 and 1, both excluded, got {factor!r}"
            )
        self.per = _clock("Geometric(per=...)", per)
        self.floor = not_negative("Geometric(floor=...)", floor)
        if self.floor > self.initial:
            raise ValueError(
                f"Geometric(floor=...) must not exceed initial={initial!r}, got {floor!r}"
            )

    def tick(self, clock: Clock) -> None:
        """Cool once if this is the clock the schedule follows."""
        if clock == self.per:
            self._temperature = self.cooled(self._temperature)

    def cooled(self, temperature: float) -> float:
        """Return the temperature after the given one."""
        return max(self.factor * temperature, self.floor)


class Reheating(Schedule):
    """A geometric schedule whose temperature is restored to its initial value several times.

    Args:
        schedule: the schedule to restart.
        every: restore after this many ticks of the schedule's own clock.
        times: how often to restore; afterwards it cools for good.

    Example:
        >>> schedule = Reheating(Geometric(1.0, 0.5), every=2, times=1)
        >>> temperatures = []
        >>> for _ in range(5):
        ...     temperatures.append(schedule.temperature)
        ...     schedule.tick("epoch")
        >>> temperatures
        [1.0, 0.5, 1.0, 0.5, 0.25]

    Reference:
        Fischetti and Stringher (2019), Section 2: the temperature can be restored multiple times.
    """

    _changing = ("temperature", "ticks")

    def __init__(self, schedule: Geometric, *, every: int, times: int) -> None:
        if not isinstance(schedule, Geometric):
            raise TypeError(f"Reheating(schedule=...) must be a Geometric, got {schedule!r}")
        self.schedule = schedule
        self.per = schedule.per
        self.every = count("Reheating(every=...)", every, least=1)
        self.times = count("Reheating(times=...)", times, least=0)
        self._temperature = schedule.temperature
        self._ticks = 0

    def tick(self, clock: Clock) -> None:
        """Cool, or restore the initial temperature where a restart is due."""
        if clock != self.per:
            return
        self._ticks += 1
        restarts, since = divmod(self._ticks, self.every)
        is_due = since == 0 and restarts <= self.times
        first, cooled = self.schedule.initial, self.schedule.cooled(self._temperature)
        self._temperature = first if is_due else cooled


class Automatic(Schedule):
    r"""A temperature in units of the worsenings that occur, so that there is nothing to choose.

    The unit is the median \|worsening\| of the first ``probes`` moves, zeros left out. While it is
    measured the temperature is the median so far, 0 before the first, so that a move that is far
    worse than those before it is rejected. Then the temperature starts at ``start`` units and falls
    geometrically to ``end`` units at the planned length, or, with a ``quench``, to 0:

    .. math:: T = unit \cdot start \cdot (end / start)^x \cdot (1 - x)^{quench}

    where x is the share of the planned length that is over. Without a length it falls as
    :math:`start / (1 + k / probes)` units, k steps after the measurement: an anytime schedule.
    Multiplying every value of the accept test by a constant changes no decision.

    Args:
        length: the planned number of ticks, or None for the anytime schedule. One epoch is like
            None: it ends when the run does, so nothing could cool at its end.
        per: the clock of ``length``.
        probes: how many non-zero worsenings make the unit.
        start: the first temperature after the measurement, in units.
        end: the last temperature of the planned length, in units.
        quench: how strongly the temperature is pulled to 0 at the planned length; 0 is not at all.

    Example:
        >>> schedule = Automatic(length=3, probes=1, start=4.0, end=1.0)
        >>> schedule.temperature
        0.0
        >>> schedule.observe(-0.5), schedule.temperature
        (None, 2.0)
        >>> schedule.tick("epoch"), schedule.temperature
        (None, 1.0)
    """

    _changing = ("measured", "unit", "ticks", "calibrated_at")

    def __init__(
        self,
        *,
        length: int | None = None,
        per: Clock = "epoch",
        probes: int = 32,
        start: float = 3.0,
        end: float = 0.001,
        quench: float = 0.0,
    ) -> None:
        self.length = None if length is None else count("Automatic(length=...)", length, least=1)
        clock = _clock("Automatic(per=...)", per)
        if (self.length, clock) == (1, "epoch"):
            self.length = None
        self.per: Clock = clock if self.length else "step"
        self.probes = count("Automatic(probes=...)", probes, least=1)
        self.start = number("Automatic(start=...)", start)
        self.end = number("Automatic(end=...)", end)
        if not 0 < self.end <= self.start < math.inf:
            raise ValueError(
                "Automatic(start=..., end=...) must satisfy 0 < end <= start < inf, "
                f"got start={start!r}, end={end!r}"
            )
        self.quench = not_negative("Automatic(quench=...)", quench)
        self._measured: list[float] = []
        self._unit: float | None = None
        self._ticks = 0
        self._calibrated_at = 0

    @property
    def unit(self) -> float | None:
        """The median of the measured worsenings' sizes, None while it is still measured."""
        return self._unit

    @property
    def temperature(self) -> float:
        """The temperature of the next accept test."""
        if self._unit is None:
            return statistics.median(self._measured) if self._measured else 0.0
        since = self._ticks - self._calibrated_at
        if self.length is None:
            return self._unit * (self.start / (1 + since / self.probes))
        # The last of ``length`` ticks is followed by nothing, so the end is reached one before it.
        ahead = self.length - 1 - self._calibrated_at
        share = min(since / ahead, 1.0) if ahead > 0 else 0.0
        units = self.start * math.pow(self.end / self.start, share)
        return self._unit * (units * math.pow(1 - share, self.quench))

    def observe(self, worsening: float) -> None:
        """Measure the unit from the first moves."""
        if self._unit is not None or not math.isfinite(worsening) or worsening == 0:
            return
        self._measured.append(abs(worsening))
        if len(self._measured) >= self.probes:
            self._unit = statistics.median(self._measured)
            self._calibrated_at = self._ticks
            self._measured = []

    def tick(self, clock: Clock) -> None:
        """Count the clock the schedule follows."""
        self._ticks += clock == self.per


def as_schedule(owner: str, temperature: float | Schedule) -> Schedule:
    """Turn a number into a `Constant` and let a schedule through; ``owner`` was given it."""
    if isinstance(temperature, Schedule):
        return temperature
    return Constant(not_negative(f"{owner}(temperature=...)", temperature))


def _clock(argument: str, value: Any) -> Clock:
    if value not in ("step", "epoch"):
        raise ValueError(f"{argument} must be 'step' or 'epoch', got {value!r}")
    return "step" if value == "step" else "epoch"
