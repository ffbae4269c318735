"""What the accept test may compare instead of the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from torch import Tensor

Judge = Callable[[Any, Any], Any]
Objective = Callable[[], Any]
AcceptOn = Literal["loss", "error"] | Judge


def judge(owner: str, accept_on: Any) -> Judge | None:
    """Return the function of (outputs, targets) that moves are judged by; None for the loss.

    Raises:
        ValueError: if it is something else.
    """
    if accept_on == "loss":
        return None
    if accept_on == "error":
        return error
    if not callable(accept_on):
        raise ValueError(
            f"{owner}(accept_on=...) must be 'loss', 'error' or a function of (outputs, targets), "
            f"got {accept_on!r}"
        )
    function: Judge = accept_on
    return function


def error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return one minus the accuracy: the share of targets that the largest output misses.

    Args:
        outputs: one score a class, of shape (samples, classes, ...).
        targets: class numbers, of shape (samples, ...).

    Raises:
        ValueError: if the shapes do not fit.

    Example:
        >>> import torch
        >>> error(torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 0])).item()
        0.5
    """
    if outputs.ndim < 2 or outputs.shape[:1] + outputs.shape[2:] != targets.shape:
        raise ValueError(
            "accept_on='error' must be given scores of shape (samples, classes, ...) and class "
            f"numbers of shape (samples, ...), got {tuple(outputs.shape)} and "
            f"{tuple(targets.shape)}; pass a function of (outputs, targets) for anything else"
        )
    return (outputs.argmax(1) != targets).double().mean()
