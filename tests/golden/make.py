"""The decisions that every version must make: ``python -m tests.golden.make`` writes them anew.

The net is four numbers, rounded to multiples of 1/256 before anything is computed of them. All sums
and products are then exact in float64, so that no machine, instruction set or order of summation
gives another loss; what a base rounds in its step is far below the next 1/256. Losses are therefore
compared to the last bit. What an ``exp`` or a ``pow`` of the machine's library goes into,
temperatures, probabilities and the rates of a race, is compared to 12 digits.

Write them anew only for a change that is meant to change decisions, and say so in CHANGELOG.md.
"""

import json
import math
import random
from pathlib import Path

import torch
from torch import nn

from annealtune import SGDSA, EmbeddedTuner, SelfTuner, StochasticSA
from annealtune.optim import Shrinking

HERE = Path(__file__).parent
DECISIONS = 100
STEPS_PER_EPOCH = 10
GRID = 256
STRATEGIES = ("simulated-annealing", "tabu", "variable-neighborhood", "genetic")


class Net(nn.Module):
    """Four weights in four double wells, and minibatches that tilt them."""

    def __init__(self):
        super().__init__()
        start = [0.25, -0.5, 1.75, -1.25]
        self.weights = nn.Parameter(torch.tensor(start, dtype=torch.float64))
        self._rng = random.Random(2019)
        self.next()

    def next(self):
        """Go on to the next minibatch."""
        tilts = [self._rng.randrange(-32, 33) / 64 for _ in range(4)]
        self._tilts = torch.tensor(tilts, dtype=torch.float64)

    def loss(self):
        w = self.weights
        # The gradient is that of the rounded weight. Far out numbers are no longer exact.
        rounded = (w.detach() * GRID).round().clamp(-4 * GRID, 4 * GRID) / GRID
        q = w + (rounded - w).detach()
        well = q * q - 1.0
        return (well * well + self._tilts * q).sum()


def sgd(net):
    return torch.optim.SGD([net.weights], lr=0.078125)


def adamw(net):
    return torch.optim.AdamW([net.weights], lr=0.0625)


METHODS = {
    "sgd-sa-paper-text": lambda net: SGDSA(net, preset="paper-text"),
    "sgd-sa-paper-code": lambda net: SGDSA(net, preset="paper-code", batch_size=4),
    "embedded-default": lambda net: EmbeddedTuner(adamw(net), net, total_steps=DECISIONS),
    "embedded-anytime": lambda net: EmbeddedTuner(sgd(net), net),
    "stochastic-sa": lambda net: StochasticSA(net, radius=0.125),
    "stochastic-sa-paper-code": lambda net: StochasticSA(
        net,
        radius=Shrinking(0.125, factor=2.0),
        preset="paper-code",
        batch_size=4,
        temperature=0.05,
    ),
    **{
        f"strategy-{name}": lambda net, name=name: EmbeddedTuner(
            sgd(net), net, strategy=name, epochs=10
        )
        for name in STRATEGIES
    },
}

RACES = {
    # The lowest rate wins the first race, so that there is a second one below it.
    "self-tuner": lambda net: SelfTuner(adamw(net), net, total_steps=4000, around=8.0),
    "self-tuner-sgd": lambda net: SelfTuner(sgd(net), net, total_steps=4000, around=0.5),
    "self-tuner-settings": lambda net: SelfTuner(
        sgd(net),
        net,
        total_steps=1000,
        neighborhood={"lr": [0.03125, 0.125], "momentum": [0.0, 0.5]},
    ),
}


def digits(number):
    """Return a number to 12 digits; NaN, the temperature of who has none, is no JSON."""
    return None if math.isnan(number) else float(f"{number:.12g}")


def decisions(name):
    """Return the first decisions of a method, as plain data."""
    net = Net()
    optimizer = METHODS[name](net)
    found = []
    for step in range(DECISIONS):
        net.next()
        optimizer.step(net.loss)
        info = optimizer.last_step
        setting = {key: digits(value) for key, value in info.setting.items()}
        rounded = digits(info.temperature), digits(info.accept_probability)
        found.append([setting, info.loss, info.new_loss, *rounded, info.accepted])
        if (step + 1) % STEPS_PER_EPOCH == 0:
            optimizer.cool()
    return found


def races(name):
    """Return the first two races of a tuner, as plain data."""
    net = Net()
    optimizer = RACES[name](net)
    while optimizer.is_racing and len(optimizer.races) < 2:
        net.next()
        optimizer.step(net.loss)
    found = []
    for race in optimizer.races[:2]:
        plain = race.to_dict()
        plain["settings"] = [{k: digits(v) for k, v in s.items()} for s in plain["settings"]]
        plain["rate"] = digits(plain["rate"])
        plain["dropped"] = {str(arm): reason for arm, reason in plain["dropped"].items()}
        found.append(plain)
    return found


def found(name):
    """Return what a golden file holds."""
    return decisions(name) if name in METHODS else races(name)


def file_of(name):
    """Return where it lies."""
    return HERE / f"{name}.json"


def main():
    for name in (*METHODS, *RACES):
        entries = ",\n".join(json.dumps(entry) for entry in found(name))
        file_of(name).write_text(f"[\n{entries}\n]\n")
        print(file_of(name).relative_to(HERE.parents[1]))


if __name__ == "__main__":
    main()
