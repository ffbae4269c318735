"""The optimizer that finds its learning rate by races: read `SelfTuner.step` first.

One call of ``step`` is one minibatch of Algorithm 3 (docs/method.md). In a race every live arm, a
copy of the run with its own setting, makes its own step on that minibatch; outside races the step
is one of the base and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from annealtune.annealing import Neighborhood, Setting
from annealtune.annealing.race import RaceInfo, rate_text
from annealtune.optim.averaging import no_average
from annealtune.optim.evaluation.guards import Gradients
from annealtune.optim.evaluation.intake import Intake
from annealtune.optim.evaluation.minibatch import Minibatch
from annealtune.optim.evaluation.objectives import Objective
from annealtune.optim.evaluation.random_state import RandomState
from annealtune.optim.evaluation.wrappers import unwrapped
from annealtune.optim.guard import LossGuard
from annealtune.optim.held_setting import HeldSetting
from annealtune.optim.history import History
from annealtune.optim.options import checks
from annealtune.optim.options.group_rates import GroupRates
from annealtune.optim.options.race_plan import RacePlan
from annealtune.optim.parameters import parameters_of
from annealtune.optim.ranks import Ranks
from annealtune.optim.trial.arms import Arms
from annealtune.optim.trial.lanes import Lanes
from annealtune.optim.trial.races import Races
from annealtune.optim.wrapper import OptimizerWrapper


class SelfTuner(OptimizerWrapper):
    r"""Find the learning rate of any optimizer inside the run, by races.

    At the first step copies of the run ("arms") start side by side with rates half a decade apart.
    They make their steps on the same minibatches; an arm that clearly loses is dropped, and the one
    with the lowest loss wins. The run starts again with its rate (half a decade less over bases
    whose usual rates are not known), and from then on every step is one of the base, bit for bit.
    The rate is warmed up and held; with a known length it decays to zero over the last quarter. An
    average of the weights is kept, for `averaged`. Where `validate` looks at a validation set, the
    output is the best weights, averaged or last: `best`, `load_best`.

    Args:
        base: the optimizer whose rate is wanted; any whose ``step`` needs no closure. Its own rate
            decides the ratios between its groups, also ``lr_scale``, and the incumbent of an H.
        model: the module that is trained. Its buffers (the statistics of BatchNorm) belong to each
            arm; without it all arms share them.
        total_steps: planned number of calls of `step`, those of a race included.
        around: the rate in the middle of the first race. By default 3e-3 for Adam and its kin,
            other constants for Adagrad and Adadelta, else the rate whose steps change the weights
            by about 2 % of their size.
        neighborhood: settings to race instead, of any options of the base: an H such as
            ``grid(momentum=[0.0, 0.9], lr=[0.01, 0.1])`` or ``{"betas": [(0.9, 0.999), ...]}``.
        objective: what the arms are judged by at the end of a race, instead of their losses: a
            function without arguments that returns a number to be minimized, or several that are
            compared one by one. It may be anything that can be computed from the weights. For
            losses that do not measure progress: where it is given, they may rise.
        warmup: steps over which the rate rises linearly after the race, which is held without one.
            By default 5 % of the run, 50 steps if its length is not known; 0 switches it off.
        guard: whether a run that diverges is put back to its averaged weights with a quarter of the
            rate, at most twice; if not, a loss that is not finite is an error.
        average: whether an average of the weights is kept for `averaged`.
        offload: whether arms that are not in the model wait in host memory.
        process_group: of the processes that train this model together, by default all of
            torch.distributed: they compare the means of their losses and decide alike.
        arms_on: a group of processes to run the arms of a race side by side, such as
            ``torch.distributed.group.WORLD``: each runs this program on the same minibatches, a
            race takes no longer than the steps of one arm, and all go on with the winner. After the
            races (`is_racing`) all but one may leave.

    Raises:
        TypeError: if the base is no optimizer or needs a closure.
        ValueError: if an argument breaks its rule.
        RanksError: in a step, if processes differ in weights, seeds or decisions.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> x = torch.randn(64, 2)
        >>> y = x.sum(1, keepdim=True)
        >>> opt = SelfTuner(torch.optim.AdamW(model.parameters()), model=model, total_steps=300)
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

    _scores_average = True

    def __init__(
        self,
        base: Optimizer,
        model: nn.Module | None = None,
        *,
        total_steps: int | None = None,
        around: float | None = None,
        neighborhood: Neighborhood | Iterable[Mapping[str, Any]] | Mapping[str, Any] | None = None,
        objective: Objective | None = None,
        warmup: int | None = None,
        guard: bool = True,
        average: bool = True,
        offload: bool = False,
        process_group: ProcessGroup | None = None,
        arms_on: ProcessGroup | None = None,
    ) -> None:
        checks.check_base("SelfTuner", base, may_maximize=True)
        # Processes that share the arms of a race all have the whole minibatch.
        alone = arms_on is not None and process_group is None
        ranks = Ranks("SelfTuner", base, process_group, alone=alone)
        intake = Intake("SelfTuner", base, model, ranks, buffers=True)
        self.model = model = unwrapped(model)
        plan = RacePlan.checked(base, total_steps, around, neighborhood, objective, offload, warmup)
        self.total_steps, self.neighborhood = plan.total_steps, plan.neighborhood
        self.averages = average
        lanes = Lanes(base, model, arms_on)
        self.history = History(lanes.ranks if alone else ranks)
        self._rates = GroupRates("SelfTuner", base)
        self._rates.refuse_others()
        # What the races have chosen.
        self._held = HeldSetting(self._rates, self.total_steps, plan.warm_up)
        self._races = Races(base, model, self._rates, self.history, plan, ranks, lanes)
        self._guard = LossGuard(
            base,
            model,
            self.history,
            average=average,
            sign=plan.sign,
            measures=objective is None,
            is_on=guard,
        )
        self._average = self._guard.average if average else None
        parts = (self._held, self._rates, self._races, self._guard, self.history)
        super().__init__(base, intake, ranks, *parts)

    @torch.no_grad()
    def step(
        self,
        closure: Callable[[], Any] | None = None,
        *,
        loss: Tensor | float | None = None,
        probe: Callable[[], Any] | None = None,
        rng_state: Tensor | None = None,
    ) -> Any:
        """Make one step on one minibatch, with every arm where a race is on; return its loss.

        Either ``step()`` after the backward of a function that `record` has wrapped; or
        ``step(closure)``, where the closure returns the loss and may call ``zero_grad`` and
        ``backward`` itself; or, with the gradient in place, ``step(loss=loss, probe=fn)``, where
        ``fn`` computes the loss on the same minibatch again. Outside races nothing is computed
        again, and a gradient that is in place is enough.

        Args:
            closure: computes the loss.
            loss: the loss, where there is no closure.
            probe: computes the loss again, where there is no closure.
            rng_state: ``torch.get_rng_state()`` before the forward of ``loss``, to repeat its
                dropout where the tuner was given no model.

        Raises:
            NonFiniteLossError: if the loss is not finite and nothing is left to be tried.
            RuntimeError: if somebody has written into the weights during a race.
            TypeError, ValueError: if nothing tells how to compute the loss again in a race, or
                somebody else writes the rate.
        """
        if closure is None and loss is None and self._is_asked_to_initialise():
            return self.base.step()
        self._check_undisturbed()
        is_known = closure is not None or (loss is None and self.records)
        weighs = self._guard.doubts and is_known  # whether the run has diverged
        again = weighs or (self.is_racing and not self._races.are_over)
        minibatch = self._intake.take(closure, loss, probe, rng_state, again=again)
        before = self._intake.buffers  # of the model, before the forward
        with self._intake.paused():
            losses = minibatch.first()  # L(w) and its gradient
            if self.is_racing and self._races.race is None:
                centre = self._races.begin(self.steps, before)  # None if there is a race
                self._hold(centre, self.steps)
            if self._races.race is not None:
                chosen = self._races.step(minibatch, self.steps, before)  # of every live arm
                self._hold(chosen, self.steps + 1)
            elif not self.is_racing:
                if weighs:
                    self._weigh(minibatch)
                self._plain_step(losses)
        self._held.steps += 1
        self._rates.claim()
        return minibatch.returned

    def before_step(self, function: Callable[[], Any]) -> Any:
        """Have a function called between backward and step, for every arm: clip gradients there.

        A loop that clips by itself does so for one arm only.

        Returns:
            A handle whose ``remove()`` ends it.
        """

        def hook(*_: Any) -> None:
            function()  # what it returns, as clip_grad_norm_ does, is not for torch

        return self.base.register_step_pre_hook(hook)

    def after_replay(self, function: Callable[[], Any]) -> Any:
        """Have a function called after every ``backward`` that a race makes by itself.

        For a loop, or a framework, that goes on clipping its own gradients between ``backward`` and
        ``step``: here it says how to do the same to those of the other arms.

        Returns:
            A handle whose ``remove()`` ends it.
        """
        return self._intake.recorder.register_after_replay(function)

    @property
    def lr(self) -> float:
        """The learning rate of the next step, before each group's multiple of it.

        In a race, that of the arm which leads; 0 before the first gradient.
        """
        return self._races.rate if self.is_racing else self._held.rate(self._guard.share)

    @property
    def steps(self) -> int:
        """Calls of `step` so far."""
        return self._held.steps

    @property
    def races(self) -> tuple[RaceInfo, ...]:
        """The races that are over: their arms and scores, who won and why."""
        return tuple(self._races.infos)

    @property
    def extra_steps(self) -> int:
        """How many steps the arms of all races made besides one a call."""
        return self._races.extra_steps

    @property
    def is_racing(self) -> bool:
        """Whether a race is on, or still to come."""
        return self._held.setting is None

    @property
    def _arms(self) -> Arms | None:
        return None if self._races.race is None else self._races.race.arms

    def averaged(self, loader: Iterable[Any] | None = None) -> AbstractContextManager[None]:
        """Give the model the average of its last weights for as long as the context lasts.

        During a race that is the arm which leads, as it is. From a loader of minibatches, or of
        tuples that begin with them, the statistics of BatchNorm are computed anew; without one
        their averages are taken. Without an average it is a RuntimeError.
        """
        self._refuse_pending("averaged")
        if self._average is None:
            raise no_average("SelfTuner")
        return self._average.swapped_in(loader)

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
        state = f"step {self.steps}{planned}, rate {rate_text(self.lr)}"
        state += f", {self.extra_steps} extra steps"
        events = (e for e in self.history.events if not e.text.startswith("race "))
        told = (f"step {event.step}: {event.text}" for event in events)
        return "\n".join([state, *(info.table() for info in self.races), *told])

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Draw loss and rate over the steps so far, with every race and its arms, into a file.

        Args:
            path: its ending decides the format: ``.png``, ``.svg`` or ``.pdf``.

        Raises:
            ImportError: if matplotlib is not installed: ``pip install 'annealtune[plot]'``.
            ValueError: if the ending is none of these.
        """
        from annealtune.optim.plot import plot_run

        sign = checks.direction("SelfTuner", self.base)
        return plot_run(path, self.history, self.races, sign=sign)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base; its rate keeps its ratio to those of the other groups."""
        super().add_param_group(param_group)
        checks.direction("SelfTuner", self.base)
        self._rates.multiples()
        if self._races.race is not None:
            self._races.race.arms.include(self.base.param_groups[-1])
        if not self.is_racing:
            self._held.write(self._held.setting, self._guard.share)

    def __repr__(self) -> str:
        length = "any length" if self.total_steps is None else f"{self.total_steps} steps"
        now = "racing" if self.is_racing else f"rate {self.lr:.3g}"
        return f"SelfTuner({type(self.base).__name__}, {length}, step {self.steps}, {now})"

    def _hold(self, setting: Setting | None, first: int) -> None:
        """Make every step from this one on one of the base, once the races have chosen."""
        if setting is not None:
            self._held.began = first
            self._held.write(setting, self._guard.share)
            self._intake.end_replays()
            self._guard.begin()
            self._held.setting = setting  # last: an interrupt before it has all of it done again

    def _plain_step(self, losses: list[Tensor]) -> None:
        rate = self.lr
        if self._ranks.count > 1:
            losses = self._ranks.mean_loss(losses, self.steps, rate)
            self._ranks.note_step()
        doubted, cuts = self._guard.doubts, self._guard.cuts
        if self._guard.is_sound(losses, self.steps, rate, self._held.share_left):
            self._rates.write(rate)
            self.base.step()
            if self._held.steps + 1 == self.total_steps:
                self._guard.end(self.steps, rate)
        else:
            self._held.write(self._held.setting, self._guard.share)
        if self._guard.cuts > cuts:
            self._races.note_cut(self._guard.share)
        if self._guard.doubts and not doubted:
            self._intake.begin_replays()
        elif doubted and not self._guard.doubts:
            self._intake.end_replays()

    def _weigh(self, minibatch: Minibatch) -> None:
        """Compute the minibatch at the averaged weights too; gradient and random state stay."""
        after = RandomState.capture()
        gradients = Gradients(parameters_of(self.base))
        gradients.put_aside()
        try:
            with self._guard.at_safe_weights():
                safe = float(minibatch.again())
        finally:
            gradients.put_back()
            after.restore()
        here = float(minibatch.compared())
        means = self._ranks.means([here, safe], "guard", self.steps)
        self._guard.weigh(*means)

    def _check_undisturbed(self) -> None:
        """Refuse whoever else writes the rate, or the weights during a race; warn past the end."""
        self._refuse_pending("step")
        self._rates.refuse_others()
        if self._races.race is not None:
            self._races.race.arms.refuse_others()
        if self._held.steps == self.total_steps:
            self.history.say(
                self.steps,
                f"{self.total_steps} steps were planned and more are made: the rate stays where "
                "the plan ended; give the true total_steps=..., or none",
            )
        self._rates.release()  # an interrupted step leaves rates that are ours too

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load everything, or nothing; a race that was on goes on.

        Raises:
            ValueError: if it does not fit the groups or a part.
        """
        super().load_state_dict(state_dict)
        if self.is_racing or self._guard.doubts:
            self._intake.begin_replays()
        else:
            self._intake.end_replays()
