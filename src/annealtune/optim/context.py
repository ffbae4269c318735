"""What the parts of an optimizer share, and what each of them can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn.modules.lazy import LazyModuleMixin
from torch.optim import Optimizer

from annealtune.optim.parameters import are_finite, parameters_of, trained_of
from annealtune.optim.ranks import Ranks, Wrappers, unwrapped


class StateError(ValueError):
    """A state dict that does not fit the optimizer it is loaded into."""


class Context:
    """The run that all parts of an optimizer work on.

    Args:
        owner: name of the optimizer's class, for messages.
        base: the optimizer that makes the steps.
        model: the module that is trained; DDP may be around it.
        group: of the processes that train it together; by default all of torch.distributed.

    Attributes:
        model: the module inside DDP.
        ranks: the processes.
        wrappers: DDP and FSDP2 around the model, as far as they were seen.
        written: parameters that forwards and hooks write; None before the first forward.

    Raises:
        TypeError: if the model is missing or no module.
    """

    def __init__(
        self, owner: str, base: Optimizer, model: Any, group: ProcessGroup | None = None
    ) -> None:
        check_model(owner, model)
        self.owner = owner
        self.base = base
        self.ranks = Ranks(owner, base, group)
        self.wrappers = Wrappers(model)
        self.model: nn.Module = unwrapped(model)
        self.written: list[Tensor] | None = None

    def weights_are_finite(self) -> bool:
        """Tell whether no weight that has a gradient is NaN or infinite."""
        return are_finite(trained_of(self.base))


def check_model(owner: str, model: Any) -> None:
    """Check that a model is one, and whole.

    Raises:
        TypeError: if it is not.
        ValueError: if it has lazy layers that wait for their first forward.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"{owner}(model=...) must be the torch.nn.Module that is trained, got {model!r}; "
            f"write {owner}(..., model=model)"
        )
    if lazy := [m for m in model.modules() if isinstance(m, LazyModuleMixin)]:
        raise ValueError(
            f"{owner}(model=...) must have its weights, got a {type(lazy[0]).__name__} that waits "
            "for its first forward; run the model once before, as torch asks for"
        )


class Watch:
    """Finds parameters that the base does not train and a forward, or a hook, writes: an EMA.

    An EMA may begin late, so it looks in every step. It takes a copy of those alone: torch copies
    the values of a lazy clone when one of the two is written. Memory that is not torch's own, such
    as a mapped file, is copied at once, and looked at the first time alone.
    """

    @torch.no_grad()
    def __init__(self, context: Context, *, is_first: bool) -> None:
        self._context = context
        known = {p for p in parameters_of(context.base) if p.requires_grad}
        known.update(context.written or ())
        self._lazy: list[tuple[Tensor, Tensor]] = []
        self._copied: list[tuple[Tensor, Tensor, int]] = []
        for p in context.model.parameters():
            if type(p) is nn.Parameter and p not in known:
                try:
                    self._lazy.append((p, p.detach()._lazy_clone()))
                except RuntimeError:
                    if is_first:
                        self._copied.append((p, p.detach().clone(), p._version))

    def written(self) -> list[tuple[Tensor, Tensor]]:
        """Return those that were written since, with what they were; the run knows them then."""
        address: Any = getattr(torch._C, "_data_address")  # noqa: B009 - data_ptr() would copy
        found = [(p, then) for p, then in self._lazy if address(p) != address(then)]
        for p, then, version in self._copied:
            if p._version != version or not torch.equal(p, then):
                found.append((p, then))
        known = self._context.written or []
        self._context.written = [*known, *(p for p, _ in found)]
        return found


class Part:
    """A stateful component of an optimizer. It saves and loads its own state.

    The parts of an optimizer share one dict in its checkpoint, where each has its own keys.

    Attributes:
        pending: why the methods of the optimizer must not be called now; empty if they may.
    """

    pending = ""

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold, as plain data and tensors."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken.

        It is called on a shallow copy, which takes the place of the part once all parts and the
        base could be loaded. So it replaces attributes and writes into none.

        Raises:
            StateError: if the state is that of another kind of run.
        """

    def renew(self) -> None:
        """Forget what was noted of the base: its groups or its state are new."""
