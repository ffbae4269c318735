"""A race under way: every live arm steps on the same minibatches."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from annealtune.annealing import Setting
from annealtune.annealing.race import (
    LEAST_WINDOW,
    PATIENCE,
    Allowance,
    Outcome,
    RaceInfo,
    Standings,
    can_be_summed,
)
from annealtune.optim.evaluation import guards
from annealtune.optim.evaluation.grad_scaler import active_scaler
from annealtune.optim.evaluation.minibatch import Minibatch
from annealtune.optim.evaluation.objectives import Objective
from annealtune.optim.evaluation.probe import unchanged
from annealtune.optim.evaluation.random_state import RandomState
from annealtune.optim.parameters import (
    gathered,
    gradients_are_finite,
    gradients_of,
    modules_of,
    parameters_of,
    weights_are_finite,
)
from annealtune.optim.ranks import Ranks
from annealtune.optim.trial.arms import Arms
from annealtune.optim.trial.lanes import Lanes
from annealtune.optim.trial.state_outside import StateOutside

# After this many minibatches in a row on which no arm has a finite loss, all arms count as broken.
MOST_SPOILT = 3


class Race:
    """One race of arms that differ in their setting.

    Args:
        settings: one for each arm.
        write: writes a setting into the groups of the base.
        allowance: what the race may cost.
        began: number of the step at which it begins.
        sign: -1 where the loss is maximized.
        say: tells the user what goes wrong.
        ranks: the processes that race together, each on its part of a minibatch.
        lanes: the processes that race together, each with its part of the arms.
        objective: what the arms are judged by at the end instead of their losses.
        on_host: whether arms that are not in the model lie in host memory.
    """

    def __init__(
        self,
        base: Optimizer,
        model: nn.Module | None,
        settings: Sequence[Setting],
        write: Callable[[Setting], None],
        allowance: Allowance,
        *,
        began: int,
        say: Callable[[str], None],
        ranks: Ranks,
        lanes: Lanes | None = None,
        sign: float = 1.0,
        objective: Objective | None = None,
        on_host: bool = False,
    ) -> None:
        self._base = base
        self._model = model
        self.settings = tuple(settings)
        self._write = write
        self._allowance = allowance
        self._say = say
        self._ranks = ranks
        self._sign = sign
        self._objective = objective
        self.began = began
        self.extra_steps = 0
        self.standings = Standings(len(self.settings))
        self._lanes = lanes or Lanes(base, model, None)
        own = self._lanes.own(self.standings.live)
        self.arms = Arms(base, model, own, on_host=on_host)
        self._values: dict[int, list[float]] = {}  # of the objective, once it was asked
        self._norms: tuple[float, ...] | None = None  # of the first arm's first gradient
        self._is_checked = False  # whether the base keeps its state where an arm can have its own
        self._torn: int | None = None  # the arm whose weights are being written

    def step(self, minibatch: Minibatch, before: guards.Buffers | None = None) -> None:
        """Let every live arm make its own step on one minibatch; drop those that clearly lose.

        Args:
            minibatch: with its gradient for the arm in the model in place.
            before: buffers of that arm before the forward, if known.
        """
        end = after = RandomState.capture()
        self.arms.unseal()  # and so it stays where the step is interrupted
        first = self.arms.in_model
        losses: dict[int, float] = {}
        is_scaled = active_scaler() is not None
        others = guards.Gradients(self._other_parameters())
        try:
            own = self._lanes.own(self.standings.live)
            for arm in sorted(own, key=first.__ne__):  # the one in the model first
                self.arms.switch_to(arm)
                if arm != first:
                    others.put_aside()  # of parameters that another optimizer trains
                    before = self._buffers()
                loss = minibatch.compared() if arm == first else minibatch.again()
                mean = self._ranks.mean(float(loss), self.standings.minibatches, arm)
                losses[arm] = self._sign * mean
                if not weights_are_finite(self._base):
                    losses[arm] = math.nan  # a loss does not always show it
                end.restore()
                self._compare_gradients(is_first=arm == first)
                if math.isfinite(losses[arm]):
                    self._move(arm, is_scaled=is_scaled)
                    after = RandomState.capture()  # some bases draw numbers of their own
                elif before is not None:
                    before.put_back()  # what it did to the statistics of BatchNorm, say
            after.restore()
        except BaseException:
            end.restore()
            self._give_up_torn()
            raise
        finally:
            others.put_back()
        if self._lanes.are_several:
            losses = self._lanes.exchange(losses, self.standings.live, self.standings.minibatches)
        self.extra_steps += len(losses) - 1
        self.standings.add(losses)
        if self._objective is None:
            self.standings.drop_losers()
        self._forget_dropped()
        own = self._lanes.own(self.standings.live)
        if own:
            self.arms.switch_to(min(own, key=self.standings.score))
        self.arms.seal()

    def bring(self, arm: int) -> None:
        """Bring an arm into the model, wherever it has run."""
        if self._lanes.own([arm]):
            self.arms.switch_to(arm)
        self._lanes.spread(arm)

    @property
    def is_over(self) -> bool:
        """Whether it is time for the verdict."""
        live = len(self.standings.live)
        if self.all_broke:
            return True
        if live == 1:  # one that is left because the others broke may break too
            return self.standings.minibatches >= LEAST_WINDOW
        is_spent = self.extra_steps + live - 1 > self._allowance.extra_steps
        if is_spent and self._objective is None and not self.standings.has_learnt:
            # On a plateau it is too early to judge.
            is_spent = self.extra_steps + live - 1 > PATIENCE * self._allowance.extra_steps
        return is_spent or self.standings.minibatches >= self._allowance.minibatches

    @property
    def all_broke(self) -> bool:
        """Whether no arm has a finite loss any more."""
        return self.standings.spoilt >= MOST_SPOILT

    def verdict(self, incumbent: int) -> Outcome:
        """Judge the live arms; return who has won."""
        if self._objective is None:
            return self.standings.verdict(incumbent)
        try:
            judged = {arm: self._judged(arm) for arm in self._lanes.own(self.standings.live)}
            self._values = self._lanes.exchange(judged, self.standings.live, "objective")
        finally:
            self.arms.seal()
        counts = {len(values) for values in self._values.values()}
        if len(counts) > 1:
            raise ValueError(
                "SelfTuner(objective=...) must return as many numbers for one arm as for "
                f"another, for they are compared one by one, got {sorted(counts)} of them"
            )
        broken = {a: v for a, v in self._values.items() if not all(map(can_be_summed, v))}
        if len(broken) == len(self._values):
            self._say("the objective is not finite for any arm: the incumbent wins")
            winner = incumbent if incumbent in self.standings.live else self.standings.leader
            return Outcome(winner, "no objective was finite")
        for arm, values in broken.items():
            self.standings.drop(arm, f"objective {values}")
        self._forget_dropped()
        found = [self._values[arm] for arm in self.standings.live]
        if len(found) > 1 and all(value == found[0] for value in found):
            self._say(
                f"the objective is {found[0][0]:.4g} for every arm, so it decides nothing and the "
                "incumbent wins: does it depend on the weights that this optimizer trains?"
            )
        return self.standings.verdict(incumbent, self._values)

    def scores(self) -> tuple[float, ...]:
        """Return what every arm is judged by, NaN where there is nothing.

        That is the mean loss over its last minibatches, or the mean of the objective's values.
        """
        scores = [self._sign * self.standings.score(arm) for arm in range(len(self.settings))]
        if self._objective is not None:
            judged = (self._values.get(arm, [math.nan]) for arm in range(len(self.settings)))
            scores = list(map(statistics.fmean, judged))
        return tuple(score if math.isfinite(score) else math.nan for score in scores)

    def info(
        self,
        step: int,
        winner: int | None,
        reason: str,
        rate: float,
        *,
        restarted: bool,
        number: int,
    ) -> RaceInfo:
        """Return what there is to tell of a race that ended with a step."""
        return RaceInfo(
            number=number,
            step=self.began,
            minibatches=step + 1 - self.began,
            settings=self.settings,
            scores=self.scores(),
            dropped=dict(self.standings.dropped),
            winner=winner,
            reason=reason,
            rate=rate,
            extra_steps=self.extra_steps,
            restarted=restarted,
            second=None if winner is None else self._second(winner),
            losses=tuple(tuple(self._sign * x for x in own) for own in self.standings.losses),
        )

    def _second(self, winner: int) -> int | None:
        """Return the best arm besides the winner: the dropped ones come after those that stayed."""
        live = self.standings.live
        sign = 1.0 if self._objective is not None else self._sign
        ranks = [
            (arm not in live, sign * score, arm)
            for arm, score in enumerate(self.scores())
            if arm != winner and not math.isnan(score)
        ]
        return min(ranks)[-1] if ranks else None

    def _other_parameters(self) -> list[Tensor]:
        own = set(parameters_of(self._base))
        parameters = () if self._model is None else self._model.parameters()
        return [p for p in parameters if p not in own]

    def _buffers(self) -> guards.Buffers:
        return guards.Buffers(modules_of(self._model))

    def _compare_gradients(self, *, is_first: bool) -> None:
        """Warn if the second arm, still at the same weights, has another gradient than the first.

        Then something goes into the gradient that is not computed again: a term that is added to
        the loss, clipping in the loop, random numbers that are not torch's.
        """
        if self.standings.minibatches > 0 or self._norms == ():
            return
        norms = [float(gathered(gradient.norm())) for gradient in gradients_of(self._base)]
        known, self._norms = self._norms, tuple(norms) if is_first else ()
        if known is not None and not is_first and not _are_close(known, norms):
            self._say(
                "the gradient of the first minibatch, computed again at the same weights, is "
                "another one, so the arms are not alike: everything that goes into it belongs in "
                "the function given to record, clipping in opt.before_step(fn) or once more in "
                "opt.after_replay(fn), random numbers in torch's generators"
            )

    def _move(self, arm: int, *, is_scaled: bool) -> None:
        """Make the step of one arm; as a GradScaler does, not along a gradient that overflowed."""
        if is_scaled and not gradients_are_finite(self._base):
            return
        outside = None if self._is_checked else StateOutside(self._base)
        self._torn = arm
        self._write(self.settings[arm])
        self._base.step()
        self._torn = None
        if outside is not None:
            self._is_checked = True
            outside.refuse_changes("SelfTuner")

    def _give_up_torn(self) -> None:
        """Drop the arm whose step was interrupted: its weights are half old, half new."""
        if self._torn is not None and len(self.standings.live) > 1:
            self.standings.drop(self._torn, "interrupted in the middle of a step")
            self._forget_dropped()
        self._torn = None

    def _forget_dropped(self) -> None:
        successor = next(iter(self._lanes.own(self.standings.live)), None)
        for arm in self._lanes.own(list(self.standings.dropped)):
            self.arms.drop(arm, successor)

    @torch.no_grad()
    def _judged(self, arm: int) -> list[float]:
        """Return the values of the objective for one arm; smaller is better."""
        self.arms.switch_to(arm)
        assert self._objective is not None
        with unchanged(parameters_of(self._base), modules_of(self._model)):
            values = self._objective()
        return self._ranks.means(_numbers(values), "objective", arm)

    def state_dict(self) -> dict[str, Any]:
        """Return the standings and the arms."""
        return {
            "settings": [dict(setting) for setting in self.settings],
            "allowance": [self._allowance.minibatches, self._allowance.extra_steps],
            "began": self.began,
            "extra_steps": self.extra_steps,
            "standings": self.standings.state_dict(),
            "lane": self._lanes.place,
            "arms": self.arms.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._allowance = Allowance(*state["allowance"])
        self.extra_steps = state["extra_steps"]
        self.standings.load_state_dict(state["standings"])
        self.arms.load_state_dict(state["arms"])


def _numbers(values: Any) -> list[float]:
    """Return what an objective returned as numbers.

    Raises:
        TypeError: if it is something else.
    """
    given = values
    if isinstance(values, Tensor):
        values = values.detach().double().flatten().tolist()
    elif isinstance(values, int | float):
        values = [values]
    try:
        numbers = [] if isinstance(values, str | bytes) else [float(value) for value in values]
    except (TypeError, ValueError):
        numbers = []
    if not numbers:
        raise TypeError(
            "SelfTuner(objective=...) must return a number, or several that are compared one by "
            f"one, got {given!r}"
        )
    return numbers


def _are_close(ones: Sequence[float], others: Sequence[float]) -> bool:
    """Compare norms; a device may sum in another order the second time, and NaN is NaN."""
    return len(ones) == len(others) and all(
        math.isclose(one, other, rel_tol=1e-2, abs_tol=1e-12) or not math.isfinite(one)
        for one, other in zip(ones, others, strict=True)
    )
