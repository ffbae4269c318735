"""The races of a run: which arms start, what is made of the winner, when it is over."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from annealtune.annealing import Setting
from annealtune.annealing.neighborhood import restored
from annealtune.annealing.race import Allowance, Outcome, RaceInfo, allowance
from annealtune.errors import NonFiniteLossError
from annealtune.optim.evaluation.guards import Buffers, rewound
from annealtune.optim.evaluation.minibatch import Minibatch
from annealtune.optim.history import History
from annealtune.optim.options.group_rates import GroupRates
from annealtune.optim.options.race_plan import RacePlan
from annealtune.optim.parameters import (
    gradients_are_finite,
    has_gradient,
    modules_of,
    weights_are_finite,
)
from annealtune.optim.part import Part
from annealtune.optim.ranks import Ranks
from annealtune.optim.trial.arm_rates import SPACING, present, rate_of, spaced
from annealtune.optim.trial.centre import highest_rate, known_centre, relative_centre
from annealtune.optim.trial.lanes import Lanes
from annealtune.optim.trial.race import MOST_SPOILT, Race
from annealtune.optim.trial.run_state import check_state

# Rates of the arms, in steps of half a decade: so many below the centre, so many above.
_BELOW, _ABOVE = 1, 2
# Further races go on from the edge that has won, this many steps beyond it, at most so often.
_BEYOND, _MOST_RACES = 2, 5
# Where every arm broke, the next race is held this far below.
_FAR_BELOW = SPACING**4
# Steps without any gradient after which a word is due.
_LONG_WAIT = 100


class Races(Part):
    """Finds the setting of a run by one race, or by a few where the winner is at an edge.

    Attributes:
        infos: the races that are over.
        race: the one that is on.
    """

    def __init__(
        self,
        base: Optimizer,
        model: nn.Module | None,
        rates: GroupRates,
        history: History,
        plan: RacePlan,
        ranks: Ranks,
        lanes: Lanes,
    ) -> None:
        self._base = base
        self._model = model
        self._rates = rates
        self._history = history
        self._plan = plan
        self._ranks = ranks
        self._lanes = lanes
        # The incumbent of an H that is given.
        self._own_arm = present(base, plan.neighborhood or ())
        self._centre = math.nan  # until there is a gradient
        self._waited = 0
        self._spoilt = 0  # minibatches in a row whose gradient was not finite
        self.infos: list[RaceInfo] = []
        self.race: Race | None = None
        self._chosen: Setting | None = None  # by the last race, or without one

    def begin(self, step: int, before: Buffers | None) -> Setting | None:
        """Start the first race as soon as there is a gradient, from the buffers before its forward.

        In a run that is too short for a race the centre is returned, to be held.
        """
        if self._chosen is not None:
            return self._chosen  # the step that ended the last race was interrupted
        if not self._has_gradient(step, before):
            return None
        self._lanes.begin()
        self._centre = self._ranks.first(self._find_centre(), "centre", step)
        settings = self._first_arms()
        if not settings:
            return self._hold_centre(step)
        self._ranks.refuse_differences("settings", *settings)
        with rewound(before, modules_of(self._model)):
            self.race = self._started(settings, step)
        return None

    def step(
        self, minibatch: Minibatch, step: int, before: Buffers | None = None
    ) -> Setting | None:
        """Race on one minibatch; return what to train with from here on, once that is known."""
        race = self.race
        assert race is not None
        race.step(minibatch, before)  # every arm steps; those that clearly lose are dropped
        if not race.is_over:
            return None
        race.arms.unseal()  # the winner is brought into the model, the others go
        return self._after_all_broke(race, step) if race.all_broke else self._finish(race, step)

    @property
    def are_over(self) -> bool:
        """Whether a setting was chosen."""
        return self._chosen is not None

    @property
    def rate(self) -> float:
        """The rate of the arm that leads; 0 before the first race."""
        return 0.0 if self.race is None else rate_of(self.race.settings[self.race.standings.leader])

    @property
    def extra_steps(self) -> int:
        """Steps that the arms of all races made besides one a minibatch."""
        if self.race is None:
            return sum(info.extra_steps for info in self.infos)
        return self.race.extra_steps + sum(info.extra_steps for info in self._before(self.race))

    def _before(self, race: Race) -> list[RaceInfo]:
        """Return the races before one; it may be among them if its end was interrupted."""
        return [info for info in self.infos if info.step < race.began]

    def _finish(self, race: Race, step: int) -> Setting | None:
        """Judge the race; go on from the winner, start again at its rate, or race on beyond it."""
        outcome = self._cautious(race, race.verdict(self._incumbent(race)))
        winner = race.settings[outcome.winner]
        self._ranks.refuse_differences("decisions", step, winner, outcome.reason)
        further = self._further(race, outcome.winner)
        chosen = winner if further else self._settled(winner)
        # An arm that has had this rate all along is exactly where the base would be with it, unless
        # the run is to warm up first.
        warms = self._plan.warm_up > 0
        arm = None if further or warms else _live_arm(race, chosen)
        if arm is not None:
            race.bring(arm)
            if not weights_are_finite(self._base):
                arm = None  # its last step broke it
        if arm is None:
            race.arms.start_again()
        number = len(self._before(race)) + 1
        info = race.info(step, *outcome, rate_of(chosen), restarted=arm is None, number=number)
        self._note(info, race, step)
        self._chosen = None if further else chosen
        self.race = self._begun_beyond(further, step + 1) if further else None
        return self._chosen

    def _after_all_broke(self, race: Race, step: int) -> Setting | None:
        """Start again far below, or with the incumbent of an H.

        Raises:
            NonFiniteLossError: if there never was a finite loss.
        """
        if race.standings.minibatches == 0:
            raise _broken_from_the_start(race.standings.spoilt)
        chosen = race.settings[self._incumbent(race)]
        if self._plan.neighborhood is None:
            chosen = Setting({"lr": min(map(rate_of, race.settings)) / _FAR_BELOW})
        race.arms.start_again()
        number = len(self._before(race)) + 1
        info = race.info(step, None, "all broke", rate_of(chosen), restarted=True, number=number)
        self._note(info, race, step)
        self._centre = rate_of(chosen)
        if self._plan.neighborhood is None and self._may_race_on(race, 3):
            self.race = self._begun_beyond(spaced(self._centre, -1, 1), step + 1)
            return None
        self._chosen, self.race = chosen, None
        self._history.say(step, f"every arm of the race broke: the run starts again with {chosen}")
        return chosen

    def _hold_centre(self, step: int) -> Setting:
        self._history.say(
            step,
            f"{self._plan.total_steps} steps are too few for a race: the rate {self._centre:.3g} "
            "is held; give around=... if you know a better one",
        )
        self._chosen = Setting({"lr": self._centre})
        return self._chosen

    def _has_gradient(self, step: int, before: Buffers | None) -> bool:
        if has_gradient(self._base):
            return self._is_finite(before)
        self._waited += 1
        if self._waited == _LONG_WAIT:
            self._history.say(
                step, f"no gradient in the first {_LONG_WAIT} steps: nothing is trained yet"
            )
        return False

    def _is_finite(self, before: Buffers | None) -> bool:
        """Pass over a minibatch whose gradient is broken: no centre can be found by it.

        Raises:
            NonFiniteLossError: if there are several in a row.
        """
        self._spoilt = 0 if gradients_are_finite(self._base) else self._spoilt + 1
        if self._spoilt and before is not None:
            before.put_back()
        if self._spoilt >= MOST_SPOILT:
            raise _broken_from_the_start(self._spoilt)
        return self._spoilt == 0

    def _find_centre(self) -> float:
        if self._plan.around is not None:
            return self._plan.around
        if self._plan.neighborhood is not None and "lr" in self._plan.neighborhood.options:
            return math.nan  # every arm has its own
        known = known_centre(self._base)
        return relative_centre(self._base, self._rates) if known is None else known

    def _first_arms(self) -> tuple[Setting, ...]:
        """Return the settings of the first race: the H that was given, or rates around a centre."""
        if self._plan.neighborhood is not None:
            return tuple(Setting({"lr": self._centre, **s}) for s in self._plan.neighborhood)
        for above in range(_ABOVE, 0, -1):
            if self._allowance().fits(_BELOW + 1 + above):
                return spaced(self._centre, -_BELOW, above)
        return ()

    def _allowance(self) -> Allowance:
        return allowance(self._plan.total_steps, is_further=bool(self.infos))

    def _may_race_on(self, race: Race, arms: int) -> bool:
        """Tell whether the run has room for one race more."""
        room = allowance(self._plan.total_steps, is_further=True)
        return len(self._before(race)) + 1 < _MOST_RACES and room.fits(arms)

    def _begun_beyond(self, settings: Sequence[Setting], step: int) -> Race:
        """Start a further race; until its first step the groups tell a rate of ours."""
        race = self._started(settings, step)
        self._rates.apply(settings[0])
        return race

    def _started(self, settings: Sequence[Setting], step: int) -> Race:
        return Race(
            self._base,
            self._model,
            settings,
            self._rates.apply,
            self._allowance(),
            began=step,
            say=functools.partial(self._history.say, step),
            ranks=self._ranks,
            lanes=self._lanes,
            sign=self._plan.sign,
            objective=self._plan.objective,
            on_host=self._plan.on_host,
        )

    def _incumbent(self, race: Race) -> int:
        """Return the arm with what the run would have without this race."""
        if self._plan.neighborhood is not None:
            return self._own_arm
        before = self._before(race)
        rate = before[-1].rate if before else self._centre
        distances = [abs(math.log(rate_of(setting) / rate)) for setting in race.settings]
        return distances.index(min(distances))

    def _cautious(self, race: Race, outcome: Outcome) -> Outcome:
        """Keep the incumbent where a smaller rate has won that is not clearly better.

        In noise any arm can win, and a rate that is too small learns nothing.
        """
        incumbent, by_losses = self._incumbent(race), self._plan.objective is None
        rates = [rate_of(race.settings[arm]) for arm in (outcome.winner, incumbent)]
        if self._plan.neighborhood is not None or not by_losses or rates[0] >= rates[1]:
            return outcome
        standings = race.standings
        if incumbent not in standings.live:
            return outcome
        if standings.difference(incumbent, outcome.winner).is_clear:
            return outcome
        return Outcome(incumbent, "the incumbent, as no smaller rate is clearly better")

    def _further(self, race: Race, arm: int) -> tuple[Setting, ...]:
        """Return the arms of a further race if nothing beyond the winner was tried yet.

        Below the lowest rate it goes on only if even that does harm, above the highest only if the
        centre may be far off, because it comes from the first gradient.
        """
        tried = [*race.settings, *(s for info in self._before(race) for s in info.settings)]
        rates, winner = list(map(rate_of, tried)), rate_of(race.settings[arm])
        if self._plan.neighborhood is not None or not self._may_race_on(race, _BEYOND + 1):
            return ()
        if winner == min(rates) and race.standings.does_harm(arm):
            return spaced(winner, -_BEYOND, 0)
        if winner == max(rates) and self._is_relative:
            arms = spaced(winner, 0, _BEYOND)
            return arms if rate_of(arms[-1]) <= highest_rate(self._base) else ()
        return ()

    def _settled(self, winner: Setting) -> Setting:
        """Return what is made of the winner: half a decade less where the centre is not known.

        Such a base diverges at a rate that is a little too large, and often after the race.
        """
        if self._plan.neighborhood is not None or known_centre(self._base) is not None:
            return winner
        return Setting({"lr": rate_of(winner) / SPACING})

    @property
    def _is_relative(self) -> bool:
        """Whether the centre comes from the first gradient alone, and may be far off."""
        return self._plan.around is None and known_centre(self._base) is None

    def note_cut(self, share: float) -> None:
        """Let the record of the last race tell the rate that the guard has left."""
        if self.infos and self._chosen is not None:
            last = dataclasses.replace(self.infos[-1], rate=rate_of(self._chosen) * share)
            self.infos = [*self.infos[:-1], last]

    def _note(self, info: RaceInfo, race: Race, step: int) -> None:
        self.infos = [*self._before(race), info]
        self._history.note(step, str(info))

    def state_dict(self) -> dict[str, Any]:
        """Return everything as plain data and tensors."""
        races = {
            "settings": None
            if self._plan.neighborhood is None
            else list(map(dict, self._plan.neighborhood)),
            "centre": self._centre,
            "waited": self._waited,
            "spoilt": self._spoilt,
            "infos": [info.to_dict() for info in self.infos],
            "race": None if self.race is None else self.race.state_dict(),
            "chosen": None if self._chosen is None else dict(self._chosen),
        }
        return {"races": races}

    def check(self, state: Mapping[str, Any]) -> None:
        """Refuse a state of another H, and a race of another model."""
        state = state["races"]
        given = state["settings"]
        settings = None if given is None else [restored(options) for options in given]
        own = None if self._plan.neighborhood is None else list(self._plan.neighborhood)
        if settings != own:
            raise ValueError(
                "SelfTuner.load_state_dict: the state must come from a run with the same "
                f"neighborhood, here {own}, got {settings}"
            )
        if state["race"] is not None:
            arms = state["race"]["arms"]
            for arm in (arms["origin"], *arms["idle"].values()):
                check_state(self._base, self._model, arm)
            self._lanes.check(tuple(state["race"]["lane"]))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        state = state["races"]
        self._centre, self._waited = state["centre"], state["waited"]
        self._spoilt = state["spoilt"]
        self.infos = [RaceInfo.from_dict(info) for info in state["infos"]]
        chosen = state["chosen"]
        self._chosen = None if chosen is None else restored(chosen)
        self.race = None
        if state["race"] is not None:
            settings = [restored(options) for options in state["race"]["settings"]]
            self.race = self._started(settings, state["race"]["began"])
            self.race.load_state_dict(state["race"])


def _broken_from_the_start(minibatches: int) -> NonFiniteLossError:
    return NonFiniteLossError(
        "SelfTuner.step: loss and gradient at the first weights must be finite, got "
        f"{minibatches} minibatches in a row where they are not; look at the data, the initial "
        "weights and the loss"
    )


def _live_arm(race: Race, setting: Setting) -> int | None:
    """Return the arm that has trained with a setting all along, if it is still there."""
    return next((arm for arm in race.standings.live if race.settings[arm] == setting), None)
