"""The weights that are trained, while the model (or the file of a checkpoint) holds others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from annealtune.optim.evaluation import guards
from annealtune.optim.parameters import gathered, modules_of, parameters_of
from annealtune.optim.part import Part

Pairs = list[tuple[Tensor, Tensor]]


class PutAside:
    """What the model holds now, to be put back after it has shown other weights.

    Args:
        part: is pending while others are shown.
        why: what the optimizer says then to those who call it.
        base: whose weights they are, if there is one.
        model: whose buffers are put aside too, if known.
        pairs: weights and buffers, each with what it is given meanwhile; all others stay.
    """

    def __init__(
        self,
        part: Part,
        why: str,
        base: Optimizer | None,
        model: nn.Module | None,
        pairs: Pairs,
    ) -> None:
        self._part = part
        self._why = why
        self._base = base
        self._model = model
        self._pairs = pairs
        self._kept = [(t, t.detach().clone()) for t, _ in pairs]
        shown = {id(t) for t, _ in pairs}
        self._unmoved = [(p, p.detach().clone()) for p in _parameters(base) if id(p) not in shown]
        self._modules = modules_of(model)
        self._buffers = guards.Buffers(self._modules)
        self._goes_back: bool | None = None  # once that is known

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Give the model the other weights; afterwards it is bit for bit what it was."""
        with guards.kept(self):
            self._begin()
            yield

    def show(self) -> PutAside:
        """Give the model the other weights until one of the methods below ends it."""
        try:
            self._begin()
        except BaseException:
            self.put_back()
            raise
        return self

    def _begin(self) -> None:
        self._part.pending = self._why
        write(self._pairs, self._modules)

    def put_back(self) -> None:
        """Make the model what it was."""
        write(self._kept, self._modules)
        self._buffers.put_back()
        self.leave()

    def put_back_unless_overwritten(self) -> None:
        """Make the model what it was, or leave it the weights that were loaded meanwhile."""
        if self._goes_back is None:  # an interrupted call is completed by the next
            self._goes_back = not self.is_overwritten()
        if self._goes_back:
            self.put_back()
        self.leave()

    def leave(self) -> None:
        """Leave the model what it has."""
        self._part.pending = ""

    @torch.no_grad()
    def is_overwritten(self) -> bool:
        """Tell whether the model has other weights than it was given.

        Buffers do not count: a forward may move them.
        """
        own = {id(p) for p in _parameters(self._base)}
        pairs = [(t, value) for t, value in self._pairs if id(t) in own] + self._unmoved
        return not all(are_equal(t, value.to(t.dtype)) for t, value in pairs)

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of the weights of the base and of the buffers of the model, by name."""
        put_aside = self._kept + self._unmoved
        former = self._buffers.copies() | {id(t): value for t, value in put_aside}
        live = named_tensors(self._base, self._model, others=False)
        return {name: former.get(id(t), t).detach().clone() for name, t in live.items()}


def named_tensors(
    base: Optimizer | None, model: nn.Module | None, *, others: bool = True
) -> dict[str, Tensor]:
    """Return the live weights and buffers by name, to be copied and written into.

    Weights of the base that the model does not have are named by a dot and their number.

    Args:
        base: whose weights belong to it, if there is one.
        model: whose weights and buffers belong to it, if known.
        others: whether weights of the model that the base does not have belong to it too.
    """
    own = _parameters(base)
    named: dict[str, Tensor] = {}
    if model is not None:
        wanted = set(map(id, own))
        parameters = model.named_parameters()
        named.update((name, p) for name, p in parameters if others or id(p) in wanted)
        named.update(model.named_buffers())
    known = set(map(id, named.values()))
    named.update((f".{n}", p) for n, p in enumerate(own) if id(p) not in known)
    return {name: t for name, t in named.items() if not guards.is_out_of_reach(t)}


def pairs(base: Optimizer | None, model: nn.Module | None, values: Mapping[str, Tensor]) -> Pairs:
    """Return the live weights and buffers with values of the same names and shapes."""
    live = named_tensors(base, model)
    return [
        (live[name], value)
        for name, value in values.items()
        if name in live and live[name].shape == value.shape
    ]


@torch.no_grad()
def write(pairs: Pairs, modules: list[nn.Module]) -> None:
    """Write weights so that the next forward sees them."""
    for tensor, value in pairs:
        tensor.copy_(value)
    guards.show_new_weights(modules)


def are_equal(one: Tensor, other: Tensor) -> bool:
    """Compare bit for bit, but NaN is NaN."""
    if torch.equal(one, other):
        return True
    return bool(gathered(((one == other) | (one.isnan() & other.isnan())).all()))


def check(
    owner: str, base: Optimizer | None, model: nn.Module | None, values: Mapping[str, Tensor]
) -> None:
    """Refuse the weights and buffers of another model; weights of later groups may be missing.

    Raises:
        ValueError: if there are others, or of other shapes.
    """
    live = named_tensors(base, model)
    own = set(map(id, _parameters(base)))
    needed = {name for name, t in live.items() if id(t) in own and not name.startswith(".")}
    missing = needed - values.keys()
    unknown = {name for name in values.keys() - live.keys() if name.startswith(".")}
    shapes = {name: value.shape for name, value in values.items()}
    others = {name for name in shapes.keys() & live.keys() if live[name].shape != shapes[name]}
    if wrong := sorted(missing | unknown | others):
        raise ValueError(
            f"{owner}.load_state_dict: the weights must be those of the same model, here "
            f"{len(live)} tensors, got {len(shapes)}; missing, unknown or of another shape: "
            f"{', '.join(wrong[:5])}"
        )


@torch.no_grad()
def write_all(pairs: Pairs, modules: list[nn.Module]) -> None:
    """Write weights and buffers for good, all or none."""
    before = guards.Weights(tensor for tensor, _ in pairs)
    try:
        write(pairs, modules)
    except BaseException:
        before.put_back()
        guards.show_new_weights(modules)
        raise


def _parameters(base: Optimizer | None) -> list[Tensor]:
    return [] if base is None else parameters_of(base)
