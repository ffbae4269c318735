"""Judged by another minibatch: the same run accepted by the same, the next, a held-out one.

The loss of the minibatch that made the gradient rewards fitting that minibatch. From the command
line: annealtune train --method sgd-sa --accept-batch next
"""

import json
import tempfile
from pathlib import Path

from annealtune.training import run
from annealtune.training.config import from_values

print("judged by   kept of all moves   test accuracy   forwards + 2 x backwards")
for accept_batch in ("same", "next", "held-out"):
    config = from_values(
        {
            "data": "digits",
            "model": "mlp",
            "method": "sgd-sa",
            "epochs": 10,
            "threads": 1,
            "sgd-sa": {"lr": [3.0, 1.0, 0.3, 0.1, 0.03], "accept_batch": accept_batch},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        result = run(config, Path(folder) / "run")
        epochs = (Path(folder) / "run" / "moves.jsonl").read_text().splitlines()
    moves = [move for epoch in epochs for move in json.loads(epoch)["settings"]]
    kept = sum(move["accepted"] for move in moves) / sum(move["tried"] for move in moves)
    cost = result["forwards"] + 2 * result["backwards"]
    print(f"{accept_batch:<11} {kept:17.1%} {result['test_accuracy']:15.1%} {cost:10}")
