"""The centre: the learning rate around which a first race is held."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import Optimizer

from annealtune.optim.options import GroupRates
from annealtune.optim.parameters import gathered, highest_rate, parameters_of
from annealtune.optim.run_state import RandomState, Snapshot

# Adam and its kin move each weight by about the rate, whatever the loss: one rate suits most nets.
# What only has such a name may not.
ADAMS = (
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.SparseAdam,
)
CENTRE_OF_ADAMS = 3e-3
# Otherwise: the rate at which a step changes the weights by this part of their size.
_RELATIVE_CHANGE = 2e-2
# The first steps are not like those that follow: momentum builds up, RMSprop's and Adagrad's
# denominators too. So this many are made along the first gradient, and the last one counts.
_STEPS = 30
# Tensors that start at zero count as if they had this variance over their fan-in.
_LEAST_VARIANCE = 0.1
_TRIES, _FIRST_TRY, _FARTHEST, _LARGEST = 12, 1e-3, 1e4, 1e30


@torch.no_grad()
def relative_centre(base: Optimizer, rates: GroupRates) -> float:
    """Return the rate at which a step along the present gradient changes the weights by 2 %.

    The base makes thirty steps at a trial rate, which are undone; the change of the last one being
    about proportional to the rate, two or three trials are enough. What is hooked on to the end of
    a step is not called in them: a projection says nothing of how far steps go.

    Args:
        base: with a gradient in place.
        rates: writes a rate into its groups.
    """
    before = Snapshot(base)
    start = RandomState.capture()
    rate = _FIRST_TRY
    parameters = parameters_of(base)
    possible = highest_rate(parameters) / _FARTHEST**0.5  # the arms go far above the centre
    origin = [p.clone() for p in parameters]
    before.take(gradients=True)  # some bases, and hooks, write into them
    for _ in range(_TRIES):
        try:
            rates.write(rate)
            with _without_post_hooks(base):
                for _ in range(_STEPS - 1):
                    base.step()
                    before.gradients.put_back()
                weights = [p.clone() for p in parameters]
                base.step()
            change = _relative_change(parameters, weights, origin)
        finally:
            before.restore()
            start.put_back()
        factor = 1 / _FARTHEST  # where the weights broke
        if math.isfinite(change):
            factor = _RELATIVE_CHANGE / max(change, 1e-300)
            if abs(math.log(factor)) < 0.1:
                return rate
        rate = min(rate * min(max(factor, 1 / _FARTHEST), _FARTHEST), possible)
        if rate > _LARGEST:
            return _FIRST_TRY  # nothing moves the weights
    return rate


def _square(tensor: Tensor) -> float:
    """Return the sum of squares: unlike a mean, shards of different sizes add up to it."""
    return float(gathered(tensor.abs().double().square().sum()))


def _relative_change(after: list[Tensor], before: list[Tensor], origin: list[Tensor]) -> float:
    """Return the root mean square of the changes, each tensor's in units of its original size."""
    triples = zip(after, before, origin, strict=True)
    moved = [(p, w, o) for p, w, o in triples if p.grad is not None and p.numel() > 0]
    total, count = 0.0, 0
    for p, weight, first in [(p, w, o) for p, w, o in moved if p.dim() >= 2] or moved:
        fan_in = max(p.numel() // p.shape[0], 1) if p.dim() >= 2 else 1
        size = max(_square(first) / first.numel(), _LEAST_VARIANCE / fan_in)
        total += _square(p - weight) / size
        count += p.numel()
    return math.sqrt(total / count) if count else 0.0


@contextmanager
def _without_post_hooks(base: Optimizer) -> Iterator[None]:
    """Call nothing after steps meanwhile."""
    hooks = base._optimizer_step_post_hooks
    put_aside = dict(hooks)
    hooks.clear()
    try:
        yield
    finally:
        hooks.update(put_aside)
