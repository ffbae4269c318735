"""The frameworks in several processes, beside a plain loop in the same world."""

from __future__ import annotations

import os
import tempfile
import warnings
from typing import Any

import torch
from scenarios import found, make_net, make_tuner, minibatches, rank, ranks, wrapped
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

STEPS = 240


def behave_as_torchrun() -> None:
    """Tell the frameworks what torchrun tells them; the process group is there already."""
    facts = {"RANK": rank(), "LOCAL_RANK": rank(), "GROUP_RANK": 0, "LOCAL_WORLD_SIZE": ranks()}
    facts |= {"WORLD_SIZE": ranks(), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500}
    os.environ.update({name: str(value) for name, value in facts.items()})
    os.environ["TORCHELASTIC_RUN_ID"] = "none"
    os.environ["ACCELERATE_USE_CPU"] = "true"
    warnings.simplefilter("ignore")


def samples(accumulate: int) -> DataLoader:
    """This rank's samples, in the order of the minibatches."""
    inputs, labels = (torch.cat(parts) for parts in zip(*minibatches(STEPS), strict=True))
    size = len(labels) // STEPS // accumulate
    return DataLoader(TensorDataset(inputs, labels), batch_size=size)


def plain(kind: str, accumulate: int = 1) -> dict[str, Any]:
    net = make_net()
    model = wrapped(net, "ddp")
    tuner = make_tuner(kind, net, STEPS)
    compute_loss = tuner.record(lambda x, y: F.cross_entropy(model(x), y))
    for number, (x, y) in enumerate(samples(accumulate), 1):
        is_last = number % accumulate == 0
        model.require_backward_grad_sync = is_last  # what no_sync sets
        (compute_loss(x, y) / accumulate).backward()
        if is_last:
            tuner.step()
            tuner.zero_grad()
    return found(net, tuner)


def by_lightning(
    kind: str, accumulate: int = 1, loss: str | None = None, manual: bool = False
) -> dict[str, Any]:
    behave_as_torchrun()
    import lightning

    from annealtune.integrations.lightning import TunerCallback

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = make_net()
            self.calls = 0
            self.automatic_optimization = not manual

        def compute_loss(self, batch: Any) -> Tensor:
            x, y = batch
            return F.cross_entropy(self.net(x), y)

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            self.calls += 1
            return self.compute_loss(batch)

        def configure_optimizers(self) -> Any:
            average = {"average": False} if kind.startswith("self") else {}
            self.tuner = make_tuner(kind, self.net, STEPS, **average)
            return self.tuner

    module = Module()
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=ranks(),
            strategy="ddp",
            max_epochs=1,
            accumulate_grad_batches=accumulate,
            callbacks=[TunerCallback(loss=loss)],
            use_distributed_sampler=False,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        trainer.fit(module, samples(accumulate))
    return {**found(module.net, module.tuner), "calls": module.calls}


def by_hugging_face(kind: str, accumulate: int = 1) -> dict[str, Any]:
    behave_as_torchrun()
    from transformers import Trainer, TrainingArguments

    from annealtune.integrations.huggingface import tune

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = make_net()

        def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
            return {"loss": F.cross_entropy(self.net(x), y)}

    loader = samples(accumulate)
    model = Model()
    tuner = make_tuner(kind, model.net, STEPS)

    def collated(rows: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        inputs, labels = zip(*rows, strict=True)
        return {"x": torch.stack(inputs), "y": torch.stack(labels)}

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            use_cpu=True,
            per_device_train_batch_size=loader.batch_size,
            gradient_accumulation_steps=accumulate,
            num_train_epochs=1,
            save_strategy="no",
            report_to=[],
            max_grad_norm=0.0,
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        trainer = Trainer(model, arguments, train_dataset=loader.dataset, optimizers=(tuner, None))
        # Every rank has its own part already.
        trainer.get_train_dataloader = lambda: DataLoader(
            loader.dataset, batch_size=loader.batch_size, collate_fn=collated
        )
        tune(trainer)
        trainer.train()
    tuner.train()  # the model was given the average
    return found(model.net, tuner)
