"""One rank of a world of processes that live as long as the tests: runs what it is asked to."""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
import warnings
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed

sys.path.insert(0, str(Path(__file__).parent))


def main(rank: int, world: int, store: str) -> None:
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # some frameworks print
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("default", message="SelfTuner: ")
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=60),
    )
    for line in sys.stdin:
        request = json.loads(line)
        try:
            module, _, name = request["scenario"].rpartition(".")
            scenario = getattr(importlib.import_module(module or "scenarios"), name)
            answer = {"value": scenario(**request["arguments"])}
        except Exception as error:  # noqa: BLE001
            answer = {"error": type(error).__name__, "text": str(error)}
            answer["trace"] = traceback.format_exc()
        torch.save(answer, request["out"] + f".{rank}")
        print("done", file=told, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
