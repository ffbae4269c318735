"""What some frameworks do around ``step``, and which of it would be wrong without a word."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def refuse_closure(owner: str, closure: Callable[[], Any]) -> None:
    """Refuse a closure that must not be run twice, or that is not run for every minibatch.

    Raises:
        TypeError: naming the framework, and the line to write instead.
    """
    made_in = getattr(getattr(closure, "func", closure), "__module__", None) or ""
    if made_in.startswith(("lightning.", "pytorch_lightning.")):
        raise TypeError(
            f"{owner}.step: Lightning's closure runs the hooks and logs of a training step, and "
            "must not be run again for another arm or an accept test. Write "
            "Trainer(callbacks=[TunerCallback()]), from annealtune.integrations.lightning"
        )
    accelerated = _caller("accelerate.optimizer")
    if accelerated is not None and accelerated.gradient_state.num_steps > 1:
        raise TypeError(
            f"{owner}.step: Accelerate skips a closure where it accumulates gradients, so that "
            f"only one of {accelerated.gradient_state.num_steps} minibatches would be trained on. "
            "Write compute_loss = tuner.record(fn) before prepare, then accelerator.backward("
            "compute_loss(...)) and optimizer.step()"
        )


def line_to_write() -> str:
    """Return what to write in the framework that is calling us, for the end of an error."""
    if _caller("transformers.trainer") is None:
        return ""
    return (
        ". In Hugging Face's Trainer write tune(trainer) before trainer.train(), from "
        "annealtune.integrations.huggingface"
    )


def _caller(module: str) -> Any:
    """Return the object whose method, in a module of this name, is calling us; None if none is."""
    if module not in sys.modules:
        return None
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == module:
            return frame.f_locals.get("self")
    return None
