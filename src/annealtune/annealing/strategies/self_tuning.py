"""Self-tuning: find the rate in the first steps, then a heat bath around it that cools to nothing.

This is what `EmbeddedTuner` does where nothing is given.
"""

from __future__ import annotations

import bisect
import math
import random
import statistics
from typing import Any

from annealtune.annealing.acceptance import Verdict
from annealtune.annealing.arguments import one_length
from annealtune.annealing.neighborhood import Neighborhood, Setting, grid
from annealtune.annealing.parabola import Parabola
from annealtune.annealing.strategies.guarded import GuardedStrategy
from annealtune.annealing.strategies.heat_bath import boltzmann_shares, pick_by_share
from annealtune.annealing.temperature import Clock

# The rates of H: eight a decade, from what moves no network to what no network survives.
RATES = tuple(float(f"{10 ** (exponent / 8):.3g}") for exponent in range(-72, 41))
# The search begins below every rate that matters, so that nothing depends on it; with a prior
# at this share of it.
_FIRST_RATE = 1e-7
_FIRST_SHARE_OF_PRIOR = 1e-3
# A move that changes the loss by less than this share of it tells nothing but that it was small.
_NEGLIGIBLE = 1e-4
_LEAP = 3.0
# Otherwise the estimate rises and falls by no more than these factors a step.
_RISE = 1.3
_FALL = 3.0
# How many steps the search takes: so many, or this share of the run if that is more.
_LEAST_STEPS = 30
_SHARE_OF_RUN = 0.04
# It goes on until there are so many estimates that did not rise at full speed, or over this share
# of a short run.
_LEAST_ESTIMATES = 10
_LONGEST_SEARCH = 0.5
# Rates are tried at these multiples of the estimate in the search, and of the peak after it.
_MULTIPLES = (0.5, 1.0, 2.0)
_SPREAD = (0.7, 1.0, 1.4)
# Measurements of the search are forgotten sooner: the landscape changes most in the first steps.
_FORGETTING = 0.95
# Over this last share of the run the rates fall to nothing.
_DECAY = 0.25
# What breaks the loss after the search halves the peak.
_CUT = 0.5
# What is known beforehand has this weight beside the estimate, in logarithms, and moves it by this
# factor at most: it is right for most networks, and should not ruin those it is wrong for.
_WEIGHT_OF_PRIOR = 0.8
_MOST_BY_PRIOR = 10.0


class SelfTuning(GuardedStrategy):
    r"""Choose the learning rate of the whole run from its first steps; nothing is to be given.

    The search, in the first steps, each of them measured: an estimate r starts far below every
    sensible rate and leaps up while the loss hardly moves. Then rates r/2, r and 2r are tried, a
    parabola is fitted to what they did, and r follows its bottom :math:`-a/2b`, slowly upwards.
    What worsens the loss by more than a fifth of it is undone. The peak is the
    geometric mean of the estimates in the last half of the search, which takes at most half a run.

    Where a rate p is known that suits most networks, it is drawn to that one, in the search as in
    the end: four fifths of the way, :math:`r^{0.2} p^{0.8}`, but tenfold at most.

    The run: H is 0.7, 1 and 1.4 times the peak; where the length is known it falls in a straight
    line to nothing over the last quarter. Of the three the rate is picked by the heat
    bath (see `HeatBath`), scaled so that their mean is the peak: the bath decides how rates vary,
    not how large they are, for a single step gains most by too small ones. It is rounded to a
    member of H at random, so that the mean is exact.
    A move that breaks the loss is undone; one that was measured, or led to no finite loss, halves
    the peak.

    From the literature: the heat bath, the parabola of a line search, a constant rate that decays
    at the end. Our choice: to look for one peak in the first steps and to believe it. What gains
    most on its own minibatch follows the rates that are used: a network learns to live with them.
    Trusted through the whole run it drifts; docs/decisions/0014 has the measurements.

    Args:
        steps: planned number of steps; None if unknown.
        epochs: planned number of epochs instead; None if unknown. The steps of the first one
            are not known while it lasts: a run of one epoch does not decay.
        caution: the estimate is divided by it, before it is drawn to a prior. Along a bare
            gradient the best rate of one step is too large for the next ones; an optimizer that
            scales each weight by itself needs none.
        prior: a rate that suits most networks, if there is one for the optimizer.

    Raises:
        TypeError: if a length is no whole number.
        ValueError: if both are given, or one is below 1, or caution or prior is not positive.

    Example:
        >>> strategy, rng, loss = SelfTuning(steps=300), random.Random(0), 1.0
        >>> for _ in range(60):  # the loss is halved at the rate 0.1
        ...     rate = strategy.pick(strategy.neighborhood(), rng)["lr"]
        ...     verdict = strategy.decide(loss, loss * (1 - 10 * rate + 50 * rate**2), rng)
        ...     strategy.observe(Setting({"lr": rate}), verdict)
        ...     strategy.tick("step")
        >>> 0.09 < strategy.peak < 0.11
        True
    """

    def __init__(
        self,
        steps: int | None = None,
        epochs: int | None = None,
        *,
        caution: float = 1.0,
        prior: float | None = None,
    ) -> None:
        one_length("SelfTuning", steps=steps, epochs=epochs)
        if not 0 < caution < math.inf:
            raise ValueError(f"SelfTuning(caution=...) must be positive, got {caution!r}")
        if prior is not None and not 0 < prior < math.inf:
            raise ValueError(f"SelfTuning(prior=...) must be positive or None, got {prior!r}")
        super().__init__()
        self._steps, self._epochs, self._caution = steps, epochs, caution
        self._prior = prior
        self._parabola = Parabola(_FORGETTING)
        self._settings = {rate: Setting({"lr": rate}) for rate in RATES}
        self._neighborhood: Neighborhood | None = None
        self._rates = RATES  # those of H
        self._estimate = _FIRST_RATE if prior is None else _FIRST_SHARE_OF_PRIOR * prior
        self._estimates: list[float] = []
        self._value = 0.0  # at the start of the last move
        self._step = 0
        self._epoch = 0
        self._epoch_began = 0  # at this step
        self._epoch_length: int | None = None
        self.peak: float | None = None  # None during the search

    @staticmethod
    def neighborhood() -> Neighborhood:
        """Return the rates among which it picks."""
        return grid(lr=RATES)

    @property
    def temperature(self) -> float:
        """The best predicted gain, which is the temperature of the heat bath; 0 while unknown."""
        best = self._parabola.best_rate
        return -self._parabola.worsening(best) if math.isfinite(best) else 0.0

    def check(self, neighborhood: Neighborhood) -> None:
        """Refuse an H of its own: it has one.

        Raises:
            ValueError: if it is another one, but for rates that the optimizer refuses.
        """
        if not set(neighborhood) <= set(self._settings.values()):
            raise ValueError(
                "SelfTuning finds its own learning rates, so no neighborhood must be given, got "
                f"{len(neighborhood)} settings of {', '.join(neighborhood.options)}; for a "
                "neighborhood of yours take HeatBath"
            )

    def pick(self, neighborhood: Neighborhood, rng: random.Random) -> Setting:
        """Pick a rate near the estimate or the peak, with exactly two draws."""
        if neighborhood is not self._neighborhood:  # without what the optimizer refuses
            self._neighborhood = neighborhood
            self._rates = tuple(sorted(setting["lr"] for setting in neighborhood))
        draw, rounding = rng.random(), rng.random()
        if self.peak is None:
            centre = self._towards_prior(self._estimate)
            target = centre * _MULTIPLES[int(draw * len(_MULTIPLES))]
        else:
            target = self._from_the_bath(self.peak * self._left(), draw)
        return self._settings[_rounded(target, rounding, self._rates)]

    def _from_the_bath(self, centre: float, draw: float) -> float:
        """Pick one of three rates by the heat bath, so that their mean is the centre."""
        worsenings = [self._parabola.worsening(multiple * centre) for multiple in _SPREAD]
        shares = boltzmann_shares(worsenings, 1.0)
        mean = sum(share * multiple for share, multiple in zip(shares, _SPREAD, strict=True))
        picked = pick_by_share(shares, draw)
        rate = _SPREAD[picked] / mean * centre
        self._promised = self._parabola.worsening(rate)
        return rate

    def bound(self, value: float, rng: random.Random) -> float | None:
        """Have the moves of the search measured, and after it those that promise harm."""
        return None if self.peak is None else super().bound(value, rng)

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Keep the move unless it breaks something."""
        self._value = value
        return super().decide(value, new_value, rng)

    def observe(self, setting: Setting, verdict: Verdict) -> None:
        """Learn what the rate did."""
        worsening = self._level.within_reason(verdict.worsening)
        size = self._level.size(self._value)
        rising = self.peak is None and not self._estimates
        if rising and abs(worsening) < _NEGLIGIBLE * size:  # later it may be the parabola's zero
            self._estimate = min(self._estimate * _LEAP, self._rates[-1])
            return
        self._parabola.learn(setting["lr"], worsening)
        if self.peak is None:
            self._follow(self._breaks(worsening, self._value))
        elif not verdict.worsening < self._level.highest:
            self.peak *= _CUT

    def _follow(self, broke: bool) -> None:
        """Move the estimate towards the bottom of the parabola."""
        best = self._parabola.best_rate
        if math.isnan(best):  # nothing gains: smaller steps if they do harm, else wait and see
            best = self._estimate / _FALL if broke else self._estimate
        highest = self._estimate * _RISE
        if best >= highest and highest < self._rates[-1]:  # still on its way up
            self._estimate = highest
            return
        self._estimate = self._within_h(min(max(best, self._estimate / _FALL), highest))
        self._estimates.append(self._estimate)

    def tick(self, clock: Clock) -> None:
        """Count, and end the search when it has had its share of the run."""
        if clock == "epoch":
            self._epoch += 1
            self._epoch_length = self._step - self._epoch_began
            self._epoch_began = self._step
            return
        self._step += 1
        if self.peak is None and self._has_searched():
            last = self._estimates[-max(_LEAST_ESTIMATES, len(self._estimates) // 2) :]
            estimate = statistics.geometric_mean(last or [self._estimate]) / self._caution
            self.peak = self._within_h(self._towards_prior(estimate))

    def _within_h(self, rate: float) -> float:
        return min(max(rate, self._rates[0]), self._rates[-1])

    def _towards_prior(self, estimate: float) -> float:
        """Weigh an estimate against what is known beforehand."""
        if self._prior is None:
            return estimate
        factor = math.exp(_WEIGHT_OF_PRIOR * math.log(self._prior / estimate))
        return estimate * min(max(factor, 1 / _MOST_BY_PRIOR), _MOST_BY_PRIOR)

    def _has_searched(self) -> bool:
        progress = self._progress()  # 0 also in the first of some epochs, whose steps are unknown
        if len(self._estimates) < _LEAST_ESTIMATES:
            return progress >= _LONGEST_SEARCH
        return self._step >= _LEAST_STEPS and (progress == 0 or progress >= _SHARE_OF_RUN)

    def _progress(self) -> float:
        """Return the share of the run that is over; 0 for ever where its length is unknown."""
        if self._steps is not None:
            return min(self._step / self._steps, 1.0)
        if self._epochs is None:
            return 0.0
        length = self._epoch_length
        within = min((self._step - self._epoch_began) / length, 1.0) if length else 0.0
        return min((self._epoch + within) / self._epochs, 1.0)

    def _left(self) -> float:
        """Return the share that is left of the decay; 1 before it begins."""
        return min((1 - self._progress()) / _DECAY, 1.0)

    def state_dict(self) -> dict[str, Any]:
        """Return the estimates, the counts and what was learned."""
        return {
            **super().state_dict(),
            "parabola": self._parabola.state_dict(),
            "estimate": self._estimate,
            "estimates": list(self._estimates),
            "counts": [self._step, self._epoch, self._epoch_began, self._epoch_length],
            "value": self._value,
            "peak": self.peak,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        super().load_state_dict(state)
        self._parabola.load_state_dict(state["parabola"])
        self._estimate, self._estimates = state["estimate"], list(state["estimates"])
        self._step, self._epoch, self._epoch_began, self._epoch_length = state["counts"]
        self._value, self.peak = state["value"], state["peak"]

    def __repr__(self) -> str:
        length = f"steps={self._steps}" if self._steps is not None else f"epochs={self._epochs}"
        return f"{type(self).__name__}({length})"


def _rounded(rate: float, draw: float, rates: tuple[float, ...]) -> float:
    """Return one of the two members of H around a rate, at random, so that its mean is the rate."""
    if rate <= rates[0]:
        return rates[0]
    if rate >= rates[-1]:
        return rates[-1]
    above = bisect.bisect_right(rates, rate)
    low, high = rates[above - 1], rates[above]
    return high if draw < (rate - low) / (high - low) else low
