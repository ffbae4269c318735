"""Momentum in H: what should its buffers do during a step without momentum?

    python benchmarks/momentum_buffers.py

Prints, for two sets H over rate and momentum (0 and 0.9), the best validation accuracy and the last
validation loss of a perceptron on `digits`, seeds 0-4, for three rules: the buffers rest (what
torch's SGD does, and so do we), they are emptied, they go on accumulating.
"""

import statistics

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from annealtune import SGDSA, grid

EPOCHS, SEEDS = 15, range(5)
RATES = ((0.9, 0.5, 0.3, 0.1, 0.05), (0.3, 0.1, 0.03))
RULES = ("rest", "emptied", "accumulate")


def change_buffers(rule: str, optimizer: torch.optim.Optimizer) -> None:
    """Apply a rule before a step of the base; resting needs nothing."""
    group = optimizer.param_groups[0]
    for p in group["params"]:
        buffer = optimizer.state.get(p, {}).get("momentum_buffer")
        if group["momentum"] == 0 and isinstance(buffer, Tensor):
            if rule == "emptied":
                buffer.zero_()
            elif rule == "accumulate":
                buffer.mul_(0.9).add_(p.grad)


def run(seed: int, rule: str, rates: tuple[float, ...]) -> tuple[float, float]:
    """Return the best accuracy and the last loss on the 360 digits that are held out."""
    pixels, labels = load_digits(return_X_y=True)
    torch.manual_seed(seed)
    order = torch.randperm(len(labels))
    x, y = torch.tensor(pixels / 16, dtype=torch.float32)[order], torch.tensor(labels)[order]
    model = nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    opt = SGDSA(model, grid(lr=rates, momentum=[0.0, 0.9]), epochs=EPOCHS, seed=seed)
    opt.base.register_step_pre_hook(lambda base, *_: change_buffers(rule, base))
    accuracies, loss = [], torch.tensor(0.0)
    for _ in range(EPOCHS):
        for batch in torch.randperm(1437).split(32):
            opt.step(lambda b=batch: nn.functional.cross_entropy(model(x[b]), y[b]))
        opt.cool()
        with torch.no_grad():
            scores = model(x[1437:])
            loss = nn.functional.cross_entropy(scores, y[1437:])
            accuracies.append((scores.argmax(1) == y[1437:]).double().mean().item())
    return max(accuracies), loss.item()


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("rates | rule | best accuracy: mean, lowest, highest | last loss: mean")
    for rates in RATES:
        for rule in RULES:
            best, last = zip(*(run(seed, rule, rates) for seed in SEEDS), strict=True)
            print(
                f"{rates} | {rule} | {statistics.mean(best):.1%}, {min(best):.1%}, "
                f"{max(best):.1%} | {statistics.mean(last):.3f}",
                flush=True,
            )
