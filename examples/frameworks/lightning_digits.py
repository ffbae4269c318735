"""Lightning: a tuner from configure_optimizers, and one callback."""

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from annealtune import SelfTuner
from annealtune.integrations.lightning import TunerCallback


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10)
        )

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("accuracy", (self.net(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        base = torch.optim.AdamW(self.parameters())
        steps = self.trainer.estimated_stepping_batches
        self.tuner = SelfTuner(base, model=self, total_steps=steps)
        return self.tuner


torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
digits = TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels))
training, validation = random_split(digits, [1437, 360])

model = Digits()
trainer = lightning.Trainer(
    max_epochs=12,
    accelerator="cpu",
    callbacks=[TunerCallback()],  # the only line
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
batches = DataLoader(training, batch_size=64, shuffle=True)
trainer.fit(model, batches, DataLoader(validation, batch_size=360))

print(model.tuner.races[-1])
print(f"{trainer.global_step} steps, accuracy {trainer.callback_metrics['accuracy']:.1%}")
