"""The autocast that a forward ran in, to be entered again or compared."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Autocast(NamedTuple):
    """The precision on one kind of device."""

    device: str
    enabled: bool
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"torch.autocast({self.device!r}, {self.dtype})" if self.enabled else "no autocast"

    def agrees(self, other: Autocast) -> bool:
        """Whether a forward computes the same in both; what is switched off has no precision."""
        return self == other or not (self.enabled or other.enabled)


def present() -> tuple[Autocast, ...]:
    """Return what is on now, for the CPU and for CUDA where it is used."""
    enabled, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
    cpu = Autocast("cpu", enabled("cpu"), dtype("cpu"))
    if not torch.cuda.is_initialized():
        return (cpu,)
    return cpu, Autocast("cuda", enabled("cuda"), dtype("cuda"))
