"""The weights that are trained, while the model (or the file of a checkpoint) holds the average."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from annealtune.optim.evaluation import guards
from annealtune.optim.parameters import gathered, modules_of, parameters_of


class PutAside:
    """The weights and buffers that are trained, to be put back after an evaluation.

    Args:
        base: whose weights they are.
        model: whose buffers are put aside too, if known.
        tensors: what there is to put aside, statistics of BatchNorm among it.
        average: what the first of these are given instead; the others stay as they are.
    """

    def __init__(
        self,
        base: Optimizer,
        model: nn.Module | None,
        tensors: list[Tensor],
        average: list[Tensor],
    ) -> None:
        self._base = base
        self._model = model
        self._tensors = tensors
        self._average = average
        self._kept = [t.detach().clone() for t in tensors]
        self._modules = modules_of(model)
        self._buffers = guards.Buffers(self._modules)
        self._goes_back: bool | None = None  # once that is known

    def show_average(self) -> None:
        """Give the model the average."""
        write(self._tensors, self._average, self._modules)

    def put_back(self) -> None:
        """Make the model what it was."""
        write(self._tensors, self._kept[: len(self._average)], self._modules)
        self._buffers.put_back()

    def put_back_unless_overwritten(self) -> None:
        """Make the model what it was, or leave it the weights that were loaded meanwhile."""
        if self._goes_back is None:  # an interrupted call is completed by the next
            self._goes_back = not self.is_overwritten()
        if self._goes_back:
            self.put_back()

    @torch.no_grad()
    def is_overwritten(self) -> bool:
        """Tell whether the model has other weights than `show_average` gave it.

        Buffers do not count: a forward may move them.
        """
        own = {id(p) for p in parameters_of(self._base)}
        shown = self._average + self._kept[len(self._average) :]
        pairs = zip(self._tensors, shown, strict=True)
        return not all(_are_equal(t, value.to(t.dtype)) for t, value in pairs if id(t) in own)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the weights of the base and of the buffers of the model."""
        kept = {id(t): value for t, value in zip(self._tensors, self._kept, strict=True)}
        buffers = {} if self._model is None else dict(self._model.named_buffers())
        former = self._buffers.copies()
        return {
            "parameters": [kept.get(id(p), p).detach().clone() for p in parameters_of(self._base)],
            "buffers": {name: former.get(id(b), b).clone() for name, b in buffers.items()},
        }


@torch.no_grad()
def write(tensors: list[Tensor], values: list[Tensor], modules: list[nn.Module]) -> None:
    """Write weights so that the next forward sees them."""
    for tensor, value in zip(tensors, values, strict=False):
        tensor.copy_(value)
    guards.show_new_weights(modules)


def _are_equal(one: Tensor, other: Tensor) -> bool:
    """Compare bit for bit, but NaN is NaN."""
    if torch.equal(one, other):
        return True
    return bool(gathered(((one == other) | (one.isnan() & other.isnan())).all()))


def check(owner: str, base: Optimizer, model: nn.Module | None, state: Mapping[str, Any]) -> None:
    """Refuse the weights of another model.

    Raises:
        ValueError: if there are others, or of other shapes.
    """
    own = [p.shape for p in parameters_of(base)]
    given = [value.shape for value in state["parameters"]]
    pairs = _pairs(base, model, state) if own == given else ()
    if own != given or any(tensor.shape != value.shape for tensor, value in pairs):
        raise ValueError(
            f"{owner}.load_state_dict: the weights must be those of the same model, here "
            f"{len(own)} tensors, got {len(given)} or of other shapes"
        )


@torch.no_grad()
def restore(base: Optimizer, model: nn.Module | None, state: Mapping[str, Any]) -> None:
    """Write them back, all or none."""
    pairs = _pairs(base, model, state)
    before = guards.Weights(tensor for tensor, _ in pairs)
    try:
        for tensor, value in pairs:
            tensor.copy_(value)
    except BaseException:
        before.put_back()
        raise
    finally:
        guards.show_new_weights(modules_of(model))


def _pairs(
    base: Optimizer, model: nn.Module | None, state: Mapping[str, Any]
) -> list[tuple[Tensor, Tensor]]:
    """Return the live weights and buffers with what was saved of them."""
    buffers: dict[str, Tensor] = {} if model is None else dict(model.named_buffers())
    saved = state["buffers"].items()
    return [
        *zip(parameters_of(base), state["parameters"], strict=True),
        *((buffers[name], value) for name, value in saved if name in buffers),
    ]
