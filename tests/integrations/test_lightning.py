"""Lightning makes the decisions of a plain loop, and notices nothing of what is computed again."""

from __future__ import annotations

import warnings
from collections import Counter, deque
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch import callbacks, loggers
from lightning.pytorch.plugins import MixedPrecision
from torch import nn
from torchmetrics import MeanMetric

from annealtune.integrations.lightning import Attributes, TunerCallback

HOOKS = [
    "on_before_zero_grad",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_start",
    "on_train_batch_end",
]


@pytest.fixture(autouse=True)
def _calm():
    """Lightning talks about loaders with few workers, and uses a deprecated part of torch."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", "Encountered `nan` values")  # torchmetrics
        yield


class Memory(loggers.Logger):
    """Keeps what is logged."""

    name, version = "memory", 0

    def __init__(self) -> None:
        super().__init__()
        self.logged: list[dict[str, float]] = []
        self.experiment_: Counter[float] = Counter()

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.logged.append(dict(metrics, step=step))

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass

    @property
    def experiment(self) -> Any:
        return self.experiment_


class Module(lightning.LightningModule):
    """What a user writes, and a diary."""

    def __init__(self, task, kind, counted, **options):
        super().__init__()
        self.net = task.net()
        self.task, self.kind, self.options = task, kind, options
        self.count = counted(self.net)
        self.metric = MeanMetric()
        self.calls = Counter()
        self.losses = []
        self.validated = []

    def compute_loss(self, batch):
        self.calls["compute_loss"] += 1
        return self.task.loss(self.net, *batch)

    def training_step(self, batch, batch_idx):
        self.calls["training_step"] += 1
        loss = self.compute_loss(batch)
        self.metric(loss)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.validated.append({k: v.clone() for k, v in self.net.state_dict().items()})

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].item() * self.trainer.accumulate_grad_batches)

    def configure_optimizers(self):
        unaveraged = {} if self.kind == "embedded" else {"average": False}
        return self.task.tuner(self.kind, self.net, **(unaveraged | self.options))


class Diary(callbacks.Callback):
    """Counts hooks."""

    def __init__(self) -> None:
        self.calls = Counter()


for _hook in HOOKS:
    setattr(Diary, _hook, lambda self, *_, _hook=_hook, **__: self.calls.update([_hook]))


class Manual(Module):
    """The same by manual optimization."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        self.calls["training_step"] += 1
        opt = self.optimizers()
        loss = self.compute_loss(batch)
        opt.zero_grad()
        self.manual_backward(loss)
        opt.step()
        return loss


def fit(module, task, *, accumulate=1, callback=None, trainer=None, ckpt=None, **options):
    options = {
        "max_epochs": task.epochs,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
        "limit_val_batches": 0,
        "log_every_n_steps": 1,
    } | options
    extra = options.pop("callbacks", [])
    trainer = lightning.Trainer(
        callbacks=[callback or TunerCallback(), *extra],
        accumulate_grad_batches=accumulate,
        **options,
    )
    torch.manual_seed(6)
    trainer.fit(module, task.loader(accumulate), [0], ckpt_path=ckpt)
    return trainer


def outcome(module, trainer, task):
    tuner = trainer.optimizers[0]
    return task.outcome(module.net, tuner, module.count, module.losses)


def test_the_run_of_a_plain_loop(task, kind, counted):
    module, diary, memory = Module(task, kind, counted), Diary(), Memory()
    trainer = fit(module, task, callbacks=[diary], logger=memory)
    found, plain = outcome(module, trainer, task), task.plain(kind)
    found.assert_equals(plain)
    assert [line["loss"] for line in memory.logged if "loss" in line] == plain.losses
    assert diary.calls == dict.fromkeys(HOOKS, task.steps)
    assert trainer.global_step == task.steps
    # The body of the training step ran again, and left no trace in counters and metric.
    assert module.calls == {"training_step": task.steps, "compute_loss": task.steps}
    assert plain.forwards > task.steps
    mean = torch.tensor(plain.losses, dtype=torch.float32).mean()
    torch.testing.assert_close(module.metric.compute(), mean)


class Busy(Module):
    """A training step that does all that people do in it; its loss depends on a counter."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.counter, self.seen, self.kinds = 0, [], set()
        self.total = torch.tensor(0.0)
        self.recent = deque(maxlen=3)

    def training_step(self, batch, batch_idx):
        self.counter += 1
        loss = self.compute_loss(batch) * (1 + self.counter % 7 / 100)
        self.seen.append(loss.item())
        self.kinds.add(self.counter)
        self.recent.append(self.counter)
        self.total += loss.detach()
        self.newest = loss.detach()
        self.log("loss", loss)
        self.log_dict({"twice": 2 * loss})
        self.print("told", self.counter)
        self.logger.log_metrics({"by_hand": loss.item()}, step=self.counter)
        self.logger.experiment.update([loss.item()])
        return loss


def with_a_counter(task, kind):
    """The plain loop whose loss depends on a counter."""
    net = task.net()
    tuner = task.tuner(kind, net)
    compute_loss = tuner.record(lambda x, y, factor: task.loss(net, x, y) * factor)
    torch.manual_seed(6)
    losses = []
    for _ in range(task.epochs):
        for x, y in task.loader():
            loss = compute_loss(x, y, 1 + (len(losses) + 1) % 7 / 100)
            losses.append(loss.item())
            loss.backward()
            tuner.step()
            tuner.zero_grad()
        if kind == "embedded":
            tuner.cool()
    return net, tuner, losses


def test_what_a_training_step_does_besides_its_loss_happens_once(task, brief_kind, counted, capsys):
    memory = Memory()
    module = Busy(task, brief_kind, counted)
    trainer = fit(module, task, logger=memory)
    net, tuner, losses = with_a_counter(task, brief_kind)
    assert str(trainer.optimizers[0].summary()) == str(tuner.summary())
    for name, value in net.state_dict().items():
        assert torch.equal(module.net.state_dict()[name], value), name
    numbers = list(range(1, task.steps + 1))
    assert module.counter == task.steps
    assert module.seen == losses
    assert module.kinds == set(numbers)
    assert list(module.recent) == numbers[-3:]
    assert module.newest == losses[-1]
    torch.testing.assert_close(module.total, torch.tensor(losses).sum())
    assert [line["loss"] for line in memory.logged if "loss" in line] == losses
    assert [line["twice"] for line in memory.logged if "twice" in line] == [2 * n for n in losses]
    assert [line["by_hand"] for line in memory.logged if "by_hand" in line] == losses
    assert memory.experiment == Counter(losses)
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if "told" in line] == [f"told {n}" for n in numbers]
    assert module.count.forwards > task.steps


@pytest.mark.parametrize("accumulate", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_accumulated_minibatches_are_decided_on_together(task, brief_kind, counted, accumulate):
    module, diary = Module(task, brief_kind, counted), Diary()
    trainer = fit(module, task, accumulate=accumulate, callbacks=[diary])
    found, plain = outcome(module, trainer, task), task.plain(brief_kind, accumulate)
    found.losses = plain.losses  # divided and multiplied again
    found.assert_equals(plain)
    assert trainer.global_step == diary.calls["on_before_optimizer_step"] == task.steps
    assert diary.calls["on_after_backward"] == task.steps * accumulate


def test_bfloat16(task, brief_kind, counted):
    module = Module(task, brief_kind, counted)
    trainer = fit(module, task, precision="bf16-mixed")
    outcome(module, trainer, task).assert_equals(task.plain(brief_kind, autocast=torch.bfloat16))


@pytest.mark.parametrize("clip", [pytest.param(None, marks=pytest.mark.slow), 0.1])
def test_float16_with_a_scaler(task, brief_kind, counted, clip):
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10_000)
    plugin = MixedPrecision("16-mixed", "cpu", scaler)
    module = Module(task, brief_kind, counted)
    trainer = fit(module, task, plugins=[plugin], gradient_clip_val=clip)
    plain = task.plain(brief_kind, autocast=torch.float16, scale=1024.0, clip=clip)
    outcome(module, trainer, task).assert_equals(plain)


@pytest.mark.parametrize("accumulate", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_clipping_applies_to_every_arm(task, brief_kind, counted, accumulate):
    module = Module(task, brief_kind, counted)
    trainer = fit(module, task, accumulate=accumulate, gradient_clip_val=0.1)
    found, plain = outcome(module, trainer, task), task.plain(brief_kind, accumulate, clip=0.1)
    found.losses = plain.losses
    found.assert_equals(plain)


def test_validation_and_checkpoints_see_the_average(task, counted, tmp_path):
    module = Module(task, "self-tuned", counted, average=True)
    saving = callbacks.ModelCheckpoint(dirpath=tmp_path, every_n_epochs=1, save_top_k=-1)
    fit(
        module,
        task,
        callbacks=[saving],
        enable_checkpointing=True,
        limit_val_batches=1,
        num_sanity_val_steps=1,
    )
    plain = task.plain("self-tuned", averaged=True)
    last = module.validated[-1]
    saved = torch.load(saving.best_model_path, weights_only=True)
    for name, value in plain.weights.items():
        assert torch.equal(last[name], value), name
        assert torch.equal(saved["state_dict"][f"net.{name}"], value), name
        assert torch.equal(module.net.state_dict()[name], value), name  # after fit, too
    trained = task.plain("self-tuned").weights
    aside = saved["annealtune_training_weights"]
    assert all(torch.equal(aside[f"net.{name}"], value) for name, value in trained.items())
    # The training itself has seen nothing of it.
    assert len(module.validated) == task.epochs + 1


class Validated(Module):
    """Logs a score of each validation, the second and third of which are the best and worst."""

    scores = (2.0, 1.0, 3.0, 2.5)

    def validation_step(self, batch, batch_idx):
        super().validation_step(batch, batch_idx)
        if not self.trainer.sanity_checking:
            self.log("val_loss", self.scores[self.current_epoch], batch_size=1)


@pytest.mark.parametrize("kind", ["self-tuned", "embedded"])
@pytest.mark.parametrize(("mode", "best"), [("min", 1), ("max", 2)])
def test_after_fit_the_module_has_its_best_weights(task, counted, kind, mode, best):
    module = Validated(task, kind, counted, **({"average": True} if kind != "embedded" else {}))
    callback = TunerCallback(mode=mode)
    options = {"limit_val_batches": 1, "num_sanity_val_steps": 1}
    trainer = fit(module, task, callback=callback, **options)
    [tuner] = trainer.optimizers
    assert [look.value for look in tuner.looks] == list(Validated.scores)
    assert len(module.validated) == 1 + task.epochs  # none of them twice
    expected = module.validated[1 + best]
    for name, value in module.net.state_dict().items():
        assert torch.equal(value, expected[name]), name
    with tuner.best():
        assert torch.equal(module.net[0].weight, expected["0.weight"])


def test_a_metric_that_is_not_logged(task, counted):
    module = Validated(task, "embedded", counted)
    with pytest.raises(ValueError, match="monitor"):
        fit(module, task, callback=TunerCallback(monitor="val_acc"), limit_val_batches=1)
    with pytest.raises(ValueError, match="mode"):
        TunerCallback(mode="highest")


@pytest.mark.parametrize("shuffle", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("kind", ["self-tuned", pytest.param("embedded", marks=pytest.mark.slow)])
def test_a_checkpoint_continues_exactly(task, counted, kind, shuffle, tmp_path):
    """In the middle of a race, with dropout and torch's own generator shuffling."""

    class Short(type(task)):
        epochs = 8

        def data(self):
            return super().data(20)  # five steps an epoch, fewer than a race has

        def loader(self, accumulate=1):
            return super().loader(accumulate, shuffle=shuffle, generator=None)

    task = Short()
    racing = []

    class Watch(callbacks.Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            racing.append(getattr(trainer.optimizers[0], "is_racing", None))

    saving = callbacks.ModelCheckpoint(
        dirpath=tmp_path, filename="{epoch}", every_n_epochs=1, save_top_k=-1
    )
    average = {} if kind == "embedded" else {"average": True}
    whole = Module(task, kind, counted, **average)
    one = fit(
        whole,
        task,
        callbacks=[saving, Watch()],
        logger=False,
        enable_checkpointing=True,
    )
    again = Module(task, kind, counted, **average)
    torch.manual_seed(99)
    other = fit(again, task, ckpt=tmp_path / "epoch=0.ckpt")
    if kind == "self-tuned":
        assert racing[0]
        assert not racing[-1]
        assert one.optimizers[0].races == other.optimizers[0].races
    assert again.losses == whole.losses[5:]
    for name, value in whole.net.state_dict().items():
        assert torch.equal(again.net.state_dict()[name], value), name


def test_what_is_logged(task, counted):
    for kind, names in {
        "self-tuned": ["rate", "races", "extra_steps"],
        "embedded": ["rate", "temperature", "accepted", "acceptance"],
    }.items():
        module, memory = Module(task, kind, counted), Memory()
        trainer = fit(module, task, logger=memory, max_epochs=1)
        tuner = trainer.optimizers[0]
        lines = [line for line in memory.logged if "annealtune/rate" in line]
        assert len(lines) == task.steps // task.epochs
        assert all(f"annealtune/{name}" in lines[-1] for name in names)
        if kind == "self-tuned":
            assert lines[-1]["annealtune/races"] == len(tuner.races) > 0
            assert lines[0]["annealtune/races"] == 0
        else:
            accepted = sum(line["annealtune/accepted"] for line in lines)
            assert accepted == tuner.moves.total.accepted


def test_a_training_step_without_a_loss_is_skipped(task, counted):
    class Skipping(Module):
        def training_step(self, batch, batch_idx):
            return None if batch_idx % 5 == 0 else super().training_step(batch, batch_idx)

        def on_train_batch_end(self, outputs, batch, batch_idx):
            assert bool(outputs) == (batch_idx % 5 != 0)

    module = Skipping(task, "embedded", counted)
    trainer = fit(module, task)
    assert trainer.optimizers[0].moves.total.tried == task.steps * 4 // 5


# --- Fabric ---


@pytest.mark.parametrize("accumulate", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_fabric(task, brief_kind, counted, accumulate):
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    net = task.net()
    count = counted(net)
    model, opt = fabric.setup(net, task.tuner(brief_kind, net))
    compute_loss = opt.record(lambda x, y: task.loss(model, x, y))
    torch.manual_seed(6)
    losses = []
    for _ in range(task.epochs):
        for number, (x, y) in enumerate(task.loader(accumulate), start=1):
            loss = compute_loss(x, y)
            losses.append(loss.item())
            fabric.backward(loss / accumulate)
            if number % accumulate == 0:
                opt.step()
                opt.zero_grad()
        if brief_kind == "embedded":
            opt.cool()
    found = task.outcome(net, opt.optimizer, count, losses)
    found.assert_equals(task.plain(brief_kind, accumulate))


def test_manual_optimization(task, brief_kind, counted):
    module = Manual(task, brief_kind, counted)
    trainer = fit(module, task, callback=TunerCallback(loss="compute_loss"))
    outcome(module, trainer, task).assert_equals(task.plain(brief_kind))
    assert module.calls["training_step"] == trainer.global_step == task.steps


# --- What cannot work says so ---


class Plain(Module):
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


class Scheduled(Module):
    def configure_optimizers(self):
        opt = super().configure_optimizers()
        return [opt], [torch.optim.lr_scheduler.StepLR(opt, 10)]


@pytest.mark.parametrize(
    ("make", "callback", "word"),
    [
        (Module, callbacks.Callback(), r"TunerCallback\(\)"),
        (Plain, TunerCallback(), "Adam"),
        (Scheduled, TunerCallback(), "StepLR"),
        (Manual, TunerCallback(), "loss="),
        (Module, TunerCallback(loss="no_such_method"), "no_such_method"),
    ],
)
def test_what_cannot_work_says_so(task, brief_kind, counted, make, callback, word):
    with pytest.raises(TypeError, match=f"Lightning.*{word}"):
        fit(make(task, brief_kind, counted), task, callback=callback)


# --- Nothing is left behind ---


def test_nothing_is_left_behind(task, counted):
    class Failing(Module):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            raise ZeroDivisionError

    module = Failing(task, "self-tuned", counted)
    before = set(vars(module))
    with pytest.raises(ZeroDivisionError):
        fit(module, task)
    assert "training_step" not in set(vars(module)) - before


def test_a_tensor_that_nobody_wrote_into_is_left_alone():
    """It may be part of a graph whose backward is still to come."""
    module = nn.Linear(1, 1)
    module.latest = module(torch.ones(1, 1)).exp()  # its backward needs its result
    Attributes(module).restore()
    module.latest.sum().backward()
    assert module.weight.grad is not None
