"""Loggers hear of every step, race and epoch, whoever calls the steps."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from annealtune import EmbeddedTuner, SelfTuner
from annealtune.integrations.loggers import TunerLog, to_mlflow, to_tensorboard, to_wandb

STEPS = 240
EPOCHS = [0.0, 0.25, 0.5, 0.75]  # an accuracy at the end of each
RATE = "annealtune/rate"


def make(kind: str = "self-tuned") -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    base = torch.optim.AdamW(model.parameters())
    tuner = SelfTuner if kind == "self-tuned" else EmbeddedTuner
    return model, tuner(base, model=model, total_steps=STEPS)


def train(model: nn.Module, opt: Any, log: TunerLog | None = None) -> None:
    generator = torch.Generator().manual_seed(1)
    for epoch in range(4):
        for _ in range(STEPS // 4):
            x = torch.randn(8, 4, generator=generator)
            opt.step(lambda x=x: (model(x) - x.sum(1, keepdim=True)).square().mean())
        if log is not None:
            log.epoch({"accuracy": epoch / 4, "note": "not a number"})


def test_what_a_logger_is_told() -> None:
    model, opt = make()
    told: list[Any] = []
    log = TunerLog(opt, lambda *record: told.append(record), every=10)
    train(model, opt, log)
    steps = [(step, values) for kind, step, values in told if kind == "step"]
    races = [(step, values) for kind, step, values in told if kind == "race"]
    epochs = [(step, values["accuracy"]) for kind, step, values in told if kind == "epoch"]
    assert [step for step, _ in steps] == list(range(10, STEPS + 1, 10))
    assert steps[-1][1] == opt.metrics()
    [race] = opt.races
    assert [step for step, _ in races] == [race.step + race.minibatches]
    assert races[0][1] == {**race.to_dict(), "text": race.table()}
    assert epochs == [(60, 0.0), (120, 0.25), (180, 0.5), (240, 0.75)]
    assert len(told) == len(steps) + len(races) + len(epochs)


def test_a_logger_changes_nothing() -> None:
    weights = []
    for logged in (False, True):
        model, opt = make("embedded")
        if logged:
            TunerLog(opt, lambda *_: None)
        train(model, opt)
        weights.append((model.weight.detach().clone(), opt.summary()))
    assert torch.equal(weights[0][0], weights[1][0])
    assert weights[0][1] == weights[1][1]


def test_tensorboard(tmp_path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    model, opt = make()
    with SummaryWriter(str(tmp_path)) as writer:
        train(model, opt, TunerLog(opt, to_tensorboard(writer)))
    events = EventAccumulator(str(tmp_path)).Reload()
    rates = events.Scalars(RATE)
    assert [event.step for event in rates] == list(range(1, STEPS + 1))
    assert math.isclose(rates[-1].value, opt.lr, rel_tol=1e-6)
    [race] = events.Scalars("annealtune/race/rate")
    assert math.isclose(race.value, opt.races[0].rate, rel_tol=1e-6)
    assert [event.value for event in events.Scalars("epoch/accuracy")] == EPOCHS
    assert "epoch/note" not in events.Tags()["scalars"]
    assert "annealtune/race/text_summary" in events.Tags()["tensors"]


def test_weights_and_biases_offline(tmp_path, monkeypatch) -> None:
    for name in ("CONFIG", "CACHE", "DATA", "ARTIFACT"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    import wandb

    model, opt = make()
    run = wandb.init(project="annealtune", dir=str(tmp_path), mode="offline")
    train(model, opt, TunerLog(opt, to_wandb(run), every=10))
    found = dict(run.summary)
    run.finish()
    wandb.teardown()  # ends the process that writes
    assert [file.stat().st_size > 0 for file in tmp_path.rglob("*.wandb")] == [True]
    assert found["annealtune/step"] == STEPS
    assert math.isclose(found[RATE], opt.lr)
    assert found["epoch/accuracy"] == EPOCHS[-1]
    assert math.isclose(found["annealtune/race/rate"], opt.races[0].rate)
    assert found["annealtune/race_tables"] == opt.races[0].table()


def test_mlflow(tmp_path, monkeypatch) -> None:
    """A file store must be allowed by name: MLflow maintains it no more."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    monkeypatch.chdir(tmp_path)
    model, opt = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it uses a deprecated part of SQLAlchemy
        mlflow.set_tracking_uri(f"file://{tmp_path}/runs")
        with mlflow.start_run() as run:
            train(model, opt, TunerLog(opt, to_mlflow(mlflow), every=10))
        client = mlflow.MlflowClient()
        rates = client.get_metric_history(run.info.run_id, RATE)
        epochs = client.get_metric_history(run.info.run_id, "epoch/accuracy")
    assert [metric.step for metric in rates] == list(range(10, STEPS + 1, 10))
    assert math.isclose(rates[-1].value, opt.lr)
    assert [metric.value for metric in epochs] == EPOCHS
    assert [path.read_text() for path in tmp_path.rglob("race-*.txt")] == [opt.races[0].table()]


def test_bad_arguments() -> None:
    _, opt = make()
    with pytest.raises(TypeError, match="TunerLog"):
        TunerLog(opt, "tensorboard")
    with pytest.raises(ValueError, match="every"):
        TunerLog(opt, print, every=0)
