"""Studies written to disk without training anything, and an engine whose runs only pretend."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from annealtune.studies.engines.local import LocalEngine
from annealtune.studies.plan import make_plan
from annealtune.studies.records import Study, read_study, run_path, sealed_toml
from annealtune.training.stopping import StopRequest
from tools.paper_tables import paper_study as printed_study

RATES = (0.9, 0.5, 0.1)
FAKE_PROGRAM = (sys.executable, "-S", "-E", str(Path(__file__).with_name("fake_program.py")))


def write_study(
    path: Path, runs: dict[str, dict[int, dict[str, Any] | None]], **facts: Any
) -> Study:
    """Write a study and read it back.

    Args:
        path: of the study directory.
        runs: by method label and seed, what `write_run` takes; None for a run that has not begun.
        facts: of ``study.toml``, in place of the usual ones; ``kinds`` maps labels to methods.
    """
    kinds = facts.pop("kinds", {})
    experiment = {"data": "digits", "model": "mlp", "batch_size": 10, "validate_on": "validation"}
    experiment |= facts.pop("experiment", {})
    seeds = facts.pop("seeds", list(dict.fromkeys(seed for each in runs.values() for seed in each)))
    content = {
        "name": "constructed",
        "command": "annealtune study constructed.toml",
        "vary": "seed",
        "seeds": seeds,
        "methods": [
            {"label": label, "config": experiment | {"method": kinds.get(label, label)}}
            for label in runs
        ],
        "environment": {"annealtune": "0.1.0", "python": "3.11.7", "machine": "x86_64"},
    } | facts
    path.mkdir(parents=True, exist_ok=True)
    (path / "study.toml").write_bytes(sealed_toml(content))
    for label, by_seed in runs.items():
        for seed, run in by_seed.items():
            if run is not None:
                config = experiment | {"method": kinds.get(label, label), "seed": seed}
                write_run(run_path(path, label, seed), config, **run)
    return read_study(path)


def write_run(
    path: Path,
    config: dict[str, Any],
    *,
    accuracy: float | None = 0.9,
    loss: float | None = 0.3,
    epochs: int = 4,
    failure: str | None = None,
    done: int | None = None,
    result: dict[str, Any] | None = None,
    metric: dict[str, Any] | None = None,
) -> None:
    """Write a run directory whose best epoch is the one before the last.

    Args:
        path: of the directory.
        config: written as it is, with the number of epochs.
        accuracy: of the last epoch; the best one has 0.01 more, the test set 0.02 less. None: the
            run knows only losses, as in regression, and has no such keys.
        loss: of the last epoch; the best one has 0.1 less, the test set 0.05 more.
        epochs: planned.
        failure: why it failed, after ``done`` epochs.
        done: epochs done by a run that is not finished.
        result: keys of ``result.json`` to replace.
        metric: keys of every line of ``metrics.jsonl`` to replace.
    """
    path.mkdir(parents=True)
    known = 0.0 if accuracy is None else accuracy
    (path / "config.toml").write_text(tomli_w.dumps(config | {"epochs": epochs}))
    has_moves = config["method"] in ("sgd-sa", "ssa", "random-rate")
    lines = []
    for epoch in range(1, (epochs if done is None else done) + 1):
        left = epochs - epoch
        better = 1 if left == 1 else 0
        line = {
            "epoch": epoch,
            "step": 5 * epoch,
            "train_eval_loss": None if loss is None else 0.8 * loss + 0.1 * left,
            "train_eval_accuracy": known - 0.02 * left,
            "validation_loss": None if loss is None else loss + 0.1 * left - 0.2 * better,
            "validation_accuracy": known - 0.05 * left + 0.06 * better,
            "validation_paper_loss": None if loss is None else (loss - 0.1 * better) / 10,
            "forwards": (10 if has_moves else 5) * epoch,
            "backwards": 5 * epoch,
            "training_seconds": 0.5 * epoch,
        }
        if has_moves:
            line |= {
                "accepted_worsening": left,
                "rejected_worsening": epoch,
                "accept_probability": 1 / epoch,
                "worsening_accept_probability": 0.5**epoch,
                "temperature": None if epoch == 1 else 0.1**epoch,
            }
        lines.append(_without_accuracy(line, accuracy is None) | (metric or {}))
    write_lines(path / "metrics.jsonl", lines)
    if has_moves:
        settings = [
            {"setting": {"lr": rate}, "tried": 4, "improved": 1, "accepted": index + 1}
            for index, rate in enumerate(RATES)
        ]
        moved = [{"epoch": line["epoch"], "settings": settings} for line in lines]
        write_lines(path / "moves.jsonl", moved)
    if failure is not None:
        (path / "failure.json").write_text(json.dumps({"reason": failure}))
    elif done is None:
        ended = {
            "epochs": epochs,
            "steps": 5 * epochs,
            "best_epoch": max(1, epochs - 1),
            "best_validation_loss": None if loss is None else loss - 0.1,
            "best_validation_accuracy": known + 0.01,
            "last_validation_loss": loss,
            "last_validation_accuracy": known,
            "test_loss": None if loss is None else loss + 0.05,
            "test_accuracy": known - 0.02,
            "validated_on": config["validate_on"],
            "forwards": lines[-1]["forwards"],
            "backwards": lines[-1]["backwards"],
            "training_seconds": lines[-1]["training_seconds"],
        }
        ended = _without_accuracy(ended, accuracy is None)
        (path / "result.json").write_text(json.dumps(ended | (result or {})))


def _without_accuracy(record: dict[str, Any], is_without: bool) -> dict[str, Any]:
    return {k: v for k, v in record.items() if not (is_without and k.endswith("_accuracy"))}


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="session")
def study_writer() -> Callable[..., Study]:
    """`write_study`, for fixtures that outlive a test."""
    return write_study


@pytest.fixture
def make_study(tmp_path: Path) -> Callable[..., Study]:
    """`write_study` into a directory of its own."""

    def make(runs: dict[str, dict[int, dict[str, Any] | None]], **facts: Any) -> Study:
        return write_study(tmp_path / "study", runs, **facts)

    return make


@pytest.fixture
def three_methods(make_study: Callable[..., Study]) -> Study:
    """Three methods, three seeds; sgd-sa is the best for every seed."""
    return make_study(
        {
            "sgd-sa": {s: {"accuracy": 0.90 + 0.01 * s, "loss": 0.30 - 0.01 * s} for s in range(3)},
            "scheduled-sgd": {s: {"accuracy": 0.88, "loss": 0.40 + 0.02 * s} for s in range(3)},
            "random-rate": {s: {"accuracy": 0.80 + 0.02 * s, "loss": 0.50} for s in range(3)},
        }
    )


@pytest.fixture(params=["vgg16", "resnet34"])
def paper_study(request: pytest.FixtureRequest, tmp_path: Path) -> Study:
    """A study whose runs reached what the paper says, one for each of its two nets."""
    runs: dict[str, dict[int, dict[str, Any] | None]] = {}
    for run in printed_study(request.param).runs:
        [line] = run.metrics
        loss, accuracy = line["validation_paper_loss"], line["validation_accuracy"]
        metric = {"validation_paper_loss": loss}
        reached = {"accuracy": accuracy, "loss": 512 * loss, "metric": metric}
        runs.setdefault(run.method, {})[run.seed] = reached
    return write_study(
        tmp_path / "study",
        runs,
        experiment={"data": "cifar10", "model": request.param, "validate_on": "test"},
        name=f"paper-cifar10-{request.param}",
    )


class Recorder:
    """A display that remembers."""

    def __init__(self):
        self.events = []
        self.shown = []

    def begin(self, tasks, done):
        self.shown.append((len(tasks), done))

    def happened(self, kind, task, detail):
        self.events.append((kind, task.name, detail))

    def names(self, kind):
        return [name for happened, name, _ in self.events if happened == kind]


@pytest.fixture
def recorder():
    return Recorder()


class Watcher(StopRequest):
    """Does something whenever an engine looks whether to stop; what that returns is the signal."""

    def __init__(self, look):
        self.look = look

    @property
    def signal_number(self):
        return self.look()


@pytest.fixture(scope="session")
def watcher():
    return Watcher


@pytest.fixture(scope="session")
def engine():
    """Makes an engine whose runs only pretend."""
    return lambda jobs=2: LocalEngine(jobs, FAKE_PROGRAM)


@pytest.fixture(scope="session")
def plan():
    """Makes a plan for it."""

    def plan(behaviour="ok", methods=("sgd", "adamw"), seeds=(0, 1), epochs=3, **values):
        values = {"model": f"fake:{behaviour}", "epochs": epochs, "threads": 1, **values}
        return make_plan(values, name="fake", methods=methods, seeds=seeds)

    return plan
