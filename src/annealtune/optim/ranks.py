"""The processes that train one run together: they see the same numbers and decide alike.

`Ranks` exchanges what they compare. `Wrappers` knows DDP and FSDP2 in or around the model, and
whether a backward exchanges gradients there.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import weakref
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from annealtune.errors import RanksError
from annealtune.optim.parameters import parameters_of

# Weights are compared over the ranks at the first step and then once in this many.
_BETWEEN_COMPARISONS = 256
# Where the marks of plain steps lie on a device, they are read once in this many.
_BETWEEN_READINGS = 8
# What DDP remembers between forwards: whether a backward exchanges gradients, whether the next
# forward is given the buffers of the first rank.
_OF_DDP = ("require_backward_grad_sync", "require_forward_param_sync")
# What FSDP2 remembers for each group of parameters.
_OF_FSDP = ("reduce_grads", "all_reduce_grads")


class Ranks:
    """The ranks of a process group; one alone where torch.distributed is not in use.

    Every exchange carries the same two numbers: a loss, of which all ranks get the same mean, and a
    mark of what this rank is doing. Marks that differ are an error on every rank. So ranks cannot
    decide differently and go on.

    Args:
        owner: whose errors they are.
        base: whose weights are the same on all ranks, or sharded over them.
        group: the process group; by default that of all processes. One of this process alone makes
            it independent of the others.

    Attributes:
        count: how many there are; 1 until the first step of several.
        rank: which of them this is.
        device: where what they exchange must lie.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> ranks = Ranks("SelfTuner", torch.optim.SGD([weight]))
        >>> ranks.begin()
        >>> ranks.count
        1
    """

    def __init__(
        self, owner: str, base: Optimizer, group: distributed.ProcessGroup | None = None
    ) -> None:
        if group is not None and not isinstance(group, distributed.ProcessGroup):
            raise TypeError(
                f"{owner}(process_group=...) must be one of torch.distributed, got {group!r}"
            )
        self._owner = owner
        self._base = base
        self._group = group
        self._has_begun = False
        self.device = torch.device("cpu")
        self._unread: list[Tensor] = []  # marks of plain steps
        self._steps = 0
        self.count = 1
        self.rank = 0

    def begin(self) -> None:
        """Find out who takes part; torch.distributed may have been initialised since.

        Raises:
            RanksError: if the ranks have different weights.
        """
        if self._has_begun or not (distributed.is_available() and distributed.is_initialized()):
            return
        self._has_begun = True
        self.count = distributed.get_world_size(self._group)
        self.rank = distributed.get_rank(self._group)
        if self.count == 1:
            return
        if distributed.get_backend(self._group) not in ("gloo", "mpi"):
            self.device = parameters_of(self._base)[0].device
        self.refuse_differences("models", *(tuple(p.shape) for p in parameters_of(self._base)))
        self.compare_weights()

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that speaks for all."""
        return self.rank == 0

    def mean(self, value: float, *about: object) -> float:
        """Return the mean of a number over the ranks, the same on each.

        Args:
            value: of this rank.
            about: what all ranks must have in common.

        Raises:
            RanksError: if they have not.
        """
        if self.count == 1:
            return value
        return sum(self._numbers(value, about)) / self.count  # in the same order everywhere

    def first(self, value: float, *about: object) -> float:
        """Return the number of the first rank on each of them, for what they compute alike."""
        return self._numbers(value, about)[0] if self.count > 1 else value

    def means(self, values: list[float], *about: object) -> list[float]:
        """Return the means of several numbers, as many on each rank."""
        if self.count == 1:
            return values
        self._numbers(0.0, (len(values), *about))
        table = self._exchange(torch.tensor(values, dtype=torch.float64)).tolist()
        return [sum(column) / self.count for column in zip(*table, strict=True)]

    def mean_loss(self, losses: list[Tensor], *about: object) -> list[Tensor]:
        """Return the mean of the losses of a plain step, without waiting for a device.

        Raises:
            RanksError: if the ranks differ; noticed within a few steps.
            TypeError: if this rank knows no loss.
        """
        if self.count == 1:
            return losses
        if not losses:
            raise TypeError(
                f"{self._owner}.step: with several processes every step must know its loss, got "
                "none; wrap the function that computes it by opt.record(fn)"
            )
        own = torch.stack([loss.reshape(()).to(self.device, torch.float64) for loss in losses])
        mark = torch.tensor(_mark(about), dtype=torch.float64, device=self.device)
        table = self._exchange(torch.stack([own.mean(), mark]))
        self._unread.append(table[:, 1])
        if self.device.type == "cpu" or len(self._unread) >= _BETWEEN_READINGS:
            unread, self._unread = self._unread, []
            for marks in torch.stack(unread).tolist():
                self._compare(marks, "decisions", about)
        return [table[:, 0].sum() / self.count]

    def refuse_differences(self, what: str, *about: object) -> None:
        """Refuse ranks that do not have something in common.

        Raises:
            RanksError: naming what, and the ranks.
        """
        if self.count > 1:
            self._numbers(0.0, about, what)

    def note_step(self) -> None:
        """Count a step; now and then compare the weights of all ranks."""
        self._steps += 1
        if self._steps % _BETWEEN_COMPARISONS == 0:
            self.compare_weights()

    @torch.no_grad()
    def compare_weights(self) -> None:
        """Refuse ranks that have different weights; shards are different by nature.

        Raises:
            RanksError: if they have.
        """
        whole = [p for p in parameters_of(self._base) if type(p) in (Tensor, nn.Parameter)]
        sums = [_sum_of_bits(p).to(self.device) for p in whole]
        self.refuse_differences("weights", *(torch.stack(sums).tolist() if sums else ()))

    def _numbers(
        self, value: float, about: tuple[object, ...], what: str = "decisions"
    ) -> list[float]:
        """Return the number of every rank, once they agree about what it is."""
        table = self._exchange(torch.tensor([value, _mark(about)], dtype=torch.float64)).tolist()
        self._compare([mark for _, mark in table], what, about)
        return [number for number, _ in table]

    def _exchange(self, numbers: Tensor) -> Tensor:
        """Return the numbers of every rank, a row each."""
        numbers = numbers.to(self.device)
        table = [torch.empty_like(numbers) for _ in range(self.count)]
        distributed.all_gather(table, numbers, group=self._group)
        return torch.stack(table)

    def _compare(self, marks: list[float], what: str, about: tuple[object, ...]) -> None:
        others = [rank for rank, mark in enumerate(marks) if mark != marks[0]]
        if others:
            raise RanksError(
                f"{self._owner}.step: all ranks must have the same {what}, got others on {others} "
                f"than on rank 0 (here, on rank {self.rank}: {str(about)[:200]}). {_ADVICE[what]}"
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> Ranks:
        ranks = Ranks(self._owner, copy.deepcopy(self._base, memo), self._group)
        memo[id(self)] = ranks
        return ranks

    def __getstate__(self) -> dict[str, Any]:
        if self._group is not None:
            raise TypeError(
                f"{self._owner}: a tuner with process_group=... cannot be pickled; save its "
                "state_dict()"
            )
        return {"_owner": self._owner, "_base": self._base}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_owner"], state["_base"])  # type: ignore[misc]


_ADVICE = {
    "decisions": "Construct the tuner alike on every rank (seed, H, total_steps)",
    "models": "Build the same model on every rank, its parameters in the same order",
    "settings": "Construct the tuner alike on every rank (base, around, total_steps)",
    "weights": "Wrap the model in DistributedDataParallel, or seed torch alike before it is built",
}


def _mark(about: tuple[object, ...]) -> float:
    """Return a number that differs where a description does; small enough to be exact."""
    return float(zlib.crc32(repr(about).encode()))


def _sum_of_bits(tensor: Tensor) -> Tensor:
    """Return the sum of the bits of a tensor, taken as whole numbers: no order changes it."""
    values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits = values.detach().contiguous().view(kinds[values.element_size()])
    return bits.sum(dtype=torch.int64)


def unwrapped(model: Any) -> Any:
    """Return the module inside DDP: its names are those of a run in one process."""
    return model.module if isinstance(model, DistributedDataParallel) else model


class Wrappers:
    """The DDP and FSDP2 modules that a forward of the model runs through.

    DDP may be put around the model after the tuner is made: it is noticed in its first forward.

    Attributes:
        modules: what was found so far, weakly.
    """

    def __init__(self, model: nn.Module) -> None:
        self.modules: list[weakref.ref[nn.Module]] = []
        for module in model.modules():
            if isinstance(module, DistributedDataParallel) or _is_sharded(module):
                self.modules.append(weakref.ref(module))

    @torch.compiler.disable(  # type: ignore[untyped-decorator]
        reason="it looks for DDP: give the tuner the compiled module instead of its inside"
    )
    def notice(self, *_: Any) -> None:
        """Take in the DDP whose forward is under way, if any; a forward pre-hook."""
        wrapper = DistributedDataParallel._active_ddp_module
        if wrapper is not None and all(known() is not wrapper for known in self.modules):
            self.modules.append(weakref.ref(wrapper))

    def refuse_join(self, owner: str) -> None:
        """Refuse ranks that may stop before others do: those would wait for them for ever.

        Raises:
            RanksError: within ``with ddp.join():``.
        """
        for known in self.modules:
            if getattr(getattr(known(), "_join_config", None), "enable", False):
                raise RanksError(
                    f"{owner}.step: all ranks must make as many steps, for they decide together, "
                    "got a step within ddp.join(); write DistributedSampler(drop_last=True)"
                )

    @property
    def have_views(self) -> bool:
        """Whether DDP keeps gradients as views of its buckets."""
        return any(getattr(known(), "gradient_as_bucket_view", False) for known in self.modules)

    def present(self) -> Exchanges:
        """Return what they do at the moment."""
        live = (known() for known in self.modules)
        return Exchanges([flag for module in live for flag in _flags_of(module)])

    def __getstate__(self) -> dict[str, Any]:
        return {"modules": []}  # a copy has wrappers of its own


class Exchanges:
    """Whether each wrapper exchanges gradients, as it is now; ``no_sync`` changes it."""

    def __init__(self, holders: list[tuple[Any, str]]) -> None:
        self._flags = [(holder, name, getattr(holder, name)) for holder, name in holders]

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
