"""Worlds of real processes that talk by gloo over loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # scenarios are called here too, as a world of one

Answers = list[dict[str, Any]]


class World:
    """Processes that run the same scenario together; they are ended by their ids."""

    def __init__(self, size: int, folder: Path) -> None:
        self._folder = folder
        self._asked = 0
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(HERE / "worker.py"), str(rank), str(size), f"{folder}/store"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                text=True,
            )
            for rank in range(size)
        ]

    def answers(self, scenario: str, **arguments: Any) -> Answers:
        """Return what every rank answered, errors included."""
        self._asked += 1
        out = str(self._folder / str(self._asked))
        request = json.dumps({"scenario": scenario, "arguments": arguments, "out": out})
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(request + "\n")
            process.stdin.flush()
        for process in self._processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n", "a rank has died"
        count = len(self._processes)
        return [torch.load(f"{out}.{rank}", weights_only=False) for rank in range(count)]

    def __call__(self, scenario: str, **arguments: Any) -> list[Any]:
        """Return the values of every rank."""
        answers = self.answers(scenario, **arguments)
        for answer in answers:
            assert "error" not in answer, answer["trace"]
        return [answer["value"] for answer in answers]

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], World]]:
    """Worlds by their size, made when they are first needed."""
    worlds: dict[int, World] = {}

    def of(size: int) -> World:
        if size not in worlds:
            worlds[size] = World(size, tmp_path_factory.mktemp(f"world-{size}"))
        return worlds[size]

    yield of
    for each in worlds.values():
        each.end()
