"""TensorBoard events of a run, for those who ask for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from annealtune.annealing.race import RaceInfo
from annealtune.errors import ConfigError
from annealtune.training.config import RunConfig


class EventFile:
    """Writes every number of an epoch as a scalar, and every race as text.

    It does nothing unless the config asks for it.

    What an earlier process wrote after ``epoch``, the number of complete epochs, is hidden.

    Raises:
        ConfigError: if TensorBoard is asked for and not installed.
    """

    def __init__(self, directory: Path, epoch: int, config: RunConfig) -> None:
        self._writer = None
        if not config.tensorboard:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError(
                "tensorboard = true: TensorBoard is not installed; "
                "pip install 'annealtune[tensorboard]'"
            ) from None
        self._writer = SummaryWriter(str(directory), purge_step=epoch + 1)

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def add(self, record: dict[str, Any]) -> None:
        """Write one epoch."""
        if self._writer is None:
            return
        for name, value in record.items():
            if isinstance(value, int | float) and name != "epoch":
                self._writer.add_scalar(name, value, record["epoch"])
        for race in record.get("races", ()):
            info = RaceInfo.from_dict(race)
            text = f"{info}\n\n```\n{info.table()}\n```"  # Markdown, which TensorBoard shows
            self._writer.add_text("races", text, record["epoch"])
        self._writer.flush()
