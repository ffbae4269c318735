"""What a run begins with: the settled config, what was saved of it, its data and model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from annealtune.errors import ConfigError
from annealtune.training import data
from annealtune.training.config import MOST_THREADS, RunConfig
from annealtune.training.devices import best_device, is_available
from annealtune.training.progress import Progress
from annealtune.training.session import Session
from annealtune.training.storage.directory import RunDirectory
from annealtune.training.world import World


class Found(NamedTuple):
    """What is known of a run before its data is loaded.

    Attributes:
        config: with device and threads settled.
        changes: what it changes of the run's own, in words.
        state: the last that was saved, None at the start and at the end.
        result: of a run that is finished.
    """

    config: RunConfig
    changes: list[str]
    state: dict[str, Any] | None
    result: dict[str, Any] | None


def opened(
    config: RunConfig, directory: RunDirectory, warn: Callable[[str], None], *, resume: bool
) -> Found:
    """Look at the directory of a run before anything is changed there.

    Raises:
        ConfigError: if it holds another run, or one that is not to be continued.
        RunError: if something is damaged or cannot be read.
    """
    if not (directory.has_begun and resume):
        directory.check_free()
    state = None
    if directory.result_file.exists():
        directory.check()
    else:
        state = directory.load(warn)
    resolved, changes = _resolve(config, directory)
    return Found(resolved, changes, state, directory.result())


def make_session(config: RunConfig, progress: Progress, world: World | None = None) -> Session:
    """Load the data and build model and method.

    Raises:
        ConfigError: if they do not fit together.
        DataError: if the data is missing or damaged.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    world = world or World()

    def load() -> data.Dataset:
        with progress.downloading() as show:
            return data.load(
                config.data,
                data_dir=config.data_dir,
                download=config.download,
                image_size=config.image_size,
                progress=show,
            )

    first: list[data.Dataset] = []
    world.of_first(lambda: first.append(load()))  # what it downloads is there for the others
    return Session(config, first[0] if first else load(), world)


def _resolve(config: RunConfig, directory: RunDirectory) -> tuple[RunConfig, list[str]]:
    """Settle device and threads: as the run has them, else as this machine offers them.

    Returns:
        The config, and what it changes of the run's own.
    """
    stored = directory.stored_config() if directory.has_begun else None
    changes: list[str] = []
    update: dict[str, Any] = {}
    if config.device == "auto":
        update["device"] = stored.device if stored else best_device()
    if config.threads is None:
        update["threads"] = stored.threads if stored else min(torch.get_num_threads(), MOST_THREADS)
    resolved = config.model_copy(update=update)
    if stored is not None:
        changes = directory.check_same(resolved)
    return resolved, changes


def check_device(config: RunConfig) -> None:
    """Refuse a device that this machine does not have.

    Raises:
        ConfigError: naming it.
    """
    if not is_available(config.device):
        raise ConfigError(
            f"device = {config.device!r}: is not available on this machine; take cpu or auto"
        )
