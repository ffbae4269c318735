"""Which process runs which arms of a race: all of them in this one, unless others help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from annealtune.optim.evaluation import guards
from annealtune.optim.evaluation.grad_scaler import active_scaler
from annealtune.optim.parameters import modules_of, parameters_of
from annealtune.optim.ranks import Ranks
from annealtune.optim.trial.run_state import (
    live_tensors,
    map_tensors,
    optimizer_part,
    write_optimizer_part,
)

Value = TypeVar("Value")


class Lanes:
    """The processes that share the arms of a race, arm n in process n modulo their number.

    All of them are given the same minibatches. They exchange the losses of their arms after every
    minibatch, and the winner once; between races each makes the same steps as the others.

    Args:
        base: whose run it is.
        model: whose buffers belong to it, if known.
        group: of the processes; by default this one alone.

    Example:
        >>> weight = nn.Parameter(torch.ones(1))
        >>> lanes = Lanes(torch.optim.SGD([weight]), None, None)
        >>> lanes.own([0, 1, 2])
        [0, 1, 2]
    """

    def __init__(
        self, base: Optimizer, model: nn.Module | None, group: distributed.ProcessGroup | None
    ) -> None:
        self._base = base
        self._model = model
        self._group = group
        self.ranks = Ranks("SelfTuner", base, group, argument="arms_on")

    @property
    def place(self) -> tuple[int, int]:
        """Which of the processes this is, and how many there are."""
        return self.ranks.rank, self.ranks.count

    @property
    def are_several(self) -> bool:
        """Whether some arms run elsewhere."""
        return self.ranks.count > 1

    def begin(self, *, alike: bool = True) -> None:
        """Find the others.

        Args:
            alike: whether all have the same weights, as they must before a race.

        Raises:
            RanksError: if they have not.
            TypeError: if a GradScaler is in use, which each process would adapt to its own arms.
        """
        if self._group is None:
            return
        self.ranks.begin(alike=alike)
        if self.are_several and active_scaler() is not None:
            raise TypeError(
                "SelfTuner(arms_on=...) must not be used with a GradScaler: its scale would follow "
                "the arms of one process; train in bfloat16 or float32, or leave arms_on away"
            )

    def check(self, place: tuple[int, int]) -> None:
        """Refuse arms that were saved in another place.

        Raises:
            ValueError: if they were.
        """
        self.begin(alike=False)
        if place != self.place:
            raise ValueError(
                "SelfTuner.load_state_dict: the arms of a race must be loaded into the process "
                f"that saved them, process {place[0]} of {place[1]} (arms_on=...), got process "
                f"{self.place[0]} of {self.place[1]}"
            )

    def own(self, arms: list[int]) -> list[int]:
        """Return those of some arms that run here."""
        if self.ranks.count == 1:
            return list(arms)
        rank, count = self.place
        return [arm for arm in arms if arm % count == rank]

    def exchange(
        self, values: Mapping[int, Value], arms: list[int], *about: object
    ) -> dict[int, Value]:
        """Return the values of all these arms, of which this process knows those of its own.

        Raises:
            RanksError: if the processes do not have the arms, or something else, in common.
        """
        if not self.are_several:
            return dict(values)
        self.ranks.refuse_differences("decisions", *about, *arms)
        found: list[Any] = [None] * self.ranks.count
        distributed.all_gather_object(found, dict(values), group=self._group)
        return {arm: value for known in found for arm, value in known.items()}

    @torch.no_grad()
    def spread(self, arm: int) -> None:
        """Give all processes the run of an arm, which the one that owns it has in its model."""
        if not self.are_several:
            return
        assert self._group is not None
        source = distributed.get_global_rank(self._group, arm % self.ranks.count)
        is_owner = bool(self.own([arm]))
        for tensor in live_tensors(self._base, self._model):
            self._send(tensor, source)
        part = optimizer_part(self._base)
        sent: list[Any] = [None, None]
        if is_owner:
            on_host: list[bool] = []
            sent = [map_tensors(part, lambda t: _described(t, on_host)), on_host]
        distributed.broadcast_object_list(sent, src=source, group=self._group)
        if not is_owner:
            flags = iter(sent[1])
            part = map_tensors(sent[0], lambda t: self._room_for(t, next(flags)))
        map_tensors(part, lambda tensor: self._send(tensor, source))
        if not is_owner:
            write_optimizer_part(self._base, part)
        guards.show_new_weights(modules_of(self._model))

    def _room_for(self, described: Tensor, on_host: bool) -> Tensor:
        """Return a tensor of that form, where this process has such tensors."""
        device = "cpu" if on_host else parameters_of(self._base)[0].device
        return torch.empty_like(described, device=device)

    def _send(self, tensor: Tensor, source: int) -> Tensor:
        """Send a tensor, by way of a device that the backend knows."""
        moved = tensor.to(self.ranks.device) if self.ranks.device.type != "cpu" else tensor
        distributed.broadcast(moved, src=source, group=self._group)
        if moved is not tensor:
            tensor.copy_(moved)
        return tensor

    def __getstate__(self) -> dict[str, Any]:
        if self._group is not None:
            raise TypeError(
                "SelfTuner(arms_on=...): such a tuner cannot be copied or pickled, for its arms "
                "lie in several processes; save its state_dict() in each"
            )
        return self.__dict__


def _described(tensor: Tensor, on_host: list[bool]) -> Tensor:
    """Return the form of a tensor without its values; note where it lies."""
    on_host.append(tensor.device.type == "cpu")
    return torch.empty_like(tensor, device="meta")
