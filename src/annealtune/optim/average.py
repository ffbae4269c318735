"""An average of the weights, kept beside the model and never entering it while it is trained."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from annealtune.optim.context import Part, StateError
from annealtune.optim.parameters import are_finite, parameters_of
from annealtune.optim.run_state import (
    Flags,
    Pairs,
    PutAside,
    RandomState,
    kept,
    named_pairs,
    named_tensors,
)

_SWAPPED_IN = (
    "must not be called within averaged(), or between eval() and train(): the weights are not "
    "those that are trained"
)
# The average remembers about the last tenth of the steps, however many there have been. While the
# rate decays it remembers fewer and fewer: an average that lags behind the decay is worse than the
# last weights (docs/decisions/0022-one-rule.md).
_MEMORY = 10


class WeightAverage(Part):
    r"""The mean of the weights over about the last tenth of the run.

    .. math:: \bar w_n = \bar w_{n-1} + \min(1, \frac{10}{(n + 9) f}) (w_n - \bar w_{n-1})

    f is 1 and decays to 0 with the rate: at the end of the decay the mean is the last weights. The
    running statistics of BatchNorm are averaged alongside.

    Args:
        base: whose parameters are averaged.
        model: whose BatchNorm layers belong to them.

    Example:
        >>> model = nn.Linear(1, 1)
        >>> average = WeightAverage("SGDSA", torch.optim.SGD(model.parameters()), model)
        >>> for value in (1.0, 2.0):
        ...     _ = model.weight.data.fill_(value)
        ...     _ = average.add()
        >>> with average.swapped_in():
        ...     print(round(model.weight.item(), 4))
        1.9091

    Reference:
        Polyak and Juditsky (1992); a window that grows with the run: Shamir and Zhang (2013).
    """

    def __init__(self, owner: str, base: Optimizer, model: nn.Module) -> None:
        self._owner = owner
        self._base = base
        self._model = model
        self._means: dict[str, Tensor] = {}
        self._frozen: list[int] = []  # BatchNorm layers whose statistics are not trained
        self.count = 0

    @torch.no_grad()
    def add(self, left: float = 1.0) -> bool:
        """Take the present weights into the average; tell whether statistics had to be healed.

        Args:
            left: how much of the decay of the rate is left, from 1 to 0; 0 takes the weights as
                they are.
        """
        self.count += 1
        if self._model.training:
            layers = enumerate(_norms(self._model))
            self._frozen = [number for number, layer in layers if not layer.training]
        was_healed = self.heal()
        present = {name: _widened(t) for name, t in self._tensors().items()}
        means = [self._means[name] for name in present if name in self._means]
        known = [t for name, t in present.items() if name in self._means]
        share = _MEMORY / (self.count + _MEMORY - 1)
        share = 1.0 if share >= left else share / left
        # Foreach does not know subclasses, such as FSDP's sharded tensors.
        if known and {Tensor, nn.Parameter}.issuperset(map(type, known)):
            torch._foreach_lerp_(means, known, share)
        else:
            for mean, tensor in zip(means, known, strict=True):
                mean.lerp_(tensor, share)
        # All of them the first time; later the weights and statistics of layers that were added.
        added = {name: t.clone() for name, t in present.items() if name not in self._means}
        self._means = {**self._means, **added}
        return was_healed

    @contextlib.contextmanager
    def swapped_in(self, loader: Iterable[Any] | None = None) -> Iterator[None]:
        """Give the model the averaged weights; afterwards it is bit for bit what it was.

        Args:
            loader: as in `recalibrate`; without one the statistics are averages too.
        """
        with self.put_aside().shown():
            if loader is not None:
                recalibrate(self._model, loader, self._frozen)
            yield

    def pairs(self) -> Pairs:
        """Return weights and statistics with their averages; what has none is not among them."""
        return named_pairs(self._base, self._model, self._means)

    def put_aside(self) -> PutAside:
        """Put the present weights aside, for the average to be shown."""
        if self.pending:
            raise RuntimeError(f"{self._owner}.averaged() must not be entered twice")
        return PutAside(self, _SWAPPED_IN, self._base, self._model, self.pairs())

    def _tensors(self) -> dict[str, Tensor]:
        """Return the weights that are trained and the statistics of BatchNorm by name."""
        averaged = {id(t) for layer in _norms(self._model) for t in _statistics(layer)}
        trained = parameters_of(self._base)
        averaged |= {id(p) for p in trained if p.is_floating_point() or p.is_complex()}
        named = named_tensors(self._base, self._model)
        return {name: t for name, t in named.items() if id(t) in averaged}

    def heal(self) -> bool:
        """Begin the statistics of layers anew whose values are not finite; tell if there were any.

        One huge value in a minibatch is enough: weights and loss stay finite, and every evaluation
        after it is of no use.
        """
        layers = _norms(self._model)
        if are_finite(t for layer in layers for t in _statistics(layer)):
            return False
        for layer in layers:
            if not are_finite(_statistics(layer)):
                layer.reset_running_stats()
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return the average, how many weights are in it, and which statistics are not trained."""
        means = {name: mean.clone() for name, mean in self._means.items()}
        return {"average": {"count": self.count, "means": means, "frozen": list(self._frozen)}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken.

        Raises:
            StateError: if it is the average of another model.
        """
        saved, own = state["average"], self._tensors()
        given = saved["means"].items()
        if any(name not in own or own[name].shape != mean.shape for name, mean in given):
            raise StateError(
                f"{self._owner}.load_state_dict: the average must be one of the same weights and "
                f"BatchNorm layers, here {len(own)} tensors, got {len(given)} of other shapes"
            )
        self.count = saved["count"]
        self._means = {
            name: mean.to(device=own[name].device, dtype=_widened(own[name]).dtype, copy=True)
            for name, mean in given
        }
        self._frozen = list(saved["frozen"])


@torch.no_grad()
def recalibrate(model: nn.Module, loader: Iterable[Any], frozen: Collection[int] = ()) -> None:
    """Compute the running statistics of BatchNorm anew, as plain means over the minibatches.

    Dropout and the like stay off; training flags and random numbers are left as they were.

    Args:
        model: whose layers are recalibrated; without such layers nothing is evaluated.
        loader: minibatches, or tuples that begin with them; a dict is given by its names.
        frozen: numbers of the layers that keep their statistics.

    Raises:
        ValueError: if there are none.
    """
    layers = [layer for number, layer in enumerate(_norms(model)) if number not in frozen]
    if not layers:
        return
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    momenta, is_empty = [layer.momentum for layer in layers], True
    start, flags = RandomState.capture(), Flags(list(model.modules()))
    try:
        with kept(flags):
            flags.evaluate()
            for layer in layers:
                layer.reset_running_stats()
                layer.momentum = None  # a plain mean
                layer.training = True
            for batch in loader:
                is_empty = False
                inputs = batch[0] if isinstance(batch, tuple | list) else batch
                if isinstance(inputs, Mapping):
                    model(**{name: _moved(value, device) for name, value in inputs.items()})
                else:
                    model(_moved(inputs, device))
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        start.put_back()
    if is_empty:
        raise ValueError(
            f"averaged(loader) must be given minibatches, got none from {loader!r}; an iterator "
            "can be used up only once"
        )


def _moved(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value


def _widened(tensor: Tensor) -> Tensor:
    """Return half precision in single: it would lose what little a late step adds to a mean."""
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    return tensor.float() if half else tensor


def _norms(model: nn.Module) -> list[_NormBase]:
    return [m for m in model.modules() if isinstance(m, _NormBase) and m.track_running_stats]


def _statistics(layer: _NormBase) -> list[Tensor]:
    return [t for t in (layer.running_mean, layer.running_var) if t is not None]
