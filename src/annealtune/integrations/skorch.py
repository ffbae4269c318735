"""skorch: one mixin before the net's class, ``class Net(TunedMixin, NeuralNetClassifier)``.

skorch hands ``step`` a closure that also tells its callbacks that there is a gradient. The mixin
runs it once and records the loss, so that callbacks hear of a minibatch once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from annealtune.integrations import require
from annealtune.optim import EmbeddedTuner, SelfTuner

require("skorch", "1.4", "frameworks")

from skorch.callbacks import GradientNormClipping  # noqa: E402
from skorch.dataset import unpack_data  # noqa: E402


class TunedMixin:
    """Let the learning rate of a skorch net be found inside its training.

    The optimizer that the net asks for becomes the base of a tuner. Validation sees the average of
    the weights where the tuner keeps one. After ``fit`` the net has, and predicts with, the weights
    of the epoch with the lowest ``valid_loss``, where there is one, or else the average.
    ``GradientNormClipping`` applies to every arm of a race. At the end of an epoch temperatures
    cool. ``lr`` decides nothing but the ratios between groups.

    Example:
        >>> from skorch import NeuralNetClassifier
        >>> class Net(TunedMixin, NeuralNetClassifier):
        ...     def make_tuner(self, base):  # optional
        ...         return SelfTuner(base, model=self.module_, total_steps=1000)
    """

    optimizer_: Any
    callbacks_: Any
    history: Any
    module_: Any

    def make_tuner(self, base: Optimizer) -> SelfTuner | EmbeddedTuner:
        """Return the tuner of an optimizer; by default a `SelfTuner` for a run of any length."""
        return SelfTuner(base, model=self.module_)

    def initialize_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """Make the optimizer as the net would, and the tuner over it."""
        made = super().initialize_optimizer(*args, **kwargs)  # type: ignore[misc]
        self.optimizer_ = self.make_tuner(self.optimizer_)
        if isinstance(self.optimizer_, SelfTuner):
            self.optimizer_.after_replay(self._clip)
        return made

    def train_step_single(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """Compute loss and gradient of a minibatch, remembering how."""
        self._set_training(True)
        compute = self.optimizer_.record(self._compute)
        loss, predicted = compute(*unpack_data(batch), fit_params)
        loss.backward()
        return {"loss": loss, "y_pred": predicted}

    def notify(self, method_name: str, **kwargs: Any) -> None:
        """Cool and take in the validation at the end of an epoch; leave the best weights."""
        if method_name == "on_epoch_end" and isinstance(self.optimizer_, EmbeddedTuner):
            self.optimizer_.cool()  # a callback that saves the run comes after it
        if method_name == "on_train_end" and self.optimizer_.looks:
            self.optimizer_._finish()  # a callback that loads others comes after it
        super().notify(method_name, **kwargs)  # type: ignore[misc]
        if method_name == "on_epoch_end" and "valid_loss" in self.history[-1]:
            self.optimizer_._take_look(self.history[-1, "valid_loss"])

    def load_params(self, *args: Any, **kwargs: Any) -> None:
        """Load as the net would: weights that are loaded are predicted with and trained from.

        Those of the module alone take the place of the average until there is a step. With the
        state of the optimizer its best weights are loaded too, or its average, and predicted with.
        """
        if hasattr(self, "optimizer_"):
            self.optimizer_.eval()  # what is written from here on is kept
        super().load_params(*args, **kwargs)  # type: ignore[misc]
        if kwargs.get("f_optimizer") is not None and self.optimizer_.looks:
            self.optimizer_._finish()

    def _compute(self, inputs: Any, labels: Any, fit_params: dict[str, Any]) -> tuple[Tensor, Any]:
        net: Any = self
        predicted = net.infer(inputs, **fit_params)
        return net.get_loss(predicted, labels, X=inputs, training=True), predicted

    def _step_optimizer(self, step_fn: Callable[[], Any] | None) -> None:
        if step_fn is not None:
            step_fn()
        self.optimizer_.step()

    def _set_training(self, training: bool = True) -> None:
        super()._set_training(training)  # type: ignore[misc]
        if training:
            self.optimizer_.train()
        else:
            self.optimizer_.eval()

    def _clip(self) -> None:
        net: Any = self
        for _, callback in self.callbacks_:
            if isinstance(callback, GradientNormClipping):
                callback.on_grad_computed(net, named_parameters=net.get_all_learnable_params())
