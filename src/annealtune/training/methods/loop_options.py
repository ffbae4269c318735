"""The options of the training loop that H may set: label smoothing, clipping, dropout, ..."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.utils import clip_grad_norm_

from annealtune.annealing import Neighborhood
from annealtune.errors import ConfigError
from annealtune.optim import Attribute, LoopOption, Value
from annealtune.training.data.augmentation import CropFlip


class LoopOptions:
    """What the training loop looks up at every step.

    Attributes:
        label_smoothing: of the training loss.
        clip_norm: what the gradient is clipped to; None is never.
        names: the options that H sets.
    """

    def __init__(self, augment: CropFlip | None = None) -> None:
        self.label_smoothing = Value(0.0)
        self.clip_norm = Value(None)
        self.names: tuple[str, ...] = ()
        self._augment = augment

    def set_by(
        self, method: str, neighborhood: Neighborhood, model: nn.Module
    ) -> dict[str, LoopOption]:
        """Return the options that H names, each with the value of its first setting.

        Raises:
            ConfigError: if the model or the run has nothing that an option could set.
        """
        found: dict[str, LoopOption] = {}
        for name in neighborhood.options:
            if name in ("label_smoothing", "clip_norm"):
                found[name] = getattr(self, name)
            elif name == "dropout":
                layers = [m for m in model.modules() if isinstance(m, _DropoutNd)]
                if not layers:
                    raise ConfigError(
                        f"{method}.dropout: the model must have dropout layers, got a "
                        f"{type(model).__name__} without"
                    )
                for layer in layers:  # whatever each was made with
                    layer.p = neighborhood[0][name]
                found[name] = Attribute("p", *layers)
            elif name == "augment_strength":
                found[name] = Attribute("strength", self._augment)
        for name, option in found.items():
            option.write(neighborhood[0][name])
        self.names = tuple(found)
        return found

    @property
    def clips(self) -> bool:
        """Whether gradients are clipped."""
        return self.clip_norm.value is not None

    def clip(self, parameters: Iterable[Tensor]) -> None:
        """Clip the gradient, if that is wanted."""
        if self.clips:
            clip_grad_norm_(parameters, self.clip_norm.value)
