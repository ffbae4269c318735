"""What would be wrong without a word around ``step`` is refused."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn

from annealtune import EmbeddedTuner


def make(kind: Any) -> tuple[nn.Module, Any]:
    model = nn.Linear(2, 1)
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, kind(base, model=model, total_steps=240)


@pytest.mark.parametrize("package", ["lightning", "pytorch_lightning"])
def test_a_closure_with_hooks_in_it(package: str) -> None:
    """Lightning passes a partial of a method; its module is all that is looked at."""
    _, opt = make(EmbeddedTuner)

    def wrapped() -> Any:
        raise AssertionError("it was run")

    wrapped.__module__ = f"{package}.pytorch.plugins.precision.precision"
    with pytest.raises(TypeError, match=r"Lightning's closure.*TunerCallback\(\)"):
        opt.step(functools.partial(wrapped))
