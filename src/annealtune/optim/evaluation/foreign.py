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
    """Return what to write in a framework that hides the minibatch, for the end of an error."""
    return next((line for module, line in _MINIBATCHES.items() if _caller(module)), "")


def scheduler_to_take_away() -> str:
    """Return where the framework that is calling us has its scheduler, for the end of an error."""
    for module, line in _SCHEDULERS.items():
        if _caller(module):
            return line
    if "timm.scheduler" in sys.modules:  # its step is called beside ours, not around it
        return ". If it is timm's, leave create_scheduler_v2 and its step and step_update away"
    return ""


_HUGGING_FACE = (
    ". In Hugging Face's Trainer write tune(trainer) before trainer.train(), from "
    "annealtune.integrations.huggingface"
)
# By the module whose method calls step; the Trainer calls Accelerate's, so it comes first.
_MINIBATCHES = {
    "transformers.trainer": _HUGGING_FACE,
    "accelerate.optimizer": (
        ". In Accelerate write compute_loss = tuner.record(fn) before the loop, then "
        "accelerator.backward(compute_loss(...))"
    ),
    "lightning.fabric.wrappers": (
        ". In Lightning Fabric write compute_loss = opt.record(fn) after fabric.setup, then "
        "fabric.backward(compute_loss(...))"
    ),
    "ignite.engine.engine": (
        ". In ignite write create_supervised_trainer(model, tuner, tuner.record(lambda x, y: "
        "loss_fn(model(x), y)), model_fn=lambda model, x: x)"
    ),
}
_SCHEDULERS = {
    "transformers.trainer": _HUGGING_FACE,
    "accelerate.optimizer": (
        ". In Accelerate write accelerator.prepare(model, tuner, loader), without a scheduler"
    ),
    "lightning.pytorch.trainer.trainer": (
        ". In Lightning return the tuner alone from configure_optimizers"
    ),
    "skorch.net": ". In skorch leave LRScheduler out of callbacks=[...]",
    "ignite.engine.engine": (
        ". In ignite leave the parameter scheduler out: no trainer.add_event_handler(..., "
        "scheduler) for the rate of a tuner"
    ),
}


def _caller(module: str) -> Any:
    """Return the object whose method, in a module of this name, is calling us; None if none is."""
    if module not in sys.modules:
        return None
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == module and "self" in frame.f_locals:
            return frame.f_locals["self"]
    return None
