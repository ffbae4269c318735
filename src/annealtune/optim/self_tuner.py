"""The optimizer that finds its learning rate by races: Algorithm 3 (docs/method.md).

Read `SelfTuner.step` first. One call is one minibatch, and a run goes through three phases: it is
`Waiting` for its first gradient; `Racing`, where every live arm, a copy of the run with its own
setting, makes its own step; then `Holding` what has won, where a step is one of the base and
nothing else. The step of each phase returns the one that follows. The marks ``(l. n)`` at the right
are the lines of Algorithm 3.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from annealtune.annealing import Setting
from annealtune.annealing.neighborhood import restored
from annealtune.annealing.race import RaceInfo, rate_text
from annealtune.optim.average import WeightAverage
from annealtune.optim.context import Context, Part
from annealtune.optim.guard import LossGuard
from annealtune.optim.history import History
from annealtune.optim.hooks import Hook
from annealtune.optim.minibatch import Intake, Minibatch, Objective
from annealtune.optim.options import Choices, GroupRates, check_base, refuse_maximizing
from annealtune.optim.parameters import gradients_are_finite, has_gradient
from annealtune.optim.race import (
    MOST_SPOILT,
    Arms,
    Plan,
    Race,
    Races,
    broken_from_the_start,
    rate_of,
)
from annealtune.optim.schedule import share_left, share_of_rate
from annealtune.optim.wrapper import OptimizerWrapper

# Steps without any gradient after which it warns.
_LONG_WAIT = 100


class SelfTuner(OptimizerWrapper):
    r"""Find the learning rate of any optimizer inside the run, by races.

    At the first step copies of the run ("arms") start side by side with rates half a decade apart.
    They make their steps on the same minibatches; an arm that clearly loses is dropped, and the one
    with the lowest loss wins. The run starts again with its rate, and from then on every step is
    one of the base, bit for bit. The rate is warmed up and held; with a known length it decays to
    zero over the last quarter. An average of the weights is kept, for `averaged`. Where `validate`
    looks at a validation set, the output is the best weights, averaged or last: `best`,
    `load_best`.

    Args:
        base: the optimizer whose rate is wanted; any whose ``step`` needs no closure. Its own rate
            decides the ratios between its groups, also ``lr_scale``, and the incumbent of an H.
        model: the module that is trained. Its buffers (the statistics of BatchNorm) belong to each
            arm.
        total_steps: planned number of calls of `step`, those of a race included.
        around: the rate in the middle of the first race. By default 3e-3 for Adam and its kin,
            else the rate whose thirtieth step along the first gradient changes the weights by 2 %
            of their size.
        neighborhood: settings to race instead, of any options of the base: an H such as
            ``grid(momentum=[0.0, 0.9], lr=[0.01, 0.1])`` or ``{"betas": [(0.9, 0.999), ...]}``.
        objective: what the arms are judged by at the end of a race, instead of their losses: a
            function without arguments that returns a number to be minimized, or several whose mean
            is. It may be anything that can be computed from the weights. For losses that do not
            measure progress.
        warmup: steps over which the rate rises linearly after the race, which is held without one.
            By default 5 % of the run, 50 steps if its length is not known; 0 switches it off.
        guard: whether a run whose loss or weights are no longer finite is put back to its averaged
            weights, with a quarter of the rate, at most twice; after many sound steps the data is
            blamed and the rate stays. If not, that is an error. A loss that rises but stays finite
            is left alone: it may rise for a good reason (a changed task, growing returns).
        average: whether an average of the weights is kept for `averaged`.
        offload: whether arms that are not in the model wait in host memory.
        process_group: of the processes that train this model together, by default all of
            torch.distributed: they compare the means of their losses and decide alike.

    Raises:
        TypeError: if the base is no optimizer or needs a closure, or no model is given.
        ValueError: if an argument breaks its rule.
        RanksError: in a step, if processes differ in weights, seeds or decisions.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> x = torch.randn(64, 2)
        >>> y = x.sum(1, keepdim=True)
        >>> opt = SelfTuner(torch.optim.AdamW(model.parameters()), model, total_steps=300)
        >>> compute_loss = opt.record(lambda x, y: nn.functional.mse_loss(model(x), y))
        >>> for _ in range(300):
        ...     _ = compute_loss(x, y).backward()
        ...     _ = opt.step()
        ...     opt.zero_grad()
        >>> len(opt.races) > 0
        True

    Reference:
        docs/method.md, Algorithm 3. The idea of keeping or undoing moves: Fischetti and Stringher
        (2019), Algorithm 2; of dropping losers early: successive halving.
    """

    _family = "SelfTuner"

    def __init__(
        self,
        base: Optimizer,
        model: nn.Module | None = None,
        *,
        total_steps: int | None = None,
        around: float | None = None,
        neighborhood: Choices | None = None,
        objective: Objective | None = None,
        warmup: int | None = None,
        guard: bool = True,
        average: bool = True,
        offload: bool = False,
        process_group: ProcessGroup | None = None,
    ) -> None:
        check_base("SelfTuner", base)
        context = Context("SelfTuner", base, model, process_group)
        plan = Plan(base, total_steps, around, neighborhood, objective, offload, warmup)
        self.total_steps, self.neighborhood = plan.total_steps, plan.neighborhood
        self.averages = average
        self._run = Run(context, plan, average=average, is_guarded=guard)
        super().__init__(context, self._run.intake, *self._run.parts())

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one step on one minibatch, with every arm where a race is on; return its loss.

        Either ``step()`` after the backward of a function that `record` has wrapped; or
        ``step(closure)``, where the closure returns the loss and may call ``zero_grad`` and
        ``backward`` itself. Outside races nothing is computed again, and a gradient that is in
        place is enough.

        Args:
            closure: computes the loss.

        Raises:
            NonFiniteLossError: if the loss is not finite and nothing is left to be tried.
            RuntimeError: if somebody has written into the weights during a race.
            TypeError, ValueError: if nothing tells how to compute the loss again in a race, or
                somebody else writes the rate.
        """
        if closure is None and self._is_asked_to_initialise():
            return self.base.step()
        self._refuse_pending("step")
        run = self._run
        if run.steps == 0:
            _refuse_schedulers(self, self.base)
        run.check_undisturbed()
        minibatch = run.intake.take(closure)
        try:
            run.intake.paused = True
            losses = minibatch.first()  # L(w) and its gradient
            run.go_on(run.phase.step(run, minibatch, losses))
        finally:
            run.intake.paused = False
        run.steps += 1
        run.rates.claim()
        while run.history.unsaid:
            # Past torch's two wrappers of step, to the line of the loop.
            warnings.warn(run.history.unsaid.pop(0), stacklevel=4)
        return minibatch.returned

    def before_step(self, function: Callable[[], Any]) -> Any:
        """Have a function called between backward and step, for every arm: clip gradients there.

        A loop that clips by itself does so for one arm only. What the function remembers from one
        call to the next (a moving average of gradients) belongs to the arm, as far as it is in
        attributes of its object or in variables; in checkpoints it is not.

        Returns:
            A handle whose ``remove()`` ends it.
        """
        return self.base.register_step_pre_hook(Hook(function))

    def after_replay(self, function: Callable[[], Any]) -> Any:
        """Have a function called after every ``backward`` that a race makes by itself.

        For a loop, or a framework, that goes on clipping its own gradients between ``backward`` and
        ``step``: here it says how to do the same to those of the other arms.

        Returns:
            A handle whose ``remove()`` ends it.
        """
        return self._intake.register_after_replay(function)

    @property
    def lr(self) -> float:
        """The learning rate of the next step, before each group's multiple of it.

        In a race, that of the arm which leads; 0 before the first gradient.
        """
        return self._run.phase.rate(self._run)

    @property
    def steps(self) -> int:
        """Calls of `step` so far."""
        return self._run.steps

    @property
    def races(self) -> tuple[RaceInfo, ...]:
        """The races that are over: their arms and scores, who won and why."""
        return tuple(self._run.races.infos)

    @property
    def history(self) -> History:
        """Rates and losses over time, and the events between them."""
        return self._run.history

    @property
    def extra_steps(self) -> int:
        """How many steps the arms of all races made besides one a call."""
        return self._run.races.extra_steps(self._race)

    @property
    def is_racing(self) -> bool:
        """Whether a race is on, or still to come."""
        return not isinstance(self._run.phase, Holding)

    @property
    def _race(self) -> Race | None:
        phase = self._run.phase
        return phase.race if isinstance(phase, Racing) else None

    @property
    def _arms(self) -> Arms | None:
        return None if self._race is None else self._race.arms

    @property
    def _average(self) -> WeightAverage | None:  # type: ignore[override]
        return self._run.guard.average if self.averages else None

    def metrics(self) -> dict[str, float]:
        """Return the numbers to log after a step, by name: the rate, the races, what they cost."""
        return {
            "rate": self.lr,
            "races": float(len(self.races)),
            "extra_steps": float(self.extra_steps),
        }

    def summary(self) -> str:
        """Return what the run did so far: every race with its arms, events, the rate."""
        planned = "" if self.total_steps is None else f" of {self.total_steps}"
        rate, extra = rate_text(self.lr), self.extra_steps
        state = f"step {self.steps}{planned}, rate {rate}, {extra} extra steps"
        told = (f"step {e.step}: {e.text}" for e in self.history.events)
        return "\n".join([state, *(info.table() for info in self.races), *told])

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Draw loss and rate over the steps so far, and the last race with its arms, into a file.

        Args:
            path: its ending decides the format: ``.png``, ``.svg``, ``.pdf``, as matplotlib has it.

        Raises:
            ImportError: if matplotlib is not installed: ``pip install 'annealtune[plot]'``.
            ValueError: if matplotlib does not know the ending.
        """
        from annealtune.optim.plot import plot_run

        return plot_run(path, self.history, self.races)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base, at its ratio to the others; every arm has it as it is now."""
        refuse_maximizing("SelfTuner", self.base, param_group)
        super().add_param_group(param_group)
        self._run.rates.multiples()
        if self._arms is not None:
            self._arms.include(self.base.param_groups[-1])
        if isinstance(self._run.phase, Holding):
            self._run.phase.write(self._run)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load everything, or nothing; a race that was on goes on.

        Raises:
            ValueError: if it does not fit the groups or a part.
        """
        super().load_state_dict(state_dict)
        self._intake.set_replays(self.is_racing)

    def __repr__(self) -> str:
        length = "any length" if self.total_steps is None else f"{self.total_steps} steps"
        now = "racing" if self.is_racing else f"rate {self.lr:.3g}"
        return f"SelfTuner({type(self.base).__name__}, {length}, step {self.steps}, {now})"


def _refuse_schedulers(*optimizers: Optimizer) -> None:
    """Refuse a scheduler that holds one of them: ReduceLROnPlateau leaves no mark in the groups.

    Raises:
        ValueError: if there is one.
    """
    holders = gc.get_referrers(*optimizers)
    owners = gc.get_referrers(*(holder for holder in holders if type(holder) is dict))
    found = [type(o).__name__ for o in (*holders, *owners) if issubclass(type(o), LRScheduler)]
    if found:
        raise ValueError(
            "SelfTuner: the learning rate is tuned and must not be written by anything else, got a "
            f"{found[0]}. Take the scheduler away; the rate falls by itself if total_steps=... is "
            "given"
        )


class Run(Part):
    """What the phases of a run share, the phase that it is in, and how many steps were made."""

    def __init__(self, context: Context, plan: Plan, *, average: bool, is_guarded: bool) -> None:
        self.context = context
        self.plan = plan
        self.intake = Intake(context, notes=True)
        self.history = History(context.ranks)
        self.rates = GroupRates("SelfTuner", context.base)
        self.races = Races(context, self.rates, self.history, plan)
        self.guard = LossGuard(context, self.history, average=average, is_on=is_guarded)
        self.steps = 0
        self.phase: Phase = Waiting()

    def parts(self) -> tuple[Part, ...]:
        """Return everything that has a state of its own."""
        return self.rates, self.races, self.guard, self.guard.average, self.history, self

    def go_on(self, phase: Phase) -> None:
        """Be in a phase from here on."""
        if phase is not self.phase:
            self.phase = phase
            if isinstance(phase, Holding):
                phase.enter(self)

    def check_undisturbed(self) -> None:
        """Refuse whoever else writes the rate, or the weights during a race; warn past the end."""
        self.rates.refuse_others()
        if isinstance(self.phase, Racing):
            self.phase.race.arms.refuse_others()
        if self.steps == self.plan.total_steps:
            self.history.say(
                self.steps,
                f"step() was called more than total_steps={self.plan.total_steps} times: the rate "
                "stays where the plan ended; give the true total_steps=..., or none",
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the number of steps, and the phase."""
        return {"run": {"steps": self.steps, "phase": self.phase.state_dict()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self.steps, saved = state["run"]["steps"], state["run"]["phase"]
        if "settings" in saved:
            race = Race(self.races, list(map(restored, saved["settings"])), saved["began"])
            race.load_state_dict(saved)
            self.phase = Racing(race)
        elif "setting" in saved:
            self.phase = Holding(**{**saved, "setting": restored(saved["setting"])})
        else:
            self.phase = Waiting(**saved)


@dataclasses.dataclass
class Waiting:
    """Before the first gradient: a net may get none at first, or a broken one."""

    waited: int = 0  # steps without a gradient
    spoilt: int = 0  # minibatches in a row whose gradient was not finite

    def rate(self, run: Run) -> float:
        """Return the rate of the next step: none."""
        return 0.0

    def step(self, run: Run, minibatch: Minibatch, losses: list[Tensor]) -> Phase:
        """Begin the first race once there is a gradient, and make its first step."""
        begun = self.begun(run)
        if begun is self:
            return self
        run.go_on(begun)
        return begun.step(run, minibatch, losses)

    def begun(self, run: Run) -> Phase:
        """Start the first race as soon as there is a gradient that a centre can be found by.

        A run that is too short for a race holds the centre.

        Raises:
            NonFiniteLossError: if several gradients in a row are not finite.
        """
        base, before = run.context.base, run.intake.before  # before the forward
        if not has_gradient(base):
            self.waited += 1
            if self.waited == _LONG_WAIT:
                text = f"no gradient in the first {_LONG_WAIT} steps: nothing is trained yet"
                run.history.say(run.steps, text)
            return self
        self.spoilt = 0 if gradients_are_finite(base) else self.spoilt + 1
        if self.spoilt:
            if before is not None:
                before.put_back()
            if self.spoilt >= MOST_SPOILT:
                raise broken_from_the_start(self.spoilt)
            return self
        race = run.races.first(run.steps, before)  #                                      (l. 1-2)
        if race is not None:
            return Racing(race)
        centre = run.races.centre
        run.history.say(
            run.steps,
            f"{run.plan.total_steps} steps are too few for a race: the rate {centre:.3g} is held; "
            "give around=... if you know a better one",
        )
        return Holding(Setting({"lr": centre}), run.steps)

    def state_dict(self) -> dict[str, Any]:
        """Return how long it has waited."""
        return dict(vars(self))


@dataclasses.dataclass
class Racing:
    """A race is on."""

    race: Race

    def rate(self, run: Run) -> float:
        """Return the rate of the arm that leads."""
        return self.race.rate

    def step(self, run: Run, minibatch: Minibatch, losses: list[Tensor]) -> Racing | Holding:
        """Let every arm step; those that clearly lose are dropped; judge the rest at the end."""
        self.race.step(minibatch, run.intake.before)  #                                   (l. 3-6)
        if not self.race.is_over:  #                                                        (l. 7)
            return self
        verdict = run.races.judge(self.race, run.steps)  #                               (l. 8-10)
        if isinstance(verdict, Race):
            return Racing(verdict)
        return Holding(verdict, run.steps + 1)

    def state_dict(self) -> dict[str, Any]:
        """Return the race."""
        return self.race.state_dict()


@dataclasses.dataclass
class Holding:
    """The races have chosen: plain steps of the base, at a rate that is warmed up, held, decayed.

    Attributes:
        setting: what they have chosen.
        began: the first step that is made with it.
        has_entered: whether the groups have it, and the guard knows the weights.
    """

    setting: Setting
    began: int
    has_entered: bool = False

    def __post_init__(self) -> None:
        self._rate = rate_of(self.setting)

    def enter(self, run: Run) -> None:
        """Write the setting, keep no minibatch alive, take in the weights; after an interrupt too.

        Raises:
            NonFiniteLossError: if the weights are not finite.
        """
        if not self.has_entered:
            self.write(run)
            run.intake.set_replays(False)
            run.guard.begin()
            self.has_entered = True

    def rate(self, run: Run) -> float:
        """Return the rate of the next step, as far as the guard has left it."""
        total, warm_up = run.plan.total_steps, run.plan.warm_up
        share = share_of_rate(run.steps, total, warm_up=warm_up, began=self.began)
        return self._rate * run.guard.share * share

    def write(self, run: Run) -> None:
        """Write all of the setting into every group, at the present rate."""
        run.rates.apply({**self.setting, "lr": self.rate(run)})

    def step(self, run: Run, minibatch: Minibatch, losses: list[Tensor]) -> Holding:
        """Make one step of the base, unless the guard has to bring the run back."""
        guard, ranks = run.guard, run.context.ranks
        cuts = guard.cuts
        if not self.has_entered:  # the step before was interrupted
            self.enter(run)
        rate, left = self.rate(run), share_left(run.steps, run.plan.total_steps)
        if ranks.count > 1:
            losses = ranks.mean_loss(losses, run.steps, rate)
            ranks.note_step()
        if guard.is_sound(losses, run.steps, rate, left):
            run.rates.write(rate)
            run.context.base.step()  #                                                     (l. 11)
            if run.steps + 1 == run.plan.total_steps:
                guard.end(run.steps, rate)
        else:
            self.write(run)
        if guard.cuts > cuts:
            run.races.note_cut(self._rate * guard.share)
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return the setting, and since when it is held."""
        known = {"began": self.began, "has_entered": self.has_entered}
        return {"setting": dict(self.setting), **known}


Phase = Waiting | Racing | Holding
