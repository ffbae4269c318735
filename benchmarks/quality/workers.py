"""Runs in processes of their own, one thread each; a process that dies is a failed run."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from annealtune.errors import DataError

from .run import Spec, blank_record, run


def run_all(
    specs: Sequence[Spec], *, jobs: int, text: Path | None = None
) -> Iterator[dict[str, Any]]:
    """Make all runs and yield their records as they end.

    Raises:
        DataError: if data are not there.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # read when a process imports torch
    waiting = deque(specs)
    workers = [_Worker(text) for _ in range(min(jobs, len(specs)))]
    try:
        for worker in workers:
            worker.give(waiting.popleft())
        while busy := {w.connection: w for w in workers if w.spec is not None}:
            for connection in wait(list(busy)):
                yield busy[connection].take()
                if waiting:
                    busy[connection].give(waiting.popleft())
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process that makes one run after the other, and the run it is at."""

    def __init__(self, text: Path | None) -> None:
        self.text = text
        self.spec: Spec | None = None
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, self.text), daemon=True)
        self.process.start()
        theirs.close()  # so that the end of the process is the end of the pipe

    def give(self, spec: Spec) -> None:
        self.spec = spec
        self.connection.send(spec)

    def take(self) -> dict[str, Any]:
        spec, self.spec = self.spec, None
        assert spec is not None
        try:
            answer = self.connection.recv()
        except EOFError:
            self.process.join()
            reason = f"its process ended with exit code {self.process.exitcode}"
            self._start()
            return {**blank_record(spec), "status": "failed", "reason": reason}
        if isinstance(answer, DataError):
            raise answer
        return answer

    def end(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.join()


def _work(connection: Connection, text: Path | None) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent ends this one
    torch.set_num_threads(1)
    while True:
        try:
            spec = connection.recv()
        except EOFError:
            return
        try:
            connection.send(run(spec, text))
        except DataError as error:
            connection.send(error)
