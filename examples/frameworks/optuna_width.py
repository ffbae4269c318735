"""Optuna searches what a run cannot find by itself, here the width; the rate finds itself."""

import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from annealtune import SelfTuner

EPOCHS = 10

torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
digits = TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels))
training, validation = random_split(digits, [1437, 360])


def objective(trial):
    width = trial.suggest_int("width", 4, 128, log=True)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
    batches = DataLoader(training, batch_size=64, shuffle=True, drop_last=True)
    base = torch.optim.AdamW(model.parameters())
    opt = SelfTuner(base, model=model, total_steps=EPOCHS * len(batches))
    compute_loss = opt.record(lambda x, y: nn.functional.cross_entropy(model(x), y))
    for epoch in range(EPOCHS):
        for x, y in batches:
            compute_loss(x, y).backward()
            opt.step()
            opt.zero_grad()
        with opt.averaged(), torch.no_grad():
            x, y = validation[:]
            accuracy = (model(x).argmax(1) == y).double().mean().item()
        trial.report(accuracy, epoch)
        if epoch >= 4 and trial.should_prune():  # not before the race is over
            raise optuna.TrialPruned
    trial.set_user_attr("rate", opt.races[-1].rate)
    return accuracy


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(objective, n_trials=6)
best = study.best_trial
print(
    f"width {best.params['width']}, accuracy {best.value:.1%}, rate {best.user_attrs['rate']:.3g}"
)
