"""Only one process works in a run directory, and notices if that is no longer so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from annealtune.errors import RunError

LOCK = ".lock"


class Lock:
    """The lock of a run directory, free again when the process ends, however it ends."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._held: tuple[int, int] | None = None
        self._owner = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the directory, which is made if it is not there.

        Raises:
            RunError: if another process holds it, or it cannot be written to.
        """
        try:
            self._run.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(self._run / LOCK, timeout=0)
            lock.acquire()
            self._held, self._owner = self._file(), os.getpid()
        except filelock.Timeout:
            raise RunError(
                f"{self._run}: another process is working in this run directory; wait for it or "
                "choose another --out"
            ) from None
        except OSError as error:
            raise RunError(
                f"{self._run}: cannot be used as a run directory: {error.strerror or error}; "
                "choose another --out"
            ) from error
        try:
            yield
        finally:
            self._held = None
            lock.release()

    def check(self) -> None:
        """Check, before something is written, that the directory is still this process's.

        Raises:
            RunError: if the lock was removed, so that another process may have taken it.
        """
        if self._held is not None and self._owner != os.getpid():
            raise RunError(
                f"{self._run}: this process is a copy of the one that works here, made by os.fork "
                "in the code of a model or a data set; it wrote nothing"
            )
        if self._held is not None and self._file() != self._held:
            raise RunError(
                f"{self._run}: its {LOCK} was removed while the run went on, so that another "
                "process may be working here. This one wrote nothing more; what was saved before "
                "can be continued with --resume"
            )

    def _file(self) -> tuple[int, int] | None:
        try:
            found = (self._run / LOCK).stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino
