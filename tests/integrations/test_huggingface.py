"""Hugging Face's Trainer makes the decisions of a plain loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from annealtune import SelfTuner
from annealtune.integrations.huggingface import tune


class Items(Dataset):
    """The task's samples, as dicts."""

    def __init__(self, task: Any) -> None:
        self.x, self.labels = task.data().tensors

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": self.x[index], "labels": self.labels[index]}


class Model(nn.Module):
    """What a Trainer trains: its forward computes the loss."""

    config = None  # label smoothing asks for it

    def __init__(self, task: Any, counted: Any) -> None:
        super().__init__()
        self.net = task.net()
        self.count = counted(self.net)
        self.task = task

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        outputs = self.net(x)
        if labels is None:
            return {"logits": outputs}
        return {"loss": nn.functional.cross_entropy(outputs.float(), labels), "logits": outputs}


class Losses(TrainerCallback):
    """What is logged, and how often a hook is called."""

    def __init__(self) -> None:
        self.logs: list[dict[str, float]] = []
        self.steps = 0

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if "loss" in logs:
            self.logs.append(logs)

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        self.steps += 1


def arguments(task: Any, path: Any, accumulate: int = 1, **options: Any) -> TrainingArguments:
    options = {
        "per_device_train_batch_size": task.samples // accumulate,
        "gradient_accumulation_steps": accumulate,
        "num_train_epochs": task.epochs,
        "max_grad_norm": 0.0,
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 6,
        "train_sampling_strategy": "sequential",
    } | options
    return TrainingArguments(output_dir=str(path), **options)


def trained(
    task: Any, kind: str, counted: Any, path: Any, accumulate: int = 1, **options: Any
) -> tuple[Trainer, Any, Losses]:
    model = Model(task, counted)
    tuner = task.tuner(kind, model.net)
    seen = Losses()
    trainer = Trainer(
        model=model,
        args=arguments(task, path, accumulate, **options),
        train_dataset=Items(task),
        eval_dataset=torch.utils.data.Subset(Items(task), range(32)),
        optimizers=(tuner, None),
        callbacks=[seen],
    )
    assert tune(trainer) is tuner
    return trainer, tuner, seen


@pytest.fixture
def seeded():
    """Loaders draw numbers when an epoch begins; the dropout of a step sees nothing of it."""

    class Seeding(TrainerCallback):
        state = torch.Generator().manual_seed(6).get_state()

        def on_step_begin(self, *_, **__):
            torch.set_rng_state(self.state)

        def on_step_end(self, *_, **__):
            self.state = torch.get_rng_state()

    return Seeding()


def run(task, kind, counted, path, seeded, accumulate=1, **options):
    trainer, tuner, seen = trained(task, kind, counted, path, accumulate, **options)
    trainer.add_callback(seeded)
    trainer.train()
    tuner.train()  # after a training the average is in the model
    losses = [line["loss"] for line in seen.logs]
    return task.outcome(trainer.model.net, tuner, trainer.model.count, losses), seen, trainer


def per_step(losses, accumulate):
    """The logged loss of a step: the sum of the minibatches', each divided."""
    found = []
    for start in range(0, len(losses), accumulate):
        total = torch.tensor(0.0)
        for loss in losses[start : start + accumulate]:
            total += torch.tensor(loss) / accumulate
        found.append(total.item())
    return found


@pytest.mark.parametrize(
    "accumulate", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4))]
)
def test_the_run_of_a_plain_loop(task, kind, counted, tmp_path, seeded, accumulate):
    found, seen, trainer = run(task, kind, counted, tmp_path, seeded, accumulate)
    plain = task.plain(kind, accumulate)
    assert found.losses == per_step(plain.losses, accumulate)
    found.losses = plain.losses
    found.assert_equals(plain)
    assert trainer.state.global_step == seen.steps == len(seen.logs) == task.steps


def test_clipping_applies_to_every_arm(task, brief_kind, counted, tmp_path, seeded):
    found, _, _ = run(task, brief_kind, counted, tmp_path, seeded, max_grad_norm=0.1)
    found.assert_equals(task.plain(brief_kind, clip=0.1))


def test_bfloat16(task, brief_kind, counted, tmp_path, seeded):
    found, _, _ = run(task, brief_kind, counted, tmp_path, seeded, bf16=True)
    found.assert_equals(task.plain(brief_kind, autocast=torch.bfloat16))


def test_rates_are_logged(task, brief_kind, counted, tmp_path, seeded):
    _, seen, trainer = run(task, brief_kind, counted, tmp_path, seeded, num_train_epochs=1)
    last = seen.logs[-1]
    tuner = trainer.optimizer.optimizer
    assert trainer.lr_scheduler.get_last_lr() == [tuner.param_groups[0]["lr"]]
    assert last["learning_rate"] == tuner.param_groups[0]["lr"]
    if brief_kind == "embedded":
        assert sum(line["annealtune_accepted"] for line in seen.logs) == (
            tuner.moves.total.accepted
        )
    else:
        assert seen.logs[0]["annealtune_races"] == 0
        assert last["annealtune_races"] == len(tuner.races) > 0


@pytest.mark.parametrize("kind", ["self-tuned", pytest.param("embedded", marks=pytest.mark.slow)])
@pytest.mark.parametrize("evaluated", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_checkpoint_continues_exactly(task, kind, counted, tmp_path, evaluated):
    """In the middle of a race and of an epoch, shuffled, with dropout."""
    options = {
        "max_steps": 40,
        "save_strategy": "steps",
        "save_steps": 5,
        "train_sampling_strategy": "random",
        "eval_strategy": "steps" if evaluated else "no",
        "eval_steps": 5,
    }
    one, tuner, seen = trained(task, kind, counted, tmp_path, **options)
    one.train()
    other, again, late = trained(task, kind, counted, tmp_path, **options)
    other.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert [line["loss"] for line in late.logs] == [line["loss"] for line in seen.logs[5:]]
    if kind == "self-tuned":
        assert seen.logs[4]["annealtune_races"] == 0  # it was in the middle of one
        assert tuner.races == again.races
        assert len(tuner.races) > 0
    for name, value in one.model.state_dict().items():
        assert torch.equal(other.model.state_dict()[name], value), name


def test_evaluations_and_checkpoints_see_the_average(task, counted, tmp_path, seeded):
    from safetensors.torch import load_file

    evaluated = []

    class Watch(TrainerCallback):
        def on_prediction_step(self, args, state, control, model=None, **_):
            evaluated.append({k: v.clone() for k, v in model.net.state_dict().items()})

    trainer, tuner, _ = trained(
        task, "self-tuned", counted, tmp_path, eval_strategy="epoch", save_strategy="epoch"
    )
    for callback in (seeded, Watch()):
        trainer.add_callback(callback)
    trainer.train()
    average = task.plain("self-tuned", averaged=True).weights
    saved = load_file(tmp_path / f"checkpoint-{task.steps}" / "model.safetensors")
    for name, value in average.items():
        assert torch.equal(evaluated[-1][name], value), name
        assert torch.equal(saved[f"net.{name}"], value), name
    # After the training the model has the best of them.
    losses = [look.value for look in tuner.looks]
    assert len(losses) == task.epochs
    best = evaluated[losses.index(min(losses)) * len(evaluated) // len(losses)]
    for name, value in best.items():
        assert torch.equal(trainer.model.net.state_dict()[name], value), name
    assert trainer.evaluate()["eval_loss"] == min(losses)
    assert len(tuner.looks) == task.epochs
    tuner.train()
    for name, value in task.plain("self-tuned").weights.items():
        assert torch.equal(trainer.model.net.state_dict()[name], value), name
    with tuner.best():
        assert all(torch.equal(trainer.model.net.state_dict()[n], best[n]) for n in best)


@pytest.mark.parametrize("greater", [False, True])
def test_after_the_training_the_model_has_its_best_weights(task, counted, tmp_path, greater):
    """By the metric that the Trainer is told, of evaluations that it makes anyway."""
    evaluated, values = [], iter([2.0, 1.0, 3.0, 2.5])

    class Watch(TrainerCallback):
        def on_evaluate(self, args, state, control, model=None, **_):
            evaluated.append({k: v.clone() for k, v in model.net.state_dict().items()})

    trainer, tuner, _ = trained(
        task,
        "embedded",
        counted,
        tmp_path,
        eval_strategy="epoch",
        metric_for_best_model="rank",
        greater_is_better=greater,
    )
    trainer.compute_metrics = lambda _: {"rank": next(values)}
    trainer.add_callback(Watch())
    trainer.train()
    assert [look.value for look in tuner.looks] == [2.0, 1.0, 3.0, 2.5]
    for name, value in evaluated[2 if greater else 1].items():
        assert torch.equal(trainer.model.net.state_dict()[name], value), name
    tuner.train()
    for name, value in evaluated[-1].items():  # nothing is averaged here
        assert torch.equal(trainer.model.net.state_dict()[name], value), name


def test_the_best_weights_stay_where_they_are_loaded(task, counted, tmp_path):
    from safetensors.torch import load_file

    trainer, _, _ = trained(
        task,
        "self-tuned",
        counted,
        tmp_path,
        max_steps=42,
        eval_strategy="steps",
        eval_steps=20,
        save_strategy="steps",
        save_steps=20,
        load_best_model_at_end=True,
    )
    trainer.train()
    best = load_file(f"{trainer.state.best_model_checkpoint}/model.safetensors")
    before = trainer.evaluate()["eval_loss"]
    assert all(torch.equal(trainer.model.state_dict()[name], best[name]) for name in best)
    assert before == trainer.state.best_metric


def test_the_trainers_own_optimizer_becomes_the_base(task, counted, tmp_path):
    model = Model(task, counted)
    trainer = Trainer(
        model=model,
        args=arguments(task, tmp_path, weight_decay=0.1, learning_rate=123.0),
        train_dataset=Items(task),
    )
    tuner = tune(trainer, around=1e-3, average=False)
    trainer.train()
    assert trainer.optimizer.optimizer is tuner
    assert isinstance(tuner, SelfTuner)
    assert isinstance(tuner.base, torch.optim.AdamW)
    assert tuner.total_steps == task.steps
    assert len(tuner.races) > 0
    assert [group["weight_decay"] for group in tuner.param_groups] == [0.1, 0.0]
    assert tuner.lr < 1e-2  # not 123


def test_label_smoothing(task, counted, tmp_path):
    """It takes the labels out of the inputs, which are needed again."""
    options = {"label_smoothing_factor": 0.1, "num_train_epochs": 1}
    trainer, tuner, _ = trained(task, "embedded", counted, tmp_path, **options)
    trainer.train()
    assert tuner.moves.total.tried == task.steps // task.epochs


# --- What cannot work says so ---


def make(task, counted, path, optimizers=(None, None), **options):
    return Trainer(
        model=Model(task, counted),
        args=arguments(task, path, **options),
        train_dataset=Items(task),
        optimizers=optimizers,
    )


def test_a_schedule(task, counted, tmp_path):
    for options in ({"warmup_steps": 10}, {"lr_scheduler_type": "cosine"}):
        with pytest.raises(ValueError, match="scheduler"):
            tune(make(task, counted, tmp_path, **options))
    net = task.net()
    scheduler = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(net.parameters()), 10)
    trainer = make(task, counted, tmp_path, (task.tuner("embedded", net), scheduler))
    with pytest.raises(ValueError, match="StepLR"):
        tune(trainer)


def test_what_is_no_tuner_or_no_trainer(task, counted, tmp_path):
    adam = torch.optim.Adam(nn.Linear(1, 1).parameters())
    with pytest.raises(TypeError, match="Adam"):
        tune(make(task, counted, tmp_path, (adam, None)))
    args = arguments(task, tmp_path)
    trainer = Trainer(model_init=lambda: Model(task, counted), args=args, train_dataset=Items(task))
    with pytest.raises(ValueError, match="model_init"):
        tune(trainer)
    tuner = task.tuner("self-tuned", task.net())
    with pytest.raises(TypeError, match="around"):
        tune(make(task, counted, tmp_path, (tuner, None)), around=0.1)
    with pytest.raises(TypeError, match="Trainer"):
        tune(object())
