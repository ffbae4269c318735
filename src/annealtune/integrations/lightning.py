"""Lightning: a tuner from ``configure_optimizers``, and a callback that lets it see minibatches.

Lightning hands ``step`` a closure that runs the training step with all its hooks and logs. The
callback has that closure run once, as for any optimizer, and records ``training_step``, so that the
tuner can compute the loss of a minibatch again without Lightning noticing.
"""

from __future__ import annotations

import contextlib
import copy
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn

from annealtune.integrations import require
from annealtune.optim import EmbeddedTuner, SelfTuner
from annealtune.optim.hooks import TORCHS_OWN
from annealtune.optim.run_state import RandomState

require("lightning", "2.6.1", "lightning", unsafe=("2.6.2", "2.6.3"))  # these were malicious

from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402
from lightning.pytorch.loggers.logger import DummyLogger  # noqa: E402
from lightning.pytorch.strategies import DDPStrategy  # noqa: E402

Tuner = SelfTuner | EmbeddedTuner

_WEIGHTS = "annealtune_training_weights"  # their key in a checkpoint
_MONITOR = "val_loss"  # what most modules call it; nothing is said where one does not log it


class TunerCallback(Callback):
    """Make `SelfTuner`, `EmbeddedTuner` and `SGDSA` work in Lightning.

    Training step, hooks, logs and ``global_step`` are counted once a step, whatever the tuner
    computes again; accumulated minibatches are decided on together; clipping by the Trainer applies
    to every arm of a race. At the end of an epoch temperatures cool. Rate, races, temperature and
    acceptance are logged as ``annealtune/...``. Validation and checkpoints see the average of the
    weights where the tuner keeps one. After ``fit`` the module has the weights of the best
    validation, or else the average. Checkpoints continue exactly, also in the middle of a race;
    torch's random state is in them.

    Args:
        loss: the method of the module that computes the loss. By default ``training_step``; then
            its body runs again for other arms and accept tests, without a trace in the module, its
            logs and its metrics. What it does elsewhere (``print``, files, the insides of objects
            that it holds) happens again, unless the loss has a method of its own that is named
            here. In manual optimization, where the training step calls ``step``, it must be given.
        monitor: the metric that tells the best validation, where the module logs it.
        mode: ``"min"`` or ``"max"``: whether smaller or larger is better.

    Raises:
        TypeError: when fitting begins, if not one of the optimizers is a tuner, a scheduler is
            there too, or ``loss`` names no method.
        ValueError: if ``mode`` is unknown; if several processes train by another strategy than
            DDP, or by manual optimization; after a validation that did not log the ``monitor`` that
            was asked for.

    Example:
        >>> import lightning, torch
        >>> from annealtune import SelfTuner
        >>> class Line(lightning.LightningModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.layer = torch.nn.Linear(2, 1)
        ...
        ...     def training_step(self, batch, batch_idx):
        ...         return self.layer(batch).square().mean()
        ...
        ...     def configure_optimizers(self):
        ...         base = torch.optim.AdamW(self.parameters())
        ...         steps = self.trainer.estimated_stepping_batches
        ...         return SelfTuner(base, model=self, total_steps=steps)
        >>> trainer = lightning.Trainer(callbacks=[TunerCallback()])  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        loss: str | None = None,
        monitor: str = _MONITOR,
        mode: Literal["min", "max"] = "min",
    ) -> None:
        if mode not in ("min", "max"):
            raise ValueError(
                f"Lightning: TunerCallback(mode=...) must be 'min' or 'max', got {mode!r}"
            )
        self._monitor, self._mode = monitor, mode
        self._loss = loss
        self._tuner: Tuner | None = None  # while fitting
        self._undo = contextlib.ExitStack()  # of what fitting has put into module and tuner
        self._swapped = contextlib.ExitStack()  # of the average that is in the model
        self._start: RandomState | None = None  # of a checkpoint
        self._waits = False  # whether a loss was computed since the last step

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the tuners and let them see the minibatches."""
        tuner = self._tuner = _tuner_of(trainer)
        _check_processes(trainer, pl_module)
        automatic = pl_module.automatic_optimization
        name = self._loss or ("training_step" if automatic else "")
        self._record(pl_module, name, tuner, getattr(trainer.precision_plugin, "scaler", None))
        self._run_closures_once(pl_module, tuner)
        if automatic and isinstance(tuner, SelfTuner):
            self._clip_every_arm(trainer, pl_module, tuner)
        if self._start is not None:
            self._start.put_back()
            self._start = None

    def _record(self, module: LightningModule, name: str, tuner: Tuner, scaler: Any) -> None:
        compute = getattr(module, name, None)
        if not callable(compute):
            raise TypeError(
                f"Lightning: TunerCallback(loss={name!r}) must name a method of "
                f"{type(module).__name__} that computes the loss, also in manual optimization, got "
                f"{compute!r}"
            )
        is_first = False

        def compute_quietly(
            before: Attributes | None, *args: Any, **kwargs: Any
        ) -> tuple[Any, Any]:
            with contextlib.nullcontext() if is_first else _again(module, before):
                output = compute(*args, **kwargs)
            loss = output.get("loss") if isinstance(output, Mapping) else output
            if loss is None:
                raise _SkippedError
            return loss, output

        recorded = tuner.record(compute_quietly, scaler=scaler)

        def compute_first(*args: Any, **kwargs: Any) -> Any:
            nonlocal is_first
            is_first = True
            before = Attributes(module) if getattr(tuner, "is_racing", True) else None
            try:
                output = recorded(before, *args, **kwargs)[1]
                self._waits = True
                return output
            except _SkippedError:
                return None
            finally:
                is_first = False

        setattr(module, name, compute_first)
        self._undo.callback(vars(module).pop, name, None)

    def _run_closures_once(self, module: LightningModule, tuner: Tuner) -> None:
        """Have the tuner run Lightning's closure as any optimizer does, then make its own step."""
        make_step: Callable[..., Any] = tuner.step

        def step(_: Any, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
            result = None if closure is None else closure()
            if module.automatic_optimization and not self._waits:
                return result  # training_step returned None: no gradient, nothing to decide
            self._waits = False
            own = make_step(**kwargs)
            return own if result is None else result

        tuner.step = types.MethodType(step, tuner)  # type: ignore[method-assign]
        self._undo.callback(vars(tuner).pop, "step", None)

    def _clip_every_arm(self, trainer: Trainer, module: LightningModule, tuner: SelfTuner) -> None:
        def clip() -> None:
            with _again(module):
                module.configure_gradient_clipping(
                    tuner, trainer.gradient_clip_val, trainer.gradient_clip_algorithm
                )

        self._undo.callback(tuner.after_replay(clip).remove)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log what the tuner did."""
        if self._tuner is not None:
            values = {f"annealtune/{name}": v for name, v in self._tuner.metrics().items()}
            pl_module.log_dict(values, on_step=True, on_epoch=False)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Cool."""
        if isinstance(self._tuner, EmbeddedTuner):
            self._tuner.cool()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give the model its average."""
        if self._tuner is not None and self._tuner.averages:
            self._swapped.enter_context(self._tuner.averaged())

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take in what was found, and give the model back the weights that are trained."""
        if self._tuner is not None and not trainer.sanity_checking:
            self._take_look(trainer, self._tuner)
        self._swapped.close()

    def _take_look(self, trainer: Trainer, tuner: Tuner) -> None:
        metrics = trainer.callback_metrics
        if self._monitor in metrics:
            tuner._take_look(float(metrics[self._monitor]), maximize=self._mode == "max")
        elif self._monitor != _MONITOR:
            raise ValueError(
                f"Lightning: TunerCallback(monitor={self._monitor!r}) must be the name of a metric "
                "that is logged in a validation, got none of that name, only "
                f"{', '.join(metrics) or 'nothing'}"
            )

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Leave nothing behind."""
        self._swapped.close()
        self._leave()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give the model its best weights for good, or else its average."""
        if self._tuner is not None and not getattr(self._tuner, "is_racing", False):
            self._tuner.load_best()  # in a race the arm that leads stays
        self._leave()

    def _leave(self) -> None:
        self._undo.close()
        self._tuner = None

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Save the average as the model's weights, and the trained ones beside it."""
        if self._tuner is not None and self._tuner.averages:
            checkpoint[_WEIGHTS] = checkpoint["state_dict"]
            with self._tuner.averaged():
                checkpoint["state_dict"] = copy.deepcopy(pl_module.state_dict())

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Continue with the weights that were trained; to test or predict keep the average."""
        if trainer.training and _WEIGHTS in checkpoint:
            pl_module.load_state_dict(checkpoint[_WEIGHTS])

    def state_dict(self) -> dict[str, Any]:
        """Return torch's random state in every process: Lightning does not save it."""
        every: list[Any] = [RandomState.capture().state_dict()]
        if distributed.is_initialized():
            own, every = every[0], [None] * distributed.get_world_size()
            distributed.all_gather_object(every, own)
        return {"ranks": every}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with that random state when fitting begins; not with another's."""
        rank, world = 0, 1
        if distributed.is_initialized():
            rank, world = distributed.get_rank(), distributed.get_world_size()
        if len(state_dict["ranks"]) == world:
            self._start = RandomState(**state_dict["ranks"][rank])


class _SkippedError(Exception):
    """A training step without a loss."""


def _tuner_of(trainer: Trainer) -> Tuner:
    """Return the tuner of a Trainer, if it can work there."""
    found = [tuner for tuner in trainer.optimizers if isinstance(tuner, Tuner)]
    if len(found) != 1:
        names = ", ".join(type(optimizer).__name__ for optimizer in trainer.optimizers)
        raise TypeError(
            "Lightning: TunerCallback must find one tuner, got "
            f"{names or 'no optimizer'}; in configure_optimizers write return "
            "SelfTuner(optimizer, model=self, total_steps=self.trainer.estimated_stepping_batches)"
        )
    for config in trainer.lr_scheduler_configs:
        scheduler: Any = config.scheduler
        if scheduler.optimizer is found[0]:
            raise TypeError(
                "Lightning: the learning rate is tuned and must not be written by a scheduler, got "
                f"{type(scheduler).__name__}; in configure_optimizers return the tuner alone"
            )
    return found[0]


def _check_processes(trainer: Trainer, module: LightningModule) -> None:
    """Refuse several processes where the gradients of other arms would not be exchanged."""
    if trainer.world_size == 1:
        return
    if not isinstance(trainer.strategy, DDPStrategy):
        raise ValueError(
            "Lightning: several processes must train by DDP, got "
            f"{type(trainer.strategy).__name__}; write Trainer(strategy='ddp')"
        )
    if not module.automatic_optimization:
        raise ValueError(
            "Lightning: with several processes a tuner needs automatic optimization, got "
            f"{trainer.world_size} of them and manual optimization, which exchanges gradients in "
            "the middle of a training step; write Trainer(devices=1), or a loop with Fabric"
        )


@contextlib.contextmanager
def _again(module: LightningModule, before: Attributes | None = None) -> Iterator[None]:
    """Let a method run again without a trace: nothing is logged, attributes and metrics stay.

    ``before`` has the attributes as they were before it ran for the first time.
    """
    metrics = [(m, _metric_state(m)) for m in module.modules() if hasattr(m, "metric_state")]
    after, trainer = Attributes(module), module.trainer
    loggers = trainer.loggers
    try:
        if before is not None:
            before.restore()
        trainer.loggers = [DummyLogger() for _ in loggers]  # Lightning's own, which takes anything
        vars(module).update(dict.fromkeys(("log", "log_dict", "print"), lambda *_, **__: None))
        yield
    finally:
        trainer.loggers = loggers
        after.restore()
        for metric, state in metrics:
            vars(metric).update(state)


def _metric_state(metric: Any) -> dict[str, Any]:
    """Return what a torchmetrics metric remembers; it adds to its tensors and lists in place."""
    state = dict(vars(metric))
    for name in metric.metric_state:
        value = state[name]
        state[name] = value.clone() if isinstance(value, Tensor) else list(value)
    return state


class Attributes:
    """The plain attributes of a module as they are now, to be put back.

    Tensors, lists, dicts, sets and deques are put back with what is in them, one level deep. Of any
    other object only which one it was: what it changes inside stays changed.

    Example:
        >>> module = nn.Module()
        >>> module.counter, module.losses = 0, []
        >>> before = Attributes(module)
        >>> module.counter += 1
        >>> module.losses.append(0.5)
        >>> before.restore()
        >>> module.counter, module.losses
        (0, [])
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._values = {k: v for k, v in vars(module).items() if k not in TORCHS_OWN}
        containers = (list, dict, set, deque)
        values = self._values.values()
        self._contents = [(v, copy.copy(v)) for v in values if isinstance(v, containers)]
        tensors = [v for v in values if isinstance(v, Tensor)]
        self._tensors = [(v, v._version, v.detach().clone()) for v in tensors]

    def restore(self) -> None:
        """Put them back, and remove those that are new."""
        present = vars(self._module)
        for name in present.keys() - self._values.keys() - TORCHS_OWN:
            del present[name]
        present.update(self._values)
        for value, contents in self._contents:
            value.clear()
            if isinstance(value, list | deque):
                value.extend(contents)
            else:
                value.update(contents)
        for tensor, version, numbers in self._tensors:
            if tensor._version != version:  # one that nobody wrote into may be part of a graph
                with torch.no_grad():
                    tensor.copy_(numbers)
