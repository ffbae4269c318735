"""Hugging Face's Trainer: two groups of parameters, their ratio kept, no rate to choose.

The model is small and starts from random weights, so that nothing is downloaded; with
``from_pretrained`` the rest stays as it is.
"""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from annealtune import SelfTuner
from annealtune.integrations.huggingface import tune

STEPS, WORDS = 300, 20


def sentences(count, seed):
    """Sentences of twelve words; the label says whether there are more low words than high ones."""
    words = torch.randint(WORDS, (count, 12), generator=torch.Generator().manual_seed(seed))
    labels = ((words < WORDS // 2).sum(1) > 6).long()
    return [{"input_ids": w, "labels": y} for w, y in zip(words, labels, strict=True)]


torch.manual_seed(0)
config = BertConfig(
    vocab_size=WORDS,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=12,
)
model = BertForSequenceClassification(config)
base = torch.optim.AdamW(
    [
        {"params": model.bert.parameters(), "lr": 1e-3},
        {"params": model.classifier.parameters(), "lr": 1e-2},  # ten times the rate of the body
    ]
)

with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(
        folder, max_steps=STEPS, per_device_train_batch_size=32, use_cpu=True, report_to="none",
        disable_tqdm=True, logging_steps=100, save_strategy="no", per_device_eval_batch_size=500,
    )  # fmt: skip
    trainer = Trainer(
        model, args, train_dataset=sentences(2000, 1), eval_dataset=sentences(500, 2),
        optimizers=(SelfTuner(base, model=model, total_steps=STEPS), None),
        compute_metrics=lambda p: {"accuracy": (p.predictions.argmax(1) == p.label_ids).mean()},
    )  # fmt: skip
    tuner = tune(trainer)  # the only line
    trainer.train()
    accuracy = trainer.evaluate()["eval_accuracy"]

body, head = trainer.lr_scheduler.get_last_lr()
print(tuner.races[-1])
print(f"ratio {head / body:.1f}, accuracy {accuracy:.1%}")
