"""Noise that is the same every time, for tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def fixed_noise(seed: int) -> Iterator[None]:
    """Seed torch's global generator within the block, and put it back after that."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
