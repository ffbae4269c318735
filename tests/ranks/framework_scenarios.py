"""The frameworks in several processes, beside a plain loop in the same world."""

from __future__ import annotations

import os
import tempfile
import warnings
from typing import Any

import torch
from scenarios import decisions_of, digest, make_net, make_tuner, minibatches, rank, ranks, wrapped
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

STEPS = 240


def behave_as_torchrun() -> None:
    """Tell the frameworks what torchrun tells them; the process group is there already."""
    facts = {"RANK": rank(), "LOCAL_RANK": rank(), "GROUP_RANK": 0, "LOCAL_WORLD_SIZE": ranks()}
    facts |= {"WORLD_SIZE": ranks(), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500}
    os.environ.update({name: str(value) for name, value in facts.items()})
    os.environ["TORCHELASTIC_RUN_ID"] = "none"
    os.environ["ACCELERATE_USE_CPU"] = "true"
    warnings.simplefilter("ignore")


class Samples(Dataset):
    """This rank's samples, in the order of the minibatches."""

    def __init__(self, accumulate: int) -> None:
        parts = [
            pair
            for x, y in minibatches(STEPS)
            for pair in zip(x.chunk(accumulate), y.chunk(accumulate), strict=True)
        ]
        self.size = len(parts[0][0])
        self.inputs = torch.cat([x for x, _ in parts])
        self.labels = torch.cat([y for _, y in parts])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.labels[index]

    def loader(self) -> DataLoader:
        return DataLoader(self, batch_size=self.size)


def found(net: nn.Module, tuner: Any) -> dict[str, Any]:
    return {"digest": digest(net), "decisions": decisions_of(tuner)}


def plain(kind: str, accumulate: int = 1) -> dict[str, Any]:
    net = make_net()
    model = wrapped(net, "ddp")
    tuner = make_tuner(kind, net, STEPS)
    compute_loss = tuner.record(lambda x, y: F.cross_entropy(model(x), y))
    for number, (x, y) in enumerate(Samples(accumulate).loader(), 1):
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
            self.tuner = make_tuner(kind, self.net, STEPS)
            return self.tuner

    module = Module()
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=ranks(),
            strategy="ddp",
            max_epochs=1,
            accumulate_grad_batches=accumulate,
            callbacks=[TunerCallback(loss=loss, average=False)],
            use_distributed_sampler=False,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        trainer.fit(module, Samples(accumulate).loader())
    return {**found(module.net, module.tuner), "calls": module.calls}


def by_accelerate(kind: str, accumulate: int = 1) -> dict[str, Any]:
    behave_as_torchrun()
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    net = make_net()
    tuner = make_tuner(kind, net, STEPS)
    model, optimizer = accelerator.prepare(net, tuner)
    compute_loss = tuner.record(lambda x, y: F.cross_entropy(model(x), y))
    for x, y in Samples(accumulate).loader():
        with accelerator.accumulate(model):
            accelerator.backward(compute_loss(x, y))
            optimizer.step()
            optimizer.zero_grad()
    return found(net, tuner)


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

    samples = Samples(accumulate)
    model = Model()
    tuner = make_tuner(kind, model.net, STEPS)

    def collated(rows: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        inputs, labels = zip(*rows, strict=True)
        return {"x": torch.stack(inputs), "y": torch.stack(labels)}

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            use_cpu=True,
            per_device_train_batch_size=samples.size,
            gradient_accumulation_steps=accumulate,
            num_train_epochs=1,
            save_strategy="no",
            report_to=[],
            max_grad_norm=0.0,
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        trainer = Trainer(model, arguments, train_dataset=samples, optimizers=(tuner, None))
        # Every rank has its own part already.
        trainer.get_train_dataloader = lambda: DataLoader(
            samples, batch_size=samples.size, collate_fn=collated
        )
        tune(trainer)
        trainer.train()
    tuner.train()  # the model was given the average
    return found(model.net, tuner)
