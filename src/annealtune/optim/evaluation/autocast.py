"""The autocast that a forward ran in, to be entered again or compared."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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
    devices = ("cpu", "cuda") if torch.cuda.is_initialized() else ("cpu",)
    return tuple(
        Autocast(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in devices
    )


@contextlib.contextmanager
def entered(precisions: tuple[Autocast, ...]) -> Iterator[None]:
    """Compute as it was then."""
    with contextlib.ExitStack() as stack:
        for device, enabled, dtype in precisions:
            stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
        yield
