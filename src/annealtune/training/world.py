"""The processes that train one run together, as `torchrun` starts them.

Every process has the whole data set and the same minibatches, of which it computes its share. Only
the first one has to do with the run directory and with the person who watches.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from annealtune.errors import AnnealtuneError, ConfigError, RunError
from annealtune.training import planned_size
from annealtune.training.data.batches import Samples

Value = TypeVar("Value")


class World:
    """The processes of a run; this one alone, unless `joined` has found others.

    Attributes:
        rank: which of them this is.
        size: how many there are.
        wishes: returns the signal that asks this process to stop, 0 if none does, and whether it is
            time for a checkpoint. All processes do what one of them wishes.
        signal_number: what they agreed on in the last exchange.
        is_save_due: what they agreed on in the last exchange.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self.wishes: Callable[[], tuple[int, bool]] = lambda: (0, False)
        self.signal_number = 0
        self.is_save_due = False

    @property
    def is_first(self) -> bool:
        """Whether this process writes and speaks for all."""
        return self.rank == 0

    def device(self, name: str) -> torch.device:
        """Return the device of this process: each has a GPU of its own."""
        if name == "cuda" and self.size > 1:
            return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        return torch.device(name)

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model so that its gradients are means over all processes."""
        return model if self.size == 1 else DistributedDataParallel(model)

    def share(self, samples: Samples) -> tuple[Samples, float]:
        """Return this process's part of a minibatch and what its mean loss counts in the mean.

        A process for which nothing is left computes the first sample, which then counts nothing.

        Example:
            >>> samples = Samples(torch.zeros(5, 2), torch.arange(5))
            >>> part, weight = World(1, 2).share(samples)
            >>> part.targets.tolist(), weight
            ([1, 3], 0.8)
        """
        if self.size == 1:
            return samples, 1.0
        own = samples.targets[self.rank :: self.size]
        if len(own) == 0:
            return Samples(samples.inputs[:1], samples.targets[:1]), 0.0
        part = Samples(samples.inputs[self.rank :: self.size].contiguous(), own)
        return part, len(own) * self.size / len(samples.targets)

    def mean(self, value: float) -> float:
        """Return the mean of a number over the processes, and agree on what they wish."""
        if self.size == 1:
            return value
        numbers = torch.tensor([value, *map(float, self.wishes())], dtype=torch.float64)
        if distributed.get_backend() == "nccl":  # in a group that the caller has made
            numbers = numbers.cuda()
        table = [torch.empty_like(numbers) for _ in range(self.size)]
        distributed.all_gather(table, numbers)
        rows: list[list[float]] = [row.tolist() for row in table]
        self.signal_number = int(max(row[1] for row in rows))
        self.is_save_due = any(row[2] for row in rows)
        return sum(row[0] for row in rows) / self.size

    def of_first(self, make: Callable[[], Value]) -> Value:
        """Have the first process make something, or fail, and return it in each.

        Raises:
            RunError: in the others, if the first has failed: it says why.
        """
        if self.size == 1:
            return make()
        told: list[Any] = [None, None]
        try:
            if self.is_first:
                told = [make(), None]
        except BaseException as error:
            distributed.broadcast_object_list([None, type(error).__name__], src=0)
            raise
        distributed.broadcast_object_list(told, src=0)
        made, failure = told
        if failure is not None:
            raise FollowedError(failure)
        value: Value = made
        return value

    def collect(self, value: Value) -> list[Value]:
        """Return the values of all processes, in each of them."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        distributed.all_gather_object(found, value)
        return found

    @torch.no_grad()
    def share_first(self, tensors: list[Tensor]) -> None:
        """Give all processes the values that tensors have in the first."""
        if self.size > 1:
            for tensor in tensors:
                distributed.broadcast(tensor, src=0)

    def seed_apart(self, seed: int, step: int = 0) -> None:
        """Let torch draw other numbers in each process but the first: dropout of other samples."""
        if not self.is_first:
            torch.manual_seed((seed * 1_000_003 + step) * 65_537 + self.rank & (2**63 - 1))


class FollowedError(RunError):
    """The first process has failed and says why: this one has nothing to add."""


@contextlib.contextmanager
def joined(device: str) -> Iterator[World]:
    """Join the processes that were started together, and leave them in the end.

    Args:
        device: ``"cuda"`` has gradients exchanged by NCCL, everything else by gloo.

    Raises:
        ConfigError: if the device is one of several that each process should have for itself.
        RunError: if another process was lost, or torch fails in this one.
    """
    if distributed.is_available() and distributed.is_initialized():  # by the caller
        yield World(distributed.get_rank(), distributed.get_world_size())
        return
    if planned_size() == 1:
        yield World()
        return
    if device.startswith("cuda:"):
        raise ConfigError(
            f"device = {device!r}: with several processes each has a GPU of its own; take cuda"
        )
    is_cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    rank, size = int(os.environ["RANK"]), planned_size()
    try:
        # A restarted job finds the addresses of its lost processes where it finds its own.
        store, *_ = next(rendezvous("env://"))
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if is_cuda else "gloo",
            store=PrefixStore(f"annealtune-{attempt}", store),
            rank=rank,
            world_size=size,
        )
        world = World(rank, size)
        if is_cuda:
            torch.cuda.set_device(world.device("cuda"))
        yield world
    except RuntimeError as error:  # torch has no class of its own for a lost process
        if isinstance(error, AnnealtuneError):
            raise
        raise RunError(
            f"rank {rank} of {size}: {str(error).splitlines()[0][:200]}. If another process of "
            "this run was lost, start all of them again with --resume, or by torchrun "
            "--max-restarts with --resume-or-start; --debug shows where it failed"
        ) from error
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
