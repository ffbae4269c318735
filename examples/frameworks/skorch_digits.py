"""skorch: a mixin before the net's class; grid search and pipelines work as before."""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from skorch import NeuralNetClassifier
from torch import nn

from annealtune import SelfTuner
from annealtune.integrations.skorch import TunedMixin


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x):
        return self.layers(x)


class TunedClassifier(TunedMixin, NeuralNetClassifier):
    def make_tuner(self, base):  # optional: without it a run of any length, without decay
        return SelfTuner(base, model=self.module_, total_steps=15 * 19)


torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
net = TunedClassifier(
    Net,
    criterion=nn.CrossEntropyLoss,
    optimizer=torch.optim.AdamW,
    batch_size=64,
    max_epochs=15,
    train_split=None,
    verbose=0,
)
scores = cross_val_score(net, (pixels / 16).astype("float32"), labels, cv=3)
print(f"accuracy {scores.mean():.1%} over {len(scores)} parts")
