"""The page of a run that is going on, written again as the run goes on."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from annealtune.annealing.race import RaceInfo
from annealtune.studies.records import read_lone_run
from annealtune.training.config import RunConfig
from annealtune.training.progress import Progress

if TYPE_CHECKING:
    from annealtune.training.data.download import ShowBytes
    from annealtune.training.session import Session
    from annealtune.training.task import Task

# Writing the page takes at most about this share of the time, however short the epochs are.
_SHARE = 0.1


class LivePage(Progress):
    """Shows what another progress shows, and writes the page of the run at the ends of epochs.

    Epochs that end soon after the page was written are passed over, but never the end of the run. A
    page that cannot be written is told once and stops nothing.

    Args:
        progress: what is shown besides.
        run_dir: of the run.
        show: is called with the path of the page once it is there.
    """

    def __init__(
        self, progress: Progress, run_dir: Path, show: Callable[[Path], None] | None = None
    ) -> None:
        self._progress = progress
        self._run_dir = run_dir
        self._show = show
        self._has_failed = False
        self._due_at = 0.0
        self.page: Path | None = None

    def downloading(self) -> AbstractContextManager["ShowBytes | None"]:
        """Show downloads while the context lasts."""
        return self._progress.downloading()

    @contextmanager
    def running(
        self, config: RunConfig, task: "Task", steps_per_epoch: int, step: int
    ) -> Iterator[None]:
        """Write and show the first page, show the run while the context lasts, write the last."""
        self._write_and_show(is_live=True)
        with self._progress.running(config, task, steps_per_epoch, step):
            try:
                yield
            finally:
                self._write(is_live=False)  # it does not look for a newer one any more

    def finish(self) -> None:
        """Write and show the page of a run that was finished before and so never went on."""
        if self.page is None and not self._has_failed:
            self._write_and_show(is_live=False)

    def step(self, session: "Session", loss: float) -> None:
        """Show one step."""
        self._progress.step(session, loss)

    def epoch(self, record: dict[str, Any]) -> None:
        """Show the record of an epoch and write the page, if it is time to."""
        self._progress.epoch(record)
        if time.monotonic() >= self._due_at:
            self._write(is_live=True)

    def race(self, info: RaceInfo) -> None:
        """Show a race that is over."""
        self._progress.race(info)

    def warn(self, message: str) -> None:
        """Show what went wrong."""
        self._progress.warn(message)

    def _write_and_show(self, *, is_live: bool) -> None:
        self._write(is_live=is_live)
        if self._show is not None and self.page is not None:
            self._show(self.page)

    def _write(self, *, is_live: bool) -> None:
        from annealtune.studies.report.run_page import write_run_report

        started = time.monotonic()
        try:
            run = read_lone_run(self._run_dir, large=False)
            self.page = write_run_report(run, figures=False, is_live=is_live)
        except Exception as error:  # noqa: BLE001 - told below; no picture may stop a training
            if not self._has_failed:
                goes_on = ", training goes on" if is_live else ""
                self.warn(f"the page of the run could not be written{goes_on}: {error}")
            self._has_failed = True
        ended = time.monotonic()
        self._due_at = ended + (ended - started) / _SHARE
