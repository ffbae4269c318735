"""Three optimizers that find their learning rate themselves: a rate is given nowhere."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from annealtune import SelfTuner

EPOCHS = 15

torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
digits = TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels))
training, test = random_split(digits, [1437, 360])
batches = DataLoader(training, batch_size=64, shuffle=True)
loss_fn = nn.CrossEntropyLoss()

for kind in (torch.optim.AdamW, torch.optim.Adagrad, torch.optim.SGD):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10))
    base = kind(model.parameters())
    opt = SelfTuner(base, model=model, total_steps=EPOCHS * len(batches))
    compute_loss = opt.record(lambda x, y, model=model: loss_fn(model(x), y))

    for _ in range(EPOCHS):
        for x, y in batches:
            compute_loss(x, y).backward()
            opt.step()
            opt.zero_grad()

    # The average of the last weights; the statistics of BatchNorm are computed anew for it.
    with opt.averaged(batches), torch.no_grad():
        model.eval()
        x, y = test[:]
        accuracy = (model(x).argmax(1) == y).double().mean().item()
    print(f"{kind.__name__}: rate {opt.races[-1].rate:.3g}, test accuracy {accuracy:.1%}")
    print(opt.races[-1].table())
