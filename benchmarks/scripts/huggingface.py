"""A tiny GPT-2 on characters in Hugging Face's Trainer, in the style of its language models."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    get_constant_schedule,
    logging,
    set_seed,
)

from annealtune.integrations.huggingface import tune
from benchmarks.records import Record

from . import common
from .data import Characters


class TinyGPT2(common.Script):
    steps = 400
    batch_size = 16
    block_size = 64

    def load(self) -> None:
        self.text = Characters(self.sources.read_text())

    def model(self) -> nn.Module:
        sizes = {"n_layer": 2, "n_head": 4, "n_embd": 64, "n_positions": self.block_size}
        ends = {"bos_token_id": None, "eos_token_id": None}
        return GPT2LMHeadModel(GPT2Config(vocab_size=self.text.symbols, **sizes, **ends))

    def held_out(self, part: common.Part) -> Iterator[tuple[Tensor, ...]]:
        pieces, _ = self.text.held_out(part, self.block_size)
        return common.batched(pieces, size=64)

    def loss(self, model: nn.Module, *minibatch: Tensor) -> Tensor:
        return model(input_ids=minibatch[0], labels=minibatch[0]).loss

    def attempt(self, method: str, planned: int) -> Record:
        logging.set_verbosity_error()
        set_seed(self.seed)
        model = self.model()
        is_hand_tuned = method == common.HAND_TUNED
        output = common.Output(None, model)
        score = functools.partial(self.evaluate, model, "validation")
        training = self.text.training.unfold(0, self.block_size, self.block_size)
        validation, _ = self.text.held_out("validation", self.block_size)
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder,
                max_steps=planned,
                per_device_train_batch_size=self.batch_size,
                per_device_eval_batch_size=64,
                learning_rate=5e-4,  # falls linearly
                warmup_steps=round(common.WARM_UP * planned) if is_hand_tuned else 0,
                prediction_loss_only=True,
                logging_strategy="no",
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
                seed=self.seed,
            )
            trainer = Trainer(
                model,
                arguments,
                train_dataset=_items(training),
                eval_dataset=_items(validation),
                optimizers=_given(method, model, planned),
                callbacks=[Looks(output, score, method, planned, self.steps)],
            )
            trainer.remove_callback(PrinterCallback)
            if method in common.BY_TUNER:
                tune(trainer)
            trainer.train()
        return self.record(model, _unwrapped(trainer.optimizer), output, planned)


class Looks(TrainerCallback):
    """Has the Trainer evaluate, and keeps the best weights."""

    def __init__(
        self,
        output: common.Output,
        score: Callable[[], float],
        method: str,
        planned: int,
        budget: int,
    ) -> None:
        self._output, self._score, self._method = output, score, method
        self._planned, self._budget = planned, budget

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if self._method in common.AVERAGED:
            optimizer = _unwrapped(given["optimizer"])
            self._output.average = common.averaged(optimizer, given["model"])

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        common.check_length(_unwrapped(given["optimizer"]), self._planned, self._budget)
        control.should_evaluate = common.is_look(state.global_step, self._planned)

    def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        # The averages of Schedule-Free and SelfTuner are still in the model.
        self._output.take(given["metrics"]["eval_loss"], self._score)


def _items(pieces: Tensor) -> list[dict[str, Tensor]]:
    return [{"input_ids": piece, "labels": piece} for piece in pieces]


def _given(method: str, model: nn.Module, planned: int) -> tuple[Any, Any]:
    """Return a peer and its scheduler; without one the Trainer makes its own AdamW."""
    if method == common.HAND_TUNED or method in common.BY_TUNER:
        return None, None
    optimizer, scheduler = common.peer(method, model, planned)
    return optimizer, scheduler or get_constant_schedule(optimizer)


def _unwrapped(optimizer: Any) -> Optimizer:
    """Return what Accelerate has wrapped."""
    return getattr(optimizer, "optimizer", optimizer)
