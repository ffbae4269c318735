"""Stands in for ``annealtune train`` where only the engine is tested: no torch, starts at once.

It keeps the promises of the real one: the lock of the run directory, one line of metrics an epoch,
continuing where it was left, saving and leaving on SIGTERM, a result at the end. The model's name
says how it behaves: ``fake:ok``, ``fake:crash``, ...
"""

import fcntl
import json
import os
import random
import signal
import sys
import time
import tomllib
from pathlib import Path

arguments = sys.argv[1:]
assert arguments[0] == "train", arguments
assert arguments[2] == "--out", arguments
assert arguments[4] == "--resume-or-start", arguments
config = tomllib.loads(Path(arguments[1]).read_text())
run = Path(arguments[3])
behaviour = config["model"].partition(":")[2]
lock = os.open(run / ".lock", os.O_RDWR | os.O_CREAT)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit("annealtune: another process is working in this directory")


def leave(number, _):
    print("annealtune: SIGTERM: saved", flush=True)
    os._exit(143)


signal.signal(signal.SIGTERM, leave)
with (run / "spans").open("a") as spans:
    spans.write(f"{time.monotonic()} ")
seed = config.get("seed", 0)
if behaviour == "crash" or (behaviour == "crash_seed_1" and seed == 1):
    print("epoch 1/9  loss nan")
    sys.exit("annealtune: [bold]the model\x1b[31m <b>broke</b>")
if behaviour == "crash_once" and not (run / "crashed").exists():
    (run / "crashed").touch()
    sys.exit("annealtune: not yet")
if behaviour == "silent":
    os._exit(3)
if behaviour == "killed":
    print("working", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
if behaviour == "no_result":
    sys.exit(0)
if behaviour == "environment":
    print(os.environ["OMP_NUM_THREADS"], os.getpgid(0) == os.getpid(), sys.stdin.read() == "")

(run / "config.toml").write_text(Path(arguments[1]).read_text())
metrics = run / "metrics.jsonl"
done = metrics.read_text().count("\n") if metrics.exists() else 0
for epoch in range(done + 1, config["epochs"] + 1):
    time.sleep(3 if behaviour == "slow" else 0.005)
    draw = random.Random(f"{config['method']} {seed} {epoch}").random()
    line = {"epoch": epoch, "validation_accuracy": draw, "validation_loss": 1 - draw}
    with metrics.open("a") as file:
        file.write(json.dumps(line) + "\n")
last = json.loads(metrics.read_text().splitlines()[-1])
result = {
    "test_accuracy": last["validation_accuracy"] / 2,
    "test_loss": 2.0,
    "training_seconds": time.monotonic(),
}
(run / "result.json").write_text(json.dumps(result))
with (run / "spans").open("a") as spans:
    spans.write(f"{time.monotonic()}\n")
