"""The parameters of an optimizer and their gradients; the modules of a model."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

_PLAIN = (Tensor, nn.Parameter)


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters of all groups, in their order."""
    parameters: list[Tensor] = []
    for group in optimizer.param_groups:
        parameters += group["params"]
    return parameters


def gathered(tensor: Tensor) -> Tensor:
    """Return all of a tensor: of one that is sharded, torch reads the part of this process alone.

    All processes must call it together.
    """
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full


def modules_of(model: nn.Module | None) -> list[nn.Module]:
    """Return a model with everything in it; nothing where there is none."""
    return [] if model is None else list(model.modules())


def gradients_of(optimizer: Optimizer) -> list[Tensor]:
    """Return the gradients of the parameters that have one."""
    return [p.grad for p in parameters_of(optimizer) if p.grad is not None]


def has_gradient(optimizer: Optimizer) -> bool:
    """Tell whether a gradient is there that is not zero."""
    return any(bool(gathered(_values(g).any())) for g in gradients_of(optimizer))


def gradients_are_finite(optimizer: Optimizer) -> bool:
    """Tell whether no gradient is NaN or infinite: one that overflowed makes no step."""
    return are_finite(map(_values, gradients_of(optimizer)))


def weights_are_finite(optimizer: Optimizer) -> bool:
    """Tell whether no weight that has a gradient is NaN or infinite: losses do not always show it.

    A row of an embedding that this minibatch does not use, an infinity behind a tanh: the loss is
    finite, and the net is broken all the same.
    """
    return are_finite([p for p in parameters_of(optimizer) if p.grad is not None])


def are_finite(tensors: Iterable[Tensor]) -> bool:
    """Tell whether no element is NaN or infinite.

    Example:
        >>> are_finite([torch.ones(2), torch.tensor([1.0, torch.nan])])
        False
    """
    plain: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for t in tensors:
        if type(t) in _PLAIN and not t.is_complex():  # not every kind of those has a sum
            plain.setdefault((t.device, t.dtype), []).append(t.detach())
        elif not gathered(t.isfinite().all()):
            return False
    return all(map(_all_finite, plain.values()))


def _all_finite(tensors: list[Tensor]) -> bool:
    """Tell the same of tensors of one device and type; one wait for the device is enough."""
    # No sum is finite where an element is not, and sums are the fastest that can be had.
    if torch.stack([t.sum() for t in tensors]).isfinite().all():
        return True
    return all(bool(t.isfinite().all()) for t in tensors)  # finite elements may add up to infinity


def check_gradients(owner: str, optimizer: Optimizer) -> None:
    """Check that there is a gradient and that it can be undone.

    Raises:
        TypeError: if a gradient is sparse.
        ValueError: if no parameter has one.
    """
    has_one = False
    for p in parameters_of(optimizer):
        if p.grad is None:
            continue
        has_one = True
        if p.grad.layout != torch.strided:
            raise TypeError(
                f"{owner}.step: gradients must be dense, got a sparse one; build the embedding "
                "with sparse=False"
            )
    if not has_one:
        raise ValueError(
            f"{owner}.step: at least one parameter must have a gradient, got none; call "
            "loss.backward() first, or pass a closure"
        )


def _values(gradient: Tensor) -> Tensor:
    return gradient._values() if gradient.is_sparse else gradient
