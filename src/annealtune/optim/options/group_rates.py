"""The ratios between the learning rates of an optimizer's groups, which a tuner keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from annealtune.optim.evaluation.foreign import scheduler_to_take_away
from annealtune.optim.part import Part


class GroupRates(Part):
    """One rate for all groups, each group at its own multiple of it.

    The multiple of a group is its learning rate before tuning over the largest one of all groups,
    times its ``lr_scale`` where it has one (timm's layer decay).

    Raises:
        ValueError: if a group has no learning rate, or none of them is positive.

    Example:
        >>> import torch
        >>> body, head = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
        >>> base = torch.optim.SGD(
        ...     [{"params": body.parameters(), "lr": 0.001}, {"params": head.parameters()}], lr=0.01
        ... )
        >>> rates = GroupRates("SelfTuner", base)
        >>> rates.write(1.0)
        >>> [group["lr"] for group in base.param_groups]
        [0.1, 1.0]
    """

    def __init__(self, owner: str, base: Optimizer) -> None:
        self._owner = owner
        self._base = base
        given = [self._given(group) for group in base.param_groups]
        self._largest = max(given)
        if not 0 < self._largest < math.inf:
            raise ValueError(
                f"{owner}(base=...) must have a group with a positive learning rate, for the "
                f"ratios between groups are kept, got {', '.join(map(str, given))}"
            )
        self._ratios = [rate / self._largest for rate in given]
        self._left: list[Any] | None = None  # the rates that nobody else may change

    def write(self, rate: float) -> None:
        """Give every group its multiple of a rate."""
        written: set[int] = set()
        for group, multiple in zip(self._base.param_groups, self.multiples(), strict=True):
            if isinstance(group["lr"], Tensor):
                if id(group["lr"]) in written:  # torch gives all groups one tensor
                    group["lr"] = group["lr"].clone()
                group["lr"].fill_(rate * multiple)
                written.add(id(group["lr"]))
            else:
                group["lr"] = rate * multiple

    def apply(self, setting: Mapping[str, Any]) -> None:
        """Write a setting: its rate as `write` does, every other option as it is."""
        self.write(setting["lr"])
        for option in setting.keys() - {"lr"}:
            for group in self._base.param_groups:
                if isinstance(group[option], Tensor):
                    group[option].fill_(setting[option])
                else:
                    group[option] = setting[option]

    def multiples(self) -> list[float]:
        """Return what the rate is multiplied by in each group; one that was just added counts."""
        groups = self._base.param_groups
        if len(groups) > len(self._ratios):
            added = groups[len(self._ratios) :]
            self._ratios += [self._given(group) / self._largest for group in added]
        return [
            ratio * float(group.get("lr_scale", 1.0))
            for ratio, group in zip(self._ratios, groups, strict=True)
        ]

    def claim(self) -> None:
        """Note the rates as they are: nobody else may change them from here on."""
        self._left = self._present()

    def release(self) -> None:
        """Let them be changed until they are claimed again."""
        self._left = None

    renew = release

    def refuse_others(self) -> None:
        """Refuse whoever else writes the rate."""
        present = self._present()
        scheduled = [group for group in self._base.param_groups if "initial_lr" in group]
        if scheduled or (self._left is not None and self._left != present):
            raise ValueError(
                f"{self._owner}: the learning rate is tuned and must not be written by anything "
                "else, got a scheduler (a group has 'initial_lr') or a rate that has changed since "
                f"the last step: {self._left} became {present}. Take the scheduler away; the rate "
                f"falls by itself if total_steps=... is given{scheduler_to_take_away()}"
            )

    def _present(self) -> list[Any]:
        # A rate in a tensor is not read: that would wait for the device.
        return [
            id(group["lr"]) if isinstance(group["lr"], Tensor) else group["lr"]
            for group in self._base.param_groups
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return the ratios: those of groups that were added later cannot be found again."""
        return {"rates": {"largest": self._largest, "ratios": list(self._ratios)}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        rates = state["rates"]
        self._largest, self._ratios = rates["largest"], list(rates["ratios"])

    def _given(self, group: Mapping[str, Any]) -> float:
        if "lr" not in group:
            raise ValueError(
                f"{self._owner}(base=...) must have a learning rate in every group, got one with "
                f"{', '.join(key for key in group if key != 'params')}"
            )
        return float(group["lr"])
