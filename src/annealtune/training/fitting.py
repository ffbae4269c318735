"""Whether the keys of a run fit what there is to learn."""

from __future__ import annotations

from annealtune.errors import ConfigError
from annealtune.training.config import RunConfig
from annealtune.training.config.blocks import SsaOptions, TunedOptions
from annealtune.training.task import Task


def check_task(config: RunConfig, task: Task) -> None:
    """Check every key that makes sense for some data only.

    Raises:
        ConfigError: naming the key, and what the data is.
    """
    method, options = config.method, config.options
    if config.augment != "none" and not (task.is_image and task.input_type == "uint8"):
        raise ConfigError(
            f"augment = {config.augment!r}: only uint8 images are changed at random, got "
            f"{task.input_type} samples of shape {task.input_shape}; take augment = 'none'"
        )
    if config.channels_last and not task.is_image:
        raise ConfigError(
            f"channels_last = true: only images have channels, got samples of shape "
            f"{task.input_shape}"
        )
    if task.has_accuracy:
        return
    if isinstance(options, TunedOptions) and options.accept_on == "error":
        raise _no_classes(f"{method}.accept_on = 'error'", "take 'loss' or a function of your own")
    if isinstance(options, SsaOptions) and options.objective == "error":
        raise _no_classes(f"{method}.objective = 'error'", "take 'loss'")


def _no_classes(key: str, remedy: str) -> ConfigError:
    return ConfigError(f"{key}: needs classes, which regression does not have; {remedy}")
