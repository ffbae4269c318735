"""DDP and FSDP2 in or around a model: whether a backward exchanges gradients with other ranks."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

# What DDP remembers between forwards: whether a backward exchanges gradients, whether the next
# forward is given the buffers of the first rank.
_OF_DDP = ("require_backward_grad_sync", "require_forward_param_sync")
# What FSDP2 remembers for each group of parameters.
_OF_FSDP = ("reduce_grads", "all_reduce_grads")


def unwrapped(model: Any) -> Any:
    """Return the module inside DDP: its names are those of a run in one process."""
    return model.module if isinstance(model, DistributedDataParallel) else model


class Wrappers:
    """The DDP and FSDP2 modules that a forward of the model runs through.

    DDP may be put around the model after the tuner is made: it is noticed in its first forward.

    Attributes:
        modules: what was found so far, weakly.
    """

    def __init__(self, model: nn.Module | None) -> None:
        self.modules: list[weakref.ref[nn.Module]] = []
        for module in () if model is None else model.modules():
            if isinstance(module, DistributedDataParallel) or _is_sharded(module):
                self.modules.append(weakref.ref(module))

    def notice(self, wrapper: nn.Module) -> None:
        """Take in the DDP whose forward is under way."""
        if all(known() is not wrapper for known in self.modules):
            self.modules.append(weakref.ref(wrapper))

    def present(self) -> Exchanges:
        """Return what they do at the moment."""
        live = (known() for known in self.modules)
        return Exchanges([flag for module in live for flag in _flags_of(module)])

    def __len__(self) -> int:
        return len(self.modules)

    def __getstate__(self) -> dict[str, Any]:
        return {"modules": []}  # a copy has wrappers of its own


class Exchanges:
    """Whether each wrapper exchanges gradients, as it is now; ``no_sync`` changes it."""

    def __init__(self, holders: list[tuple[Any, str]]) -> None:
        self._flags = [(holder, name, getattr(holder, name)) for holder, name in holders]

    @property
    def withhold(self) -> bool:
        """Whether FSDP2 keeps gradients to itself meanwhile."""
        return any(name == _OF_FSDP[0] and not flag for _, name, flag in self._flags)

    def put_back(self) -> None:
        """Make it what it was."""
        for holder, name, flag in self._flags:
            setattr(holder, name, flag)

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Exchange as it was then, meanwhile."""
        now = Exchanges([(holder, name) for holder, name, _ in self._flags])
        try:
            self.put_back()
            yield
        finally:
            now.put_back()


def through(wrapper: DistributedDataParallel, compute: Callable[[], Any]) -> Any:
    """Call a function as the forward of the module in DDP, so that its gradients are exchanged.

    Some frameworks run their whole training step there.
    """
    module = wrapper.module
    own = vars(module).get("forward")

    def put_back() -> None:
        vars(module).pop("forward", None)
        if own is not None:
            vars(module)["forward"] = own

    def forward(*_: Any) -> Any:
        put_back()  # what is computed may call it
        return compute()

    vars(module)["forward"] = forward
    try:
        return wrapper(None)  # DDP on a GPU wants an input to move
    finally:
        put_back()


def _is_sharded(module: nn.Module) -> bool:
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(module, fsdp.FSDPModule)


def _flags_of(module: Any) -> list[tuple[Any, str]]:
    """Return where a wrapper keeps what it does, and under which names."""
    if isinstance(module, DistributedDataParallel):
        return [(module, name) for name in _OF_DDP]
    if module is None:  # gone
        return []
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # torch before 2.12
        groups = [state._fsdp_param_group]
    return [(group, name) for group in groups if group is not None for name in _OF_FSDP]
