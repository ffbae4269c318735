"""Without gradients and with a population: a small net's weights bred against annealing them.

The weights are a `Problem`; the engines in `annealtune.search` know nothing of torch.
"""

import torch
from torch import nn

from annealtune import Annealer, GeneticSearch
from annealtune.optim import WeightPopulation

EVALUATIONS = 2000

torch.manual_seed(0)
angle, arm = torch.rand(400) * 6 + 0.5, torch.arange(400) % 2
points = torch.stack([angle.cos(), angle.sin()], 1) * angle[:, None] * (1 - 2 * arm[:, None])
points += 0.2 * torch.randn(400, 2)  # two spirals
train, test = slice(0, 300), slice(300, 400)

model = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 2))
loss_fn = nn.CrossEntropyLoss()
problem = WeightPopulation(model, lambda: loss_fn(model(points[train]), arm[train]), radius=0.2)

for name, engine in (
    ("bred", GeneticSearch(problem, population=40, seed=0)),
    ("annealed", Annealer(problem, seed=0)),
):
    result = engine.run(evaluations=EVALUATIONS)
    problem.load(result.best_state)
    with torch.no_grad():
        accuracy = (model(points[test]).argmax(1) == arm[test]).double().mean().item()
    print(f"{name}: training loss {result.best_energy:.3f}, test accuracy {accuracy:.1%}")
