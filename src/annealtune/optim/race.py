"""Races: arms that step side by side on the same minibatches, and what is made of the winner.

`Plan` holds the arguments of a SelfTuner, `Races` decides which arms start, what becomes of the
winner and when it is over, `Race` is one race under way and `Arms` are its copies of the run.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from annealtune.annealing import Neighborhood, Setting
from annealtune.annealing.arguments import count, positive
from annealtune.annealing.neighborhood import restored
from annealtune.annealing.race import (
    LEAST_WINDOW,
    Allowance,
    Outcome,
    RaceInfo,
    Standings,
    allowance,
    mean_of,
)
from annealtune.errors import NonFiniteLossError
from annealtune.optim.centre import ADAMS, CENTRE_OF_ADAMS, relative_centre
from annealtune.optim.context import Context, Part, StateError, Watch
from annealtune.optim.history import History
from annealtune.optim.hooks import same
from annealtune.optim.minibatch import Minibatch, Objective
from annealtune.optim.options import Choices, GroupRates, fitted, refuses
from annealtune.optim.parameters import (
    finite_marks,
    gathered,
    gradients_are_finite,
    gradients_of,
    numbers_of,
    parameters_of,
    read,
)
from annealtune.optim.run_state import (
    Pairs,
    RandomState,
    RunState,
    StateOutside,
    Surroundings,
    kept,
    unchanged,
)
from annealtune.optim.schedule import default_warm_up

# Rates of the arms are this factor apart: half a decade.
SPACING = 10.0**0.5
# The arms of a first race, in such steps from the centre: of Adam and its kin, and of other bases,
# which diverge more easily.
_ARMS_OF_ADAMS, _ARMS = (-1, 2), (-2, 1)
# Further races go on below the lowest rate, this many steps, and there are at most so many.
_BEYOND, _MOST_RACES = 2, 5
# Where every arm broke, the next race is held this many steps below.
_FAR_BELOW = 4
# After this many minibatches in a row on which no arm has a finite loss, all arms count as broken.
MOST_SPOILT = 3
# How far above their centre the arms of races may lie.
_ROOM = 16.0


class Plan:
    """The arguments of `SelfTuner` that its races depend on, checked before anything has changed.

    Attributes:
        neighborhood: H without what the base refuses; None where rates around a centre race.
        on_host: whether idle arms lie in host memory.
        warm_up: steps over which the rate rises after the race.

    Raises:
        TypeError, ValueError: if an argument breaks its rule.
    """

    def __init__(
        self,
        base: Optimizer,
        total_steps: int | None,
        around: float | None,
        neighborhood: Choices | None,
        objective: Objective | None,
        offload: bool,
        warmup: int | None,
    ) -> None:
        if total_steps is not None:
            total_steps = count("SelfTuner(total_steps=...)", total_steps, least=1)
        fitting = None if neighborhood is None else _raceable(base, neighborhood, total_steps)
        if around is not None:
            around = positive("SelfTuner(around=...)", around)
            if fitting is not None and "lr" in fitting.options:
                raise ValueError(
                    "SelfTuner(around=..., neighborhood=...) must be given one of the two where H "
                    f"sets lr, got around={around!r} too"
                )
            if any(refuses(base, group, {"lr": around * _ROOM}) for group in base.param_groups):
                raise ValueError(
                    "SelfTuner(around=...) must leave room for rates that are 16 times as large, "
                    f"which the base or the precision of its weights refuses, got {around!r}"
                )
        if objective is not None and not callable(objective):
            raise TypeError(
                "SelfTuner(objective=...) must be a function without arguments that returns a "
                f"number, got {objective!r}"
            )
        if not isinstance(offload, bool):
            raise ValueError(f"SelfTuner(offload=...) must be True or False, got {offload!r}")
        if warmup is None:
            warmup = default_warm_up(total_steps)
        self.total_steps = total_steps
        self.around = around
        self.neighborhood = fitting
        self.objective = objective
        self.on_host = offload
        self.warm_up = count("SelfTuner(warmup=...)", warmup, least=0)


def _raceable(base: Optimizer, neighborhood: Choices, total_steps: int | None) -> Neighborhood:
    """Return the H that was given, if there is a race that fits it."""
    fitting = fitted("SelfTuner", base, neighborhood)
    if len(fitting) < 2:
        raise ValueError(
            f"SelfTuner(neighborhood=...) must hold at least two settings that "
            f"{type(base).__name__} takes, for a race needs two arms, got {fitting!r}"
        )
    if not allowance(total_steps).fits(len(fitting)):
        raise ValueError(
            f"SelfTuner(total_steps={total_steps}, neighborhood=...): a race of {len(fitting)} "
            "settings must fit into the run, but would make more extra steps than it allows; take "
            "fewer settings or more steps"
        )
    return fitting


class Races(Part):
    """Finds the setting of a run by one race, or by a few where even the lowest rate does harm.

    Attributes:
        infos: the races that are over.
        centre: the rate in the middle of the first race; NaN until there is a gradient.
    """

    def __init__(self, context: Context, rates: GroupRates, history: History, plan: Plan) -> None:
        self.context = context
        self.rates = rates
        self.history = history
        self.plan = plan
        # The incumbent of an H that is given.
        self._own_arm = _present(context.base, rates.largest, tuple(plan.neighborhood or ()))
        self.centre = math.nan
        self.infos: list[RaceInfo] = []

    def first(self, step: int, before: Surroundings | None) -> Race | None:
        """Start the first race, from the buffers before this forward; None if there is no room."""
        ranks = self.context.ranks
        with kept(Surroundings.of(self.context)):  # hooks are called in trial steps too
            centre = self._find_centre()
        self.centre = ranks.first(centre, "centre", step)
        settings = self._first_arms()
        if not settings:
            return None
        ranks.refuse_differences("settings", *settings)
        with kept(Surroundings.of(self.context)):
            if before is not None:
                before.put_back()
            return Race(self, settings, step)

    def extra_steps(self, race: Race | None) -> int:
        """Return the steps that the arms of all races made besides one a minibatch."""
        if race is None:
            return sum(info.extra_steps for info in self.infos)
        return race.extra_steps + sum(info.extra_steps for info in self._before(race))

    def _before(self, race: Race) -> list[RaceInfo]:
        """Return the races before one; it may be among them if its end was interrupted."""
        return [info for info in self.infos if info.step < race.began]

    def judge(self, race: Race, step: int) -> Setting | Race:
        """Judge a race that is over: hold the winner's setting, or race on beyond it.

        The model is given the winner, or starts again where all arms did.
        """
        race.arms.unseal()  # the winner is brought into the model, the others go
        if race.all_broke:
            return self._after_all_broke(race, step)
        outcome = self._cautious(race, race.verdict(self._incumbent(race)))
        winner = race.settings[outcome.winner]
        self.context.ranks.refuse_differences("decisions", step, winner, outcome.reason)
        further = self._further(race, outcome.winner)
        # The winner's arm is exactly where the base would be with its setting, unless the run is to
        # warm up first.
        restarts = bool(further) or self.plan.warm_up > 0
        if not restarts:
            race.arms.switch_to(outcome.winner)
            restarts = not self.context.weights_are_finite()  # its last step may have broken it
        if restarts:
            race.arms.start_again()
        self._note(race, step, outcome, rate_of(winner), restarted=restarts)
        return self._started_beyond(further, step + 1) if further else winner

    def _after_all_broke(self, race: Race, step: int) -> Setting | Race:
        """Start again far below, or with the incumbent of an H.

        Raises:
            NonFiniteLossError: if there never was a finite loss.
        """
        if race.standings.minibatches == 0:
            raise broken_from_the_start(race.standings.spoilt)
        chosen = race.settings[self._incumbent(race)]
        if self.plan.neighborhood is None:
            chosen = Setting({"lr": min(map(rate_of, race.settings)) / SPACING**_FAR_BELOW})
        race.arms.start_again()
        self._note(race, step, None, rate_of(chosen), restarted=True)
        self.centre = rate_of(chosen)
        if self.plan.neighborhood is None and self._may_race_on(race, 3):
            return self._started_beyond(spaced(self.centre, -1, 1), step + 1)
        self.history.say(step, f"every arm of the race broke: the run starts again with {chosen}")
        return chosen

    def _find_centre(self) -> float:
        if self.plan.around is not None:
            return self.plan.around
        if self.plan.neighborhood is not None and "lr" in self.plan.neighborhood.options:
            return math.nan  # every arm has its own
        base = self.context.base
        return CENTRE_OF_ADAMS if isinstance(base, ADAMS) else relative_centre(base, self.rates)

    def _first_arms(self) -> tuple[Setting, ...]:
        """Return the settings of the first race: the H that was given, or rates around a centre."""
        if self.plan.neighborhood is not None:
            return tuple(Setting({"lr": self.centre, **s}) for s in self.plan.neighborhood)
        lowest, highest = _ARMS_OF_ADAMS if isinstance(self.context.base, ADAMS) else _ARMS
        for above in (highest, highest - 1):
            arms = spaced(self.centre, lowest, above)
            if self.allowance().fits(len(arms)):
                return arms
        return ()

    def allowance(self) -> Allowance:
        """Return what the next race may cost."""
        return allowance(self.plan.total_steps, self.extra_steps(None) if self.infos else None)

    def _may_race_on(self, race: Race, arms: int) -> bool:
        """Tell whether the run has room for one race more."""
        room = allowance(self.plan.total_steps, spent=self.extra_steps(race))
        return len(self._before(race)) + 1 < _MOST_RACES and room.fits(arms)

    def _started_beyond(self, settings: Sequence[Setting], step: int) -> Race:
        """Start a further race; until its first step the groups hold its first rate."""
        race = Race(self, settings, step)
        self.rates.apply(settings[0])
        return race

    def _incumbent(self, race: Race) -> int:
        """Return the arm with what the run would have without this race."""
        if self.plan.neighborhood is not None:
            return self._own_arm
        before = self._before(race)
        rate = before[-1].rate if before else self.centre
        distances = [abs(math.log(rate_of(setting) / rate)) for setting in race.settings]
        return distances.index(min(distances))

    def _cautious(self, race: Race, outcome: Outcome) -> Outcome:
        """Keep the incumbent where a smaller rate of Adam's has won that is not clearly better.

        A race is cold and the run is warmed up, so large rates do better in the run. And in noise
        any arm can win, but a rate that is too small learns nothing. An incumbent that does
        harm is not kept.
        """
        incumbent, standings = self._incumbent(race), race.standings
        rates = [rate_of(race.settings[arm]) for arm in (outcome.winner, incumbent)]
        is_free = self.plan.neighborhood is not None or self.plan.objective is not None
        if is_free or not isinstance(self.context.base, ADAMS) or rates[0] >= rates[1]:
            return outcome
        if incumbent not in standings.live or standings.trend(incumbent) > 0:
            return outcome
        if standings.difference(incumbent, outcome.winner).is_clear:
            return outcome
        return Outcome(incumbent, "the incumbent, as no smaller rate is clearly better")

    def _further(self, race: Race, arm: int) -> tuple[Setting, ...]:
        """Return the arms of a further race, where even the lowest rate of the first does harm.

        There is only one: from a minimum every rate raises the loss, and the races would go down to
        where nothing moves.
        """
        is_first = self.plan.neighborhood is None and not self._before(race)
        if not is_first or not self._may_race_on(race, _BEYOND + 1):
            return ()
        winner = rate_of(race.settings[arm])
        is_lowest = winner == min(map(rate_of, race.settings))
        return spaced(winner, -_BEYOND, 0) if is_lowest and race.standings.trend(arm) > 0 else ()

    def note_cut(self, rate: float) -> None:
        """Let the record of the last race tell the rate that the guard has left."""
        if self.infos:
            self.infos = [*self.infos[:-1], dataclasses.replace(self.infos[-1], rate=rate)]

    def _note(
        self, race: Race, step: int, outcome: Outcome | None, rate: float, *, restarted: bool
    ) -> None:
        before, standings = self._before(race), race.standings
        winner = None if outcome is None else outcome.winner
        info = RaceInfo(
            number=len(before) + 1,
            step=race.began,
            minibatches=step + 1 - race.began,
            settings=race.settings,
            scores=race.scores(),
            dropped=dict(standings.dropped),
            winner=winner,
            reason="all broke" if outcome is None else outcome.reason,
            rate=rate,
            extra_steps=race.extra_steps,
            restarted=restarted,
            second=None if winner is None else race.second(winner),
            losses=tuple(map(tuple, standings.losses)),
        )
        self.infos = [*before, info]

    def state_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        given = self.plan.neighborhood
        races = {
            "settings": None if given is None else list(map(dict, given)),
            "centre": self.centre,
            "infos": [info.to_dict() for info in self.infos],
        }
        return {"races": races}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken.

        Raises:
            StateError: if it is the state of another H.
        """
        state = state["races"]
        given = state["settings"]
        settings = None if given is None else [restored(options) for options in given]
        own = None if self.plan.neighborhood is None else list(self.plan.neighborhood)
        if settings != own:
            raise StateError(
                "SelfTuner.load_state_dict: the state must come from a run with the same "
                f"neighborhood, here {own}, got {settings}"
            )
        self.centre = state["centre"]
        self.infos = [RaceInfo.from_dict(info) for info in state["infos"]]


def broken_from_the_start(minibatches: int) -> NonFiniteLossError:
    """Describe a loss or a gradient that is not finite before any race."""
    return NonFiniteLossError(
        "SelfTuner.step: loss and gradient at the first weights must be finite, got "
        f"{minibatches} minibatches in a row where they are not; look at the data, the initial "
        "weights and the loss"
    )


def rate_of(setting: Setting) -> float:
    """Return the rate of a setting."""
    return float(setting["lr"])


def spaced(centre: float, lowest: int, highest: int) -> tuple[Setting, ...]:
    """Return the rates ``lowest`` to ``highest`` half decades from the centre."""
    return tuple(Setting({"lr": centre * SPACING**n}) for n in range(lowest, highest + 1))


def _present(base: Optimizer, rate: float, settings: Sequence[Setting]) -> int:
    """Return the number of the setting that the base has now; the first if it has none of them."""
    group = {**base.param_groups[0], "lr": rate}
    matches = (n for n, s in enumerate(settings) if all(group.get(o) == s[o] for o in s))
    return next(matches, 0)


class Race:
    """One race of arms that differ in their setting, each starting where the model is now.

    Args:
        races: those of the run that it belongs to.
        settings: one for each arm.
        began: number of the step at which it begins.
    """

    def __init__(self, races: Races, settings: Sequence[Setting], began: int) -> None:
        self._context = races.context
        self._rates = races.rates
        self._objective = races.plan.objective
        self._allowance = races.allowance()
        self._say = functools.partial(races.history.say, began)
        self.settings = tuple(settings)
        self.began = began
        self.extra_steps = 0
        self.standings = Standings(len(self.settings))
        self.arms = Arms(races.context, len(self.settings), on_host=races.plan.on_host)
        self._values: dict[int, float] = {}  # of the objective, once it was asked
        self._is_level = True  # whether all arms are still where they started
        self._first: list[float] = []  # the first loss, and the norms of its gradients
        # A minibatch that an error has stopped, with the losses of the arms that have made a step.
        self._owed: tuple[Minibatch, dict[int, float]] | None = None
        self._is_checked = False  # whether the base keeps its state where an arm can have its own
        self._torn: int | None = None  # the arm whose weights are being written

    def step(self, minibatch: Minibatch, before: Surroundings | None = None) -> None:
        """Let every live arm make its own step on one minibatch; drop those that clearly lose.

        Args:
            minibatch: with its gradient for the arm in the model in place.
            before: what surrounded that arm before the forward, if known.
        """
        if self.arms.share(before, self.settings[0]):
            self._say(_WRITTEN, once="written")
        first: int | None = self.arms.in_model
        if minibatch.was_touched:
            self._say(_TOUCHED, once="touched")
        if minibatch.carries:
            self._say(_CARRIED, once="carried")
        if self._owed is not None:  # the loop has caught an error in the middle of a minibatch
            first = None  # all of this one is computed again
            if before is not None:
                before.put_back()
            self._make_up(*self._owed)
        self._advance(minibatch, {}, first, before)

    def _advance(
        self,
        minibatch: Minibatch,
        losses: dict[int, float],
        first: int | None = None,
        before: Surroundings | None = None,
    ) -> None:
        """Let all arms step that have not, the one in the model first; judge all of them.

        Args:
            minibatch: as in `step`.
            losses: of the arms that have made their step.
            first: the arm whose gradient is in place.
            before: as in `step`.
        """
        end = after = RandomState.capture()
        self.arms.unseal()  # and so it stays where the step is interrupted
        parameters = parameters_of(self._context.base)
        others = minibatch.other_gradients()
        try:
            for arm in sorted(self.standings.live, key=self.arms.in_model.__ne__):
                if arm in losses:
                    continue
                if arm == first:
                    loss = minibatch.compared()
                else:
                    before = None  # until the arm is there
                    if arm != self.arms.in_model:
                        before = self.arms.switch_to(arm)
                    others.put_aside()
                    loss = minibatch.again()
                    end.put_back()
                value, *marks = read(loss, *finite_marks(parameters))
                if not all(map(math.isfinite, marks)) and not self._context.weights_are_finite():
                    value = math.nan  # a loss does not always show it
                if self._is_level:
                    self._compare(value, minibatch, is_first=arm == first)
                if self._context.ranks.count > 1:
                    value = self._context.ranks.mean(value, self.standings.minibatches, arm)
                if math.isfinite(value):
                    self._move(arm, is_scaled=minibatch.scale is not None)
                    if after is end:
                        after = RandomState.capture()  # some bases draw numbers of their own
                elif before is not None:
                    before.put_back()  # what it did to the statistics of BatchNorm, say
                losses[arm] = value
            after.put_back()
        except BaseException as error:
            end.put_back()
            torn = self._torn
            self._give_up_torn()
            if isinstance(error, Exception) and losses:
                # Where the torn arm was, another one may be now, with buffers of its own.
                if torn is None and before is not None and self.arms.in_model not in losses:
                    before.put_back()
                self._owed = minibatch, losses
            raise
        finally:
            self._is_level = False
            others.put_back()
        self._owed = None
        self.extra_steps += len(losses) - 1
        self.standings.add(losses)
        if self._objective is None:
            self.standings.drop_losers()
        if self.standings.dropped:
            self._forget_dropped()
        self.arms.switch_to(min(self.standings.live, key=self.standings.score))
        self.arms.seal()

    def _make_up(self, minibatch: Minibatch, losses: dict[int, float]) -> None:
        """Let the arms step that an error has kept from it; drop them if it comes again."""
        try:
            self._advance(minibatch, losses)
        except Exception as error:  # noqa: BLE001 - whatever the loop has caught before
            for arm in set(self.standings.live) - losses.keys():
                self.standings.drop(arm, f"failed twice: {type(error).__name__}")
            self._advance(minibatch, losses)

    @property
    def is_over(self) -> bool:
        """Whether it is time for the verdict."""
        live = len(self.standings.live)
        if self.all_broke:
            return True
        if live == 1:  # one that is left because the others broke may break too
            return self.standings.minibatches >= LEAST_WINDOW
        is_spent = self.extra_steps + live - 1 > self._allowance.extra_steps
        if is_spent and self._objective is None and not self.standings.trend(self.standings.leader):
            # On a plateau it is too early to judge.
            is_spent = self.extra_steps + live - 1 > self._allowance.patient
        return is_spent or self.standings.minibatches >= self._allowance.minibatches

    @property
    def all_broke(self) -> bool:
        """Whether no arm has a finite loss any more."""
        return self.standings.spoilt >= MOST_SPOILT

    @property
    def rate(self) -> float:
        """The rate of the arm that leads."""
        return rate_of(self.settings[self.standings.leader])

    def verdict(self, incumbent: int) -> Outcome:
        """Judge the live arms; return who has won."""
        if self._objective is None:
            return self.standings.verdict(incumbent)
        try:
            self._values = {arm: self._judged(arm) for arm in self.standings.live}
        finally:
            self.arms.seal()
        found = {arm: value for arm, value in self._values.items() if math.isfinite(value)}
        if len(found) != 1 and len(set(found.values())) <= 1:
            self._say(
                f"the objective is {min(found.values(), default=math.nan):.4g} for every arm and "
                "decides nothing: does it depend on the weights that this optimizer trains?"
            )
        if not found:
            winner = incumbent if incumbent in self.standings.live else self.standings.leader
            return Outcome(winner, "no objective was finite")
        for arm in self._values.keys() - found:
            self.standings.drop(arm, f"objective {self._values[arm]}")
        self._forget_dropped()
        return self.standings.verdict(incumbent, found)

    def scores(self) -> tuple[float, ...]:
        """Return what every arm is judged by, its losses or the objective; NaN if by nothing."""
        arms = range(len(self.settings))
        if self._objective is not None:
            return tuple(self._values.get(arm, math.nan) for arm in arms)
        scores = map(self.standings.score, arms)
        return tuple(score if math.isfinite(score) else math.nan for score in scores)

    def second(self, winner: int) -> int | None:
        """Return the best arm besides the winner: the dropped ones come after those that stayed."""
        live = self.standings.live
        ranks = [
            (arm not in live, score, arm)
            for arm, score in enumerate(self.scores())
            if arm != winner and not math.isnan(score)
        ]
        return min(ranks)[-1] if ranks else None

    def _compare(self, loss: float, minibatch: Minibatch, *, is_first: bool) -> None:
        """Warn if an arm, still at the same weights, has another loss or gradient than the first.

        On the CPU both must be equal, elsewhere up to 1 %: a device may sum in another order. The
        same holds for several processes and under a GradScaler.
        """
        gradients = gradients_of(self._context.base)
        found = [loss, *(float(gathered(gradient.norm())) for gradient in gradients)]
        if is_first:
            self._first = found
        if is_first or not self._first or not math.isfinite(self._first[0]):
            return
        places = {gradient.device.type for gradient in gradients}
        is_exact = places == {"cpu"} and minibatch.scale is None and self._context.ranks.count == 1
        tolerance = 0.0 if is_exact else 1e-2
        if not _are_close(self._first[:1], [loss], tolerance):
            self._say(_OTHER_LOSS.format(self._first[0], loss), once="other loss")
        elif not minibatch.was_touched and not _are_close(self._first, found, tolerance):
            self._say(_OTHER_GRADIENT, once="other gradient")

    def _move(self, arm: int, *, is_scaled: bool) -> None:
        """Make the step of one arm; as a GradScaler does, not along a gradient that overflowed."""
        base = self._context.base
        if is_scaled and not gradients_are_finite(base):
            return
        outside = None if self._is_checked else StateOutside(base)
        is_watched = outside or base._optimizer_step_pre_hooks or base._optimizer_step_post_hooks
        watch = Watch(self._context, is_first=outside is not None) if is_watched else None
        self._torn = arm
        self._rates.apply(self.settings[arm])
        base.step()
        self._torn = None
        if watch is not None:
            self.arms.add(watch.written())
        if outside is not None:
            self._is_checked = True
            outside.refuse_changes(self._context.owner)

    def _give_up_torn(self) -> None:
        """Drop the arm whose step was interrupted: its weights are half old, half new."""
        if self._torn is not None and len(self.standings.live) > 1:
            self.standings.drop(self._torn, "interrupted in the middle of a step")
            self._forget_dropped()
        self._torn = None

    def _forget_dropped(self) -> None:
        for arm in self.standings.dropped:
            self.arms.drop(arm, self.standings.live[0])

    @torch.no_grad()
    def _judged(self, arm: int) -> float:
        """Return the value of the objective for one arm; smaller is better."""
        self.arms.switch_to(arm)
        assert self._objective is not None
        context = self._context
        weights = [*parameters_of(context.base), *(context.written or ())]
        with unchanged(weights, list(context.model.modules())):
            numbers = numbers_of("SelfTuner(objective=...)", self._objective())
        return context.ranks.mean(mean_of(numbers), "objective", arm)

    def __getstate__(self) -> dict[str, Any]:
        self._refuse_owed()
        return self.__dict__

    def _refuse_owed(self) -> None:
        if self._owed is not None:
            raise RuntimeError(
                "SelfTuner: a race must not be saved or copied after an error that has stopped "
                "some of its arms in the middle of a minibatch, which would be lost; make the next "
                "step first"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the standings and the arms."""
        self._refuse_owed()
        return {
            "settings": [dict(setting) for setting in self.settings],
            "allowance": dataclasses.astuple(self._allowance),
            "began": self.began,
            "extra_steps": self.extra_steps,
            "standings": self.standings.state_dict(),
            "arms": self.arms.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken; it is a new race that nobody else has."""
        self._allowance = Allowance(*state["allowance"])
        self._is_level = False
        self.extra_steps = state["extra_steps"]
        self.standings.load_state_dict(state["standings"])
        self.arms.load_state_dict(state["arms"])


def _are_close(ones: Sequence[float], others: Sequence[float], tolerance: float) -> bool:
    """Compare numbers; NaN is NaN."""
    return len(ones) == len(others) and all(
        math.isclose(one, other, rel_tol=tolerance, abs_tol=1e-9 * tolerance) or one != one
        for one, other in zip(ones, others, strict=True)
    )


# Why arms are not alike.
_OTHER_LOSS = (
    "the first minibatch has a loss of {:.9g} for one arm and {:.9g} for another at the same "
    "weights: something goes into it that is neither a weight nor a buffer nor drawn from the "
    "default generators of torch, NumPy and Python. Give it to the recorded function as an "
    "argument, change inputs in a copy, and let other optimizers step after opt.step()"
)
_OTHER_GRADIENT = (
    "replaying the first minibatch at the same weights gave a different gradient: all that goes "
    "into it belongs in the function given to record, a GradScaler in record(fn, scaler=scaler), "
    "clipping in opt.before_step(fn); and call zero_grad() before its backward"
)
_TOUCHED = (
    "the loop writes into gradients between backward and step, which reaches one arm only: clip "
    "them in opt.before_step(fn), or say how to do the same to the other arms by "
    "opt.after_replay(fn)"
)
_CARRIED = (
    "the recorded function was given a tensor that it has returned before, such as a hidden state "
    "in truncated backpropagation through time; it is that of the leading arm, for all arms. Keep "
    "it in the model: self.hidden = hidden.detach() in the forward"
)
_WRITTEN = (
    "buffers or frozen weights were written between two steps, which reaches one arm only: write "
    "them in opt.after_step(fn), or within the recorded function"
)


class _Seal(NamedTuple):
    """What the last step has left."""

    weights: dict[Tensor, tuple[int, str]]
    options: list[dict[str, Any]]
    around: Surroundings | None
    buffers: list[float]
    frozen: list[tuple[Tensor, int]]


class Arms:
    """As many runs as there are arms, all starting where the model is now.

    The model holds one arm at a time, the others lie beside it, maybe in host memory: at most one
    copy of weights, optimizer state and buffers for each arm, the place to start again included.

    Attributes:
        in_model: the number of the one that the model holds.
    """

    def __init__(self, context: Context, count: int, *, on_host: bool) -> None:
        self._context = context
        self._on_host = on_host
        self.in_model = 0
        self._origin = self._copy()
        self._idle = {arm: self._copy() for arm in range(1, count)}
        self._sealed: _Seal | None = None

    def switch_to(self, arm: int) -> Surroundings | None:
        """Bring an arm into the model; return what surrounded it, if it was not there."""
        if arm == self.in_model:
            return None
        state = self._idle[arm]
        around = state.around
        idle = {**self._idle, self.in_model: state}
        del idle[arm]

        state.exchange(functools.partial(vars(self).update, _idle=idle, in_model=arm))
        return around

    def drop(self, arm: int, successor: int) -> None:
        """Forget an arm; if it is in the model, its successor takes its place."""
        if arm == self.in_model:
            self.switch_to(successor)
        self._idle.pop(arm, None)

    def start_again(self) -> None:
        """Give the model the state that all arms started from."""
        self._origin.put()

    def include(self, group: dict[str, Any]) -> None:
        """Take in a group that was added to the base."""
        for state in (self._origin, *self._idle.values()):
            state.include(group)
        self.unseal()

    def seal(self) -> None:
        """Note weights, options and surroundings as ours."""
        options = list(map(dict, self._context.base.param_groups))
        around, buffers = None, []
        if not self._origin.around.is_empty:
            around = Surroundings(self._context.model.modules(), copied=False)
            buffers = around.marks()
        self._sealed = _Seal(self._marks(), options, around, buffers, self._frozen())

    def seal_weights(self) -> None:
        """Note weights as ours that were shown and put back."""
        if self._sealed is not None:
            self._sealed = self._sealed._replace(weights=self._marks(), frozen=self._frozen())
            if self._sealed.around is not None:
                around = Surroundings(self._context.model.modules(), copied=False)
                self._sealed = self._sealed._replace(around=around)

    def _frozen(self) -> list[tuple[Tensor, int]]:
        """Return the weights that nobody trains or is known to write, and how often that was."""
        known = set(self._context.written or ())
        parameters = self._context.model.parameters()
        return [(p, p._version) for p in parameters if not p.requires_grad and p not in known]

    def unseal(self) -> None:
        """Let the weights be written until they are sealed again."""
        self._sealed = None

    def refuse_others(self) -> None:
        """Refuse whoever else has written into the weights since, also through ``.data``."""
        if self._sealed is None:
            return
        before, now = self._sealed.weights, self._marks()
        if before != now and any(now.get(p, mark) != mark for p, mark in before.items()):
            raise RuntimeError(
                "SelfTuner: weights must not be written by somebody else while a race is on, for "
                f"only one of {len(self._idle) + 1} arms would have them. Clamp, project or mask "
                "them in opt.after_step(fn), which is called for every arm; load weights before "
                "the first step, or after the race: opt.is_racing tells"
            )

    def share(self, present: Surroundings | None, setting: Setting) -> bool:
        """Give all arms what the loop has set since: options of groups, tensors of modules.

        Args:
            present: what surrounds the weights, before the forward.
            setting: whose options are tuned.

        Returns:
            Whether it has written into buffers or frozen weights, which reaches one arm only.

        Raises:
            ValueError: if such an option was set.
        """
        if present is not None and self._context.written:  # some maybe in this forward at last
            copies = present.copies()
            self.add([(p, copies[id(p)]) for p in self._context.written if id(p) in copies])
        if self._sealed is None:
            return False
        options, around = self._sealed.options, self._sealed.around
        states = [self._origin, *self._idle.values()]
        for number, group in enumerate(self._context.base.param_groups[: len(options)]):
            for option, value in group.items():
                left = options[number].get(option)
                if value is left or option in ("params", "lr") or same(value, left):
                    continue
                if option in setting:
                    raise ValueError(
                        f"SelfTuner: {option} is tuned and must not be written by anything else, "
                        f"got {value!r}; leave it out of the neighborhood, or out of the loop"
                    )
                for state in states:
                    state.set_option(number, option, value)
        known = set(self._context.written or ())
        for p, version in self._sealed.frozen:
            if p._version != version and p not in known:
                return True
        if around is None or present is None:
            return False
        found = around.replaced(present)
        for state in states if found else ():
            state.around.replace(found, present)
        return not found and present.marks() != self._sealed.buffers

    def add(self, pairs: Pairs) -> None:
        """Give all arms parameters that a forward or a hook writes, with what they were."""
        for state in (self._origin, *self._idle.values()):
            state.around.add(pairs)

    def _marks(self) -> dict[Tensor, tuple[int, str]]:
        """Return how often each weight was written, and a number that changes with its values."""
        weights, values = [], []
        for p in parameters_of(self._context.base):
            if p.requires_grad:
                weights.append(p)
                values.append(getattr(p, "_local_tensor", p).detach())
        norms = read(*torch._foreach_norm(values)) if values else []
        marks = {}
        for p, norm in zip(weights, norms, strict=True):
            marks[p] = p._version, str(norm)  # NaN is NaN
        return marks

    def _copy(self) -> RunState:
        return RunState(self._context, on_host=self._on_host)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sealed": None}  # the weights of a copy lie somewhere else

    def state_dict(self) -> dict[str, Any]:
        """Return the arms that are not in the model, and the place to start again from."""
        return {
            "in_model": self.in_model,
            "origin": self._origin.state_dict(),
            "idle": {arm: state.state_dict() for arm, state in self._idle.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken; the model's own state is loaded apart.

        Raises:
            StateError: if it is the state of another model.
        """
        self.in_model = state["in_model"]
        self._origin.load_state_dict(state["origin"])
        self._idle = {}
        for arm, saved in state["idle"].items():
            self._idle[arm] = self._copy()
            self._idle[arm].load_state_dict(saved)
        self._sealed = None
