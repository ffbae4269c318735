"""Loggers hear of every step, race and epoch, whoever calls the steps."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from annealtune import EmbeddedTuner, SelfTuner
from annealtune.integrations.loggers import TunerLog, to_mlflow, to_tensorboard, to_wandb

STEPS = 240


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
    assert steps[-1][1] == opt.measures()
    [race] = opt.races
    assert [step for step, _ in races] == [race.step + race.minibatches]
    assert races[0][1] == {**race.to_dict(), "text": race.table()}
    assert epochs == [(60, 0.0), (120, 0.25), (180, 0.5), (240, 0.75)]
    log.close()
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


def test_one_that_is_closed_hears_no_more() -> None:
    model, opt = make("embedded")
    told: list[Any] = []
    log = TunerLog(opt, lambda *record: told.append(record))
    opt.step(lambda: model(torch.ones(1, 4)).square().mean())
    log.close()
    opt.step(lambda: model(torch.ones(1, 4)).square().mean())
    [(kind, step, values)] = told
    assert (kind, step) == ("step", 1)
    assert values.keys() == {"temperature", "accepted", "acceptance", "rate"}


def test_tensorboard(tmp_path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    model, opt = make()
    with SummaryWriter(str(tmp_path)) as writer:
        train(model, opt, TunerLog(opt, to_tensorboard(writer)))
    events = EventAccumulator(str(tmp_path)).Reload()
    rates = events.Scalars("annealtune/rate")
    assert [event.step for event in rates] == list(range(1, STEPS + 1))
    assert math.isclose(rates[-1].value, opt.rate, rel_tol=1e-6)
    [race] = events.Scalars("annealtune/race/rate")
    assert math.isclose(race.value, opt.races[0].rate, rel_tol=1e-6)
    assert [event.value for event in events.Scalars("epoch/accuracy")] == [0.0, 0.25, 0.5, 0.75]
    assert "epoch/note" not in events.Tags()["scalars"]
    assert "annealtune/race/text_summary" in events.Tags()["tensors"]


def test_weights_and_biases_offline(tmp_path) -> None:
    wandb = pytest.importorskip("wandb")
    model, opt = make()
    run = wandb.init(project="annealtune", dir=str(tmp_path), mode="offline")
    train(model, opt, TunerLog(opt, to_wandb(run), every=10))
    summary = dict(run.summary)
    run.finish()
    assert math.isclose(summary["annealtune/rate"], opt.rate)
    assert summary["annealtune/step"] == STEPS
    assert summary["annealtune/race_tables"] == opt.races[0].table()
    assert list(tmp_path.rglob("*.wandb"))


def test_mlflow(tmp_path, monkeypatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    model, opt = make()
    with mlflow.start_run() as run:
        train(model, opt, TunerLog(opt, to_mlflow(mlflow), every=10))
    metrics = mlflow.MlflowClient().get_run(run.info.run_id).data.metrics
    assert math.isclose(metrics["annealtune/rate"], opt.rate)
    assert metrics["epoch/accuracy"] == 0.75
    assert [path.read_text() for path in tmp_path.rglob("race-*.txt")] == [opt.races[0].table()]


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (lambda opt: (opt.base, print), {}, "must be a SelfTuner or EmbeddedTuner"),
        (lambda opt: (opt, "tensorboard"), {}, "to_tensorboard"),
        (lambda opt: (opt, print), {"every": 0}, "at least 1, got 0"),
    ],
)
def test_bad_arguments(arguments, options, words) -> None:
    _, opt = make()
    with pytest.raises((TypeError, ValueError), match=words):
        TunerLog(*arguments(opt), **options)
