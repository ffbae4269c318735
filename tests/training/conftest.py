"""A tiny run, what came out of it, and the program warmed up."""

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from annealtune.training import data, models
from annealtune.training.config import from_values
from annealtune.training.runs import run
from annealtune.training.session import Session
from annealtune.training.storage.seal import seal_run
from annealtune.training.task import Task

SOURCE = Path(__file__).parents[2] / "src"

# 180 images to train on, 6 steps an epoch; the net has BatchNorm and dropout.
TINY = {
    "method": "sgd-sa",
    "model": "small-cnn-w8",
    "train_size": 200,
    "batch_size": 30,
    "epochs": 3,
    "threads": 1,
}


@pytest.fixture
def tiny():
    """Makes the config of a run that takes a fraction of a second."""
    return lambda **changes: from_values({**TINY, **changes})


@pytest.fixture
def tiny_flags():
    """The same as flags of the program."""
    pairs = [(f"--{key.replace('_', '-')}", str(value)) for key, value in TINY.items()]
    return [word for pair in pairs for word in pair]


@pytest.fixture
def complete(tiny, place):
    """Makes a tiny run and returns its directory."""
    numbers = iter(range(1000))

    def complete(directory: Path | None = None, **changes) -> Path:
        directory = directory or place / f"run-{next(numbers)}"
        run(tiny(**changes), directory)
        return directory

    return complete


@pytest.fixture
def session(tiny, digits):
    """Makes a tiny run in memory."""
    return lambda **changes: Session(tiny(**{"device": "cpu", **changes}), digits)


@pytest.fixture(scope="session")
def digits():
    """The data of a tiny run."""
    return data.load("digits")


@pytest.fixture
def by_hand(digits):
    """Makes the model of a tiny run and its minibatches, without annealtune.training's loop."""

    def by_hand():
        part = data.subset(digits, 200, seed=0)
        chosen, _ = data.split(200, 0.1, seed=0)
        batches = data.Batches(
            part.train_inputs[chosen],
            part.train_targets[chosen],
            batch_size=30,
            seed=0,
            mean=part.mean,
            std=part.std,
            scale=part.scale,
            channels_last=True,
        )
        torch.manual_seed(0)
        model = models.build(
            "small-cnn-w8", Task.of_images(channels=1, image_size=(8, 8), classes=10)
        )
        model.to(memory_format=torch.channels_last)
        return model, batches

    return by_hand


def without_seconds(value):
    """Drop what depends on the clock."""
    if isinstance(value, dict):
        return {
            key: without_seconds(item)
            for key, item in value.items()
            if not str(key).endswith("_seconds")
        }
    return value


def comparable(value):
    """Make tensors comparable bit by bit with ``==``, and NaN equal to NaN."""
    if isinstance(value, float) and value != value:
        return "nan"
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.contiguous().numpy().tobytes()
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(item) for item in value]
    return value


@pytest.fixture
def lines_of():
    """Reads the records of a run."""
    return lambda path: [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def newest():
    """The file of the newest checkpoint."""
    return lambda directory, age=0: sorted((directory / "checkpoints").glob("*.pt"))[-1 - age]


@pytest.fixture
def outcome(lines_of, newest):
    """Everything a finished run has produced, clock readings apart, for comparison with ``==``."""

    def outcome(directory: Path) -> dict:
        state = torch.load(newest(directory), weights_only=True)
        for key in ("seconds", "config", "records"):  # of the clock, and of the command line
            del state[key]
        moves = directory / "moves.jsonl"
        return {
            "files": sorted(path.name for path in directory.iterdir()),
            "checkpoints": sorted(path.suffix for path in newest(directory).parent.iterdir()),
            "weights": (directory / "best.safetensors").read_bytes(),
            "best": (directory / "best.json").read_text(),
            "result": without_seconds(json.loads((directory / "result.json").read_text())),
            "metrics": [without_seconds(line) for line in lines_of(directory / "metrics.jsonl")],
            "moves": lines_of(moves) if moves.exists() else None,
            "state": comparable(state),
        }

    return outcome


@pytest.fixture(scope="session")
def _known_outcomes():
    return {}


@pytest.fixture
def undisturbed(_known_outcomes, complete, outcome):
    """What a tiny run gives when nobody touches it."""

    def undisturbed(**changes) -> dict:
        key = json.dumps(changes, sort_keys=True)
        if key not in _known_outcomes:
            _known_outcomes[key] = outcome(complete(**changes))
        return _known_outcomes[key]

    return undisturbed


@pytest.fixture
def seal_again():
    """Seals a finished run as it is now, for what no run would write."""
    return lambda directory: seal_run(
        directory, json.loads((directory / "result.json").read_text())
    )


@pytest.fixture
def contents():
    """All files below a directory with their bytes, the empty lock apart."""

    def contents(directory: Path) -> dict[str, bytes]:
        files = (path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")
        return {str(path.relative_to(directory)): path.read_bytes() for path in files}

    return contents


@pytest.fixture
def default_setup():
    """Commands begin at once: they start no runs of a study."""
    return ""


@pytest.fixture
def counted(monkeypatch):
    """Counts the forwards of a session's model and all backwards, by what torch really calls."""

    def counted(session) -> Counter:
        found, real = Counter(), torch.autograd.backward

        def backward(*args, **kwargs):
            found["backwards"] += 1
            return real(*args, **kwargs)

        session.model.register_forward_hook(lambda *_: found.update(["forwards"]))
        monkeypatch.setattr(torch.autograd, "backward", backward)
        return found

    return counted


@pytest.fixture
def at_call():
    """Writes Python text that sends the process a signal at the n-th call of a function."""

    def at_call(target: str, count: int, number: int = signal.SIGKILL, *, after: bool = False):
        module, _, path = target.partition(":")
        return f"""
def sabotage():
    import importlib, os
    owner = importlib.import_module({module!r})
    *parents, name = {path!r}.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    real, calls = getattr(owner, name), []
    def sabotaged(*args, **kwargs):
        calls.append(None)
        if len(calls) == {count} and not {after}:
            os.kill(os.getpid(), {int(number)})
        value = real(*args, **kwargs)
        if len(calls) == {count} and {after}:
            os.kill(os.getpid(), {int(number)})
        return value
    setattr(owner, name, sabotaged)
sabotage()
"""

    return at_call


@pytest.fixture
def cold_environment():
    """The environment of a process that starts from nothing."""
    return {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def trained():
    """Two epochs of a session, and every move it makes."""

    def all_moves(session, epochs=2):
        moves = []
        for _ in range(epochs):
            moves += [session.method._optimizer.last_step for _ in session.train()]
            session.method.end_epoch()
            session.epoch += 1
        return moves

    return all_moves


@pytest.fixture(scope="session")
def by_the_library():
    """The same epochs as a user of the library would write them."""

    def all_moves(tuner, model, batches, epochs=2):
        moves = []
        for _ in range(epochs):
            for inputs, labels in batches:
                tuner.step(lambda: F.cross_entropy(model(inputs), labels))  # noqa: B023
                moves.append(tuner.last_step)
            tuner.cool()
        return moves

    return all_moves
