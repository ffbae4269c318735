"""Draw the pictures of docs/how-it-works.md, from real runs on scikit-learn's digits.

    python docs/pictures/draw.py [FOLDER]

writes race.svg, rate.svg, accept.svg and stretches.svg, beside this file unless a folder is given.
"""

import math
import sys
from pathlib import Path

import torch
from drawing import WIDTH, Drawing, Point, apart
from sklearn.datasets import load_digits
from torch import Tensor, nn

from annealtune import SGDSA, SelfTuner

STEPS = 1000
LEFT, RIGHT = 44.0, 384.0  # the axes; labels stand to the right of them


class Digits:
    """The example of README: a small net, and the loss of a random minibatch."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        pixels, labels = load_digits(return_X_y=True)
        self.images, self.labels = torch.tensor(pixels / 16).float(), torch.tensor(labels)
        self.training, _ = torch.randperm(len(labels)).split(1400)
        self.model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def minibatch(self) -> Tensor:
        return self.training[torch.randint(1400, (32,))]

    def loss(self, batch: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.model(self.images[batch]), self.labels[batch])


def self_tuned() -> tuple[SelfTuner, tuple[tuple[float, ...], ...], list[float]]:
    """Return a tuner after its run, the losses of the arms of its race, and all rates."""
    task = Digits()
    opt = SelfTuner(torch.optim.AdamW(task.model.parameters()), task.model, total_steps=STEPS)
    compute_loss = opt.record(task.loss)
    rates = []
    for _ in range(STEPS):
        compute_loss(task.minibatch()).backward()
        opt.step()
        opt.zero_grad()
        rates.append(opt.lr)
    [race] = opt.races
    return opt, race.losses, rates


def draw_race(opt: SelfTuner, losses: tuple[tuple[float, ...], ...], path: Path) -> None:
    """Every arm's loss on the same minibatches; where it was dropped, and who won."""
    [info] = opt.races
    drawing = Drawing(330)
    top, bottom = 72.0, 282.0
    lowest = math.floor(2 * min(map(min, losses))) / 2
    highest = max(map(max, losses))

    def place(minibatch: int, loss: float) -> Point:
        x = LEFT + (minibatch - 1) / (info.minibatches - 1) * (RIGHT - LEFT)
        return x, bottom - (loss - lowest) / (highest - lowest) * (bottom - top)

    title = f"One race: {len(losses)} arms on the same {info.minibatches} minibatches"
    drawing.text((0, 18), title, bold=True, size=15)
    drawing.text((0, 36), "training loss of each arm", "muted")
    for half in range(round(2 * lowest), math.floor(2 * highest) + 1):
        loss = half / 2
        drawing.line([place(1, loss), place(info.minibatches, loss)], "rule", 1)
        drawing.text((LEFT - 10, place(1, loss)[1] + 5), str(loss), "muted", anchor="end")
    drawing.text((LEFT, bottom + 22), "1st", "muted", anchor="middle")
    drawing.text((RIGHT, bottom + 22), f"{info.minibatches}th minibatch", "muted", anchor="middle")
    ends = []
    for arm, values in enumerate(losses):
        points = [place(number, value) for number, value in enumerate(values, 1)]
        won = arm == info.winner
        colour = "ours" if won else "warm"
        drawing.line(points, colour, 2.5 if won else 1.8)
        if arm in info.dropped:
            drawing.cross(points[-1], colour)
        ends.append((points[-1], colour))
    heights = apart([end[1] for end, _ in ends], 19)
    for arm, ((end, colour), height) in enumerate(zip(ends, heights, strict=True)):
        fate = "wins" if arm == info.winner else "dropped" if arm in info.dropped else "loses"
        words = f"{info.settings[arm]['lr']:.2g} {fate}"
        drawing.text((end[0] + 12, height + 5), words, colour, bold=colour == "ours")
    drawing.save(path)


def draw_rate(opt: SelfTuner, rates: list[float], path: Path) -> None:
    """The rate over the whole run: race, warm-up, hold, decay."""
    [info] = opt.races
    drawing = Drawing(220)
    top, bottom = 60.0, 170.0
    held = info.rate

    def place(step: float, rate: float) -> Point:
        x = LEFT + 24 + step / STEPS * (WIDTH - LEFT - 44)
        return x, bottom - rate / held * (bottom - top)

    drawing.text((0, 18), "The rate over the whole run", bold=True, size=15)
    race, whole = place(info.minibatches, 0)[0], place(0, 0)[0]
    drawing.box(whole, top - 14, race - whole, bottom - top + 14, "warm")
    drawing.text((race + 8, top - 10), f"race: {info.extra_steps} extra steps", "warm")
    drawing.line([place(0, 0), place(STEPS, 0)], "rule", 1)
    after = list(enumerate(rates, 1))[info.minibatches :: 10]
    drawing.line([place(step, rate) for step, rate in after] + [place(STEPS, 0)], "ours", 2.5)
    drawing.text((whole - 8, top + 5), f"{held:.2g}", "muted", anchor="end")
    drawing.text((whole - 8, bottom + 5), "0", "muted", anchor="end")
    warm_up = place(0.04 * STEPS, 0.35 * held)
    drawing.text((warm_up[0] + 8, warm_up[1] + 5), "warm-up", "ours")
    middle, last = place(0.4 * STEPS, held), place(0.89 * STEPS, held)
    drawing.text((middle[0], middle[1] + 22), "held: plain steps", "ours", anchor="middle")
    drawing.text((last[0] + 8, last[1] + 5), "decayed", "ours", anchor="middle")
    for step in (0, STEPS // 2, STEPS):
        drawing.text(
            (place(step, 0)[0], bottom + 22),
            f"step {step:,}" if step else "0",
            "muted",
            anchor="end" if step == STEPS else "middle",
        )
    drawing.save(path)


def draw_accept(path: Path) -> None:
    """Steps of Algorithm 2: how much worse each made its minibatch, and whether it was kept."""
    task = Digits()
    steps = 500
    opt = SGDSA(task.model, {"lr": [10.0, 3.0, 1.0, 0.3, 0.1]}, total_steps=steps)
    infos = []
    for _ in range(steps):
        batch = task.minibatch()
        opt.step(lambda batch=batch: task.loss(batch))
        infos.append(opt.last_step)
    drawing = Drawing(340)
    top, bottom = 66.0, 300.0
    middle = top + 0.62 * (bottom - top)

    def place(step: int, worsening: float) -> Point:
        """Logarithmic beyond a hundredth on either side of zero."""
        size = math.log10(1 + abs(worsening) / 0.01) / math.log10(1 + 10 / 0.01)
        room = middle - top if worsening > 0 else bottom - middle
        x = LEFT + step / steps * (WIDTH - LEFT - 10)
        return x, middle - math.copysign(min(size, 1.0) * room, worsening)

    drawing.text((0, 18), f"{steps} steps of Algorithm 2", bold=True, size=15)
    drawing.dot((6, 36), "ours", 4)
    kept = sum(info.accepted for info in infos)
    drawing.text((16, 41), f"kept: {kept}", "ours")
    drawing.dot((96, 36), "warm", 4, hollow=True)
    drawing.text((106, 41), f"undone: {steps - kept}", "warm")
    drawing.line([(206, 36), (226, 36)], "ink", 1.5, "5 3")
    drawing.text((232, 41), "temperature", "ink")
    for worsening, words in ((1.0, "+1"), (0.1, "+0.1"), (0.0, "0"), (-0.1, "−0.1"), (-1.0, "−1")):
        drawing.line([place(0, worsening), place(steps, worsening)], "rule", 1)
        drawing.text((LEFT - 8, place(0, worsening)[1] + 5), words, "muted", anchor="end")
    for number, info in enumerate(infos):
        if math.isfinite(info.worsening):
            at = place(number, info.worsening)
            colour = "ours" if info.accepted else "warm"
            drawing.dot(at, colour, 2.2, hollow=not info.accepted)
    warm = [place(n, info.temperature) for n, info in enumerate(infos) if info.temperature > 0]
    drawing.line(warm[::5], "ink", 1.5, "5 3")
    drawing.text((LEFT, bottom + 24), "above 0 the loss of the minibatch got worse", "muted")
    drawing.text((WIDTH - 10, bottom + 24), f"step {steps}", "muted", anchor="end")
    drawing.save(path)


def draw_stretches(path: Path) -> None:
    """The two ideas side by side: single steps, whole stretches."""
    drawing = Drawing(346)
    drawing.text((0, 18), "Algorithm 2 keeps or undoes single steps", bold=True, size=15)
    at: Point = (14.0, 80.0)
    turns = [-14, 22, -34, 12, -18, 26, -22, 12, -34, 14]
    undone = {2, 5, 8}
    drawing.dot(at, "ink", 4)
    for number, turn in enumerate(turns):
        there = (at[0] + 58, at[1] + turn)
        if number in undone:
            drawing.line([at, there], "warm", 1.8, "4 3")
            drawing.cross(there, "warm")
            continue
        drawing.line([at, there], "ours", 2.5)
        drawing.dot(there, "ours", 4)
        at = there
    drawing.text((14, 136), "one setting a step, measured twice on its minibatch", "muted")

    drawing.text((0, 172), "Algorithm 3 compares whole stretches", bold=True, size=15)
    start: Point = (14.0, 244.0)
    drawing.dot(start, "ink", 4)
    for turn, length in [(-44, 80), (-22, 120), (0, 190), (22, 190)]:
        won = turn == 0
        end = (start[0] + 24 + length, start[1] + turn)
        colour = "ours" if won else "warm"
        bend = (start[0] + 24, start[1] + turn)
        drawing.line([start, bend, end], colour, 1.8, "4 3")
        if won:
            drawing.text((end[0] + 8, end[1] + 5), "wins: the run starts again", "ours")
        else:
            drawing.cross(end, colour)
    below = start[1] + 52
    drawing.line([start, (start[0] + 24, below), (WIDTH - 14, below)], "ours", 2.5)
    drawing.dot((WIDTH - 14, below), "ours", 4)
    drawing.text((start[0] + 34, below - 8), "plain steps of your optimizer", "ours")
    drawing.text((14, 334), "several settings, the same minibatches, one winner", "muted")
    drawing.save(path)


def main(folder: Path) -> None:
    """Draw all of them."""
    opt, losses, rates = self_tuned()
    draw_race(opt, losses, folder / "race.svg")
    draw_rate(opt, rates, folder / "rate.svg")
    draw_accept(folder / "accept.svg")
    draw_stretches(folder / "stretches.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
