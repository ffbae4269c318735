"""What a tuner does where nothing is given."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from annealtune.annealing import SelfTuning
from annealtune.annealing.arguments import one_length

# Along a bare gradient the best rate of one step is too large for the next ones.
_CAUTION_WITH_SGD = 4.0
# With BatchNorm it is too small: the loss of a minibatch is taken with its own statistics, and is
# steepest at the start.
_CAUTION_WITH_BATCH_NORM = 1 / 3
# These move each weight by about the rate, whatever the loss, so one rate suits most networks.
_KIN_OF_ADAM = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam)
_PRIOR_WITH_ADAM = 3e-3


def is_left_open(given: tuple[Any, ...], changed: tuple[Any, Any]) -> bool:
    """Tell whether a tuner may find its rates itself: nothing is given, or just the strategy.

    Args:
        given: what decides on the moves, the strategy last.
        changed: what the accept test compares, and options of the loop; only the loss follows a
            parabola, and the options are there to be put into an H.
    """
    *others, strategy = given
    accept_on, loop = changed
    is_open = strategy is None or isinstance(strategy, SelfTuning)
    return is_open and not any(o is not None for o in others) and accept_on == "loss" and not loop


def self_tuning(
    owner: str,
    base: Optimizer,
    model: nn.Module | None,
    given: tuple[Any, Any, Any],
    changed: tuple[Any, Any],
    epochs: int | None,
    total_steps: int | None,
) -> SelfTuning | None:
    """Return the strategy of a run that finds its rates itself, or None if it must not.

    Args:
        owner: name of the optimizer's class, for messages.
        base: the optimizer whose rate is wanted.
        model: the module that is trained, if known.
        given: neighborhood, temperature and strategy; whatever of them is given is obeyed.
        changed: as in `is_left_open`.
        epochs: planned number of epochs, if known.
        total_steps: planned number of steps, if known.

    Raises:
        ValueError: if the groups of the base have different rates, or the length is none.
    """
    neighborhood, _, strategy = given
    if neighborhood is None and isinstance(strategy, SelfTuning):
        return strategy
    if not is_left_open(given, changed):
        return None
    one_length(owner, epochs=epochs, total_steps=total_steps)
    rates = {float(group["lr"]) for group in base.param_groups if "lr" in group}
    if len(rates) != 1:
        raise ValueError(
            f"{owner}(neighborhood=...) must be given where the groups of the base do not share "
            f"one learning rate, got rates {sorted(rates)}; or give them one rate and names, and "
            "group_scales={name: factor}"
        )
    caution = _CAUTION_WITH_SGD if isinstance(base, torch.optim.SGD) else 1.0
    modules = model.modules() if isinstance(model, nn.Module) else ()
    if any(isinstance(module, _BatchNorm) for module in modules):
        caution *= _CAUTION_WITH_BATCH_NORM
    prior = _PRIOR_WITH_ADAM if isinstance(base, _KIN_OF_ADAM) else None
    return SelfTuning(total_steps, epochs, caution=caution, prior=prior)
