"""Hugging Face's Trainer: one line, ``tune(trainer)``, between making it and ``trainer.train()``.

The Trainer calls ``step()`` with nothing, clips gradients by itself and has a scheduler write the
rate. `tune` records ``compute_loss``, clips for the other arms too and puts a scheduler in place
that reads the rate instead. With Accelerate alone no integration is needed: docs/frameworks.md.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from annealtune.integrations import require
from annealtune.optim import EmbeddedTuner, SelfTuner

require("transformers", "5.22", "huggingface")
require("accelerate", "1.15", "huggingface")

from transformers import Trainer, TrainerCallback  # noqa: E402

Tuner = SelfTuner | EmbeddedTuner


def tune(trainer: Trainer, **options: Any) -> Tuner:
    """Let the learning rate of a Trainer be found inside the run, and return the tuner.

    Where the Trainer was given a tuner, ``optimizers=(tuner, None)``, that one is used. Otherwise
    the optimizer that its arguments ask for, with its groups, becomes the base of a `SelfTuner`
    over the planned steps; ``learning_rate`` then decides nothing.

    Accumulated minibatches are decided on together; clipping applies to every arm of a race;
    temperatures cool at the end of an epoch. ``learning_rate`` in the logs is the rate of the first
    group, and what else there is to log of a tuner stands beside it as ``annealtune_...``.
    Evaluations and checkpoints see the average of the weights where the tuner keeps one. Every
    evaluation is a look at the validation set, as `SelfTuner.validate` makes it, by
    ``metric_for_best_model`` or the loss: after the training the model has the best weights that
    were evaluated, without any the average, unless ``load_best_model_at_end`` has loaded others. A
    checkpoint continues exactly, also in the middle of a race.

    Args:
        trainer: before ``train`` is called.
        options: for the `SelfTuner` that is made.

    Returns:
        The tuner that trains: its ``lr``, ``races`` and ``summary()`` tell of the run.

    Raises:
        TypeError: if the Trainer is none, or has an optimizer that is no tuner.
        ValueError: if its arguments ask for a schedule of the rate, for several devices, or for a
            model that is made when training begins (``model_init``).

    Example:
        >>> trainer = Trainer(model, args, train_dataset=data)  # doctest: +SKIP
        >>> tuner = tune(trainer)  # doctest: +SKIP
        >>> trainer.train()  # doctest: +SKIP
        >>> print(tuner.lr, tuner.races)  # doctest: +SKIP
    """
    _check(trainer, options)
    if trainer.optimizer is None:
        planned = trainer.set_initial_training_values(trainer.args, trainer.get_train_dataloader())
        options = {"total_steps": planned[-1], **options}
        # The Trainer makes an optimizer of its own only where it has none.
        base = trainer.create_optimizer()
        trainer.optimizer = None  # and so it stays where an option is refused
        trainer.optimizer = SelfTuner(base, model=trainer.model, **options)
    tuner: Tuner = trainer.optimizer
    tuning = _Tuning(trainer, tuner)
    trainer.compute_loss = tuning.recorded_loss()
    trainer.create_scheduler = tuning.create_scheduler
    trainer.log = tuning.log
    trainer.add_callback(tuning)
    if isinstance(tuner, SelfTuner):
        tuner.after_replay(tuning.clip)
    return tuner


class RateReader:
    """A scheduler for loops that insist on one: it reads the rates and writes nothing."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    def step(self, *_: Any) -> None:
        """Do nothing."""

    def get_last_lr(self) -> list[float]:
        """Return the rate of every group."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the optimizer saves its rates."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing."""


class _Tuning(TrainerCallback):
    """What `tune` puts into a Trainer."""

    def __init__(self, trainer: Trainer, tuner: Tuner) -> None:
        self._trainer = trainer
        self._tuner = tuner
        self._compute_loss = trainer.compute_loss
        self._log = trainer.log
        self._is_training = False

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> RateReader:
        """Make the scheduler that reads."""
        reader = RateReader(optimizer or self._trainer.optimizer)
        self._trainer.lr_scheduler = reader
        self._trainer._created_lr_scheduler = True  # the next training makes its own
        return reader

    def recorded_loss(self) -> Any:
        """Return the Trainer's loss so that the tuner sees the minibatches."""
        scaler = self._trainer.accelerator.scaler
        recorded = self._tuner.record(self._compute_again, scaler=scaler)

        @functools.wraps(self._compute_loss)
        def compute_loss(model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            compute = recorded if torch.is_grad_enabled() else self._compute_loss
            return compute(model, inputs, *args, **kwargs)

        return compute_loss

    def _compute_again(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        # With label smoothing the Trainer takes the labels out of its inputs.
        return self._compute_loss(model, copy.copy(inputs), *args, **kwargs)

    def clip(self) -> None:
        """Clip the gradients of an arm as the Trainer clips those of the first."""
        most = self._trainer.args.max_grad_norm
        if most:
            nn.utils.clip_grad_norm_(self._trainer.model.parameters(), most)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Add what the tuner measures to the logs of the training."""
        if "loss" in logs:
            measures = self._tuner.metrics()
            logs = logs | {f"annealtune_{name}": value for name, value in measures.items()}
        self._log(logs, *args, **kwargs)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Evaluations from here on count."""
        self._is_training = True

    def on_evaluate(
        self,
        args: Any,
        state: Any,
        control: Any,
        metrics: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Take in what the Trainer has found of the weights that are in the model."""
        name = args.metric_for_best_model or "loss"
        name = name if name.startswith("eval_") else f"eval_{name}"
        if self._is_training and metrics and name in metrics:
            self._tuner._take_look(metrics[name], maximize=bool(args.greater_is_better))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Have a checkpoint hold the average."""
        if control.should_save:
            self._tuner.eval()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Cool, and have a checkpoint hold the average."""
        if isinstance(self._tuner, EmbeddedTuner):
            self._tuner.cool()
        self.on_step_end(args, state, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave the model its best weights, or those that the Trainer has loaded."""
        self._is_training = False
        model = self._trainer.model
        loaded = args.load_best_model_at_end and state.best_model_checkpoint is not None
        best = copy.deepcopy(model.state_dict()) if loaded else None
        self._tuner._finish()
        if best is not None:
            model.load_state_dict(best)


def _check(trainer: Any, options: dict[str, Any]) -> None:
    """Refuse what cannot work, before anything is changed."""
    if not isinstance(trainer, Trainer):
        raise TypeError(
            f"tune(trainer) must be given a transformers.Trainer, got {trainer!r}; with Accelerate "
            "write compute_loss = tuner.record(fn) and leave the loop as it is"
        )
    optimizer, args = trainer.optimizer, trainer.args
    if optimizer is not None and not isinstance(optimizer, Tuner):
        raise TypeError(
            "Hugging Face Trainer: tune(trainer) must find a tuner or no optimizer, got "
            f"{type(optimizer).__name__}; write Trainer(..., optimizers=(SelfTuner(optimizer, "
            "model=model, total_steps=...), None))"
        )
    if optimizer is not None and options:
        raise TypeError(
            "Hugging Face Trainer: tune(trainer, ...) takes options for a tuner that it makes, got "
            f"{', '.join(options)} although the Trainer has one; give them to that"
        )
    schedule = trainer.lr_scheduler or getattr(args.lr_scheduler_type, "value", "a schedule")
    if trainer.lr_scheduler is not None or args.lr_scheduler_type != "linear" or args.warmup_steps:
        raise ValueError(
            "Hugging Face Trainer: the learning rate is tuned and must not be written by a "
            f"scheduler, got {schedule} with warmup_steps={args.warmup_steps}; leave "
            "lr_scheduler_type and warmup_steps away and write optimizers=(tuner, None)"
        )
    if trainer.model_init is not None:
        raise ValueError(
            "Hugging Face Trainer: tune(trainer) must find the model that is trained, got "
            "model_init, which makes another one when training begins; write Trainer(model=...)"
        )
    if args.n_gpu > 1 or trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise ValueError(
            "Hugging Face Trainer: several devices must train by DDP, one process each, got "
            f"{args.n_gpu} devices in this one, DeepSpeed or FSDP; start it by torchrun, without "
            "DeepSpeed and FSDP"
        )
