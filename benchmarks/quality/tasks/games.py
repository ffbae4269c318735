"""Tasks whose loss does not measure progress: a policy that plays, and two nets at odds."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .task import SPARE, Part, Task, fixed_noise, generator, perceptron

# The cart's place and the pole's angle at which an episode is over.
FARTHEST, STEEPEST = 1.5, 0.4
# What place, speed, angle and turning speed become in a twentieth of a second, and what a push
# adds: the pole on a cart for small angles.
MOTION = torch.tensor(
    [
        [1.0, 0.05, 0.0, 0.0],
        [0.0, 1.0, -0.036, 0.0],
        [0.0, 0.0, 1.039, 0.05],
        [0.0, 0.0, 0.789, 1.0],
    ]
)
PUSH = torch.tensor([0.024, 0.488, -0.037, -0.732])
# States are divided by these before the policy sees them.
SCALES = torch.tensor([1.0, 1.0, 0.3, 1.0])


class PolicyGradient(Task):
    """REINFORCE: keep a pole upright on a cart that is pushed left or right.

    A step is worth 1 less the square of how far the cart is from the middle, and nothing once the
    pole has fallen; tested by what the return lacks to one a step.
    """

    steps = 1000
    batch_size = 48
    has_objective = True
    length = 25

    def load(self) -> None:
        self.test_inputs = self.starts(generator(21), 600)
        self.test_targets = torch.zeros(600)
        self.judged = self.starts(generator(22), 32)

    def starts(self, source: torch.Generator, *shape: int) -> Tensor:
        """Return states in which episodes begin, at some distance from the middle."""
        spread = torch.tensor([0.8, 0.6, 0.15, 0.6])
        return (2 * torch.rand(*shape, 4, generator=source) - 1) * spread

    @functools.cached_property
    def all_starts(self) -> Tensor:
        """The states in which the episodes of every minibatch begin."""
        return self.starts(generator(3000 + self.seed), self.steps + SPARE, self.batch_size)

    def rows(self) -> int:
        return 50 * self.batch_size

    def minibatch(self, index: int) -> Tensor:
        self.begin_noise(index)
        return self.all_starts[index]

    def build(self) -> nn.Module:
        return perceptron(4, 32, 32, 1, activation=nn.Tanh)

    @torch.no_grad()
    def episodes(self, network: nn.Module, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Play; return states, whether the push was to the right, and rewards, by step."""
        played = []
        turned = MOTION.T
        alive = torch.ones(len(states))
        for _ in range(self.length):
            likely = torch.sigmoid(network(states / SCALES)[:, 0])
            right = (torch.rand(len(states)) < likely).float()
            before, states = states, states @ turned + (2 * right - 1)[:, None] * PUSH
            place, angle = states[:, 0], states[:, 2]
            alive = alive * (place.abs() < FARTHEST) * (angle.abs() < STEEPEST)
            states = states * alive[:, None]
            played.append((before, right, alive * (1 - (place / FARTHEST).square())))
        seen, pushes, rewards = zip(*played, strict=True)
        return torch.stack(seen), torch.stack(pushes), torch.stack(rewards)

    def loss(self, network: nn.Module, minibatch: Tensor) -> Tensor:
        seen, pushes, rewards = self.episodes(network, minibatch)
        to_come = rewards.flip(0).cumsum(0).flip(0)
        advantage = to_come - to_come.mean(1, keepdim=True)
        logits = network(seen / SCALES)[..., 0]
        unlikely = F.binary_cross_entropy_with_logits(logits, pushes, reduction="none")
        return (unlikely * advantage).mean()

    def regrets(self, network: nn.Module, states: Tensor, noise: int) -> Tensor:
        """Return what each episode lacks, always by the same noise."""
        with fixed_noise(noise):
            return self.length - self.episodes(network, states)[2].sum(0)

    def objective(self, network: nn.Module) -> list[float]:
        return self.regrets(network, self.judged, 23).tolist()

    def score(self, network: nn.Module, part: Part) -> float:
        states, _ = self.held_out(part)
        return float(self.regrets(network, states, 24).mean())


def distances(ones: Tensor, others: Tensor) -> Tensor:
    return torch.cdist(ones, others, compute_mode="donot_use_mm_for_euclid_dist").mean()


def energy_distance(ones: Tensor, others: Tensor) -> float:
    """Return how far two samples are from each other, as a root; never below 0."""
    squared = 2 * distances(ones, others) - distances(ones, ones) - distances(others, others)
    return math.sqrt(max(float(squared), 0.0))


class Players(nn.Module):
    """A generator of points, and a discriminator."""

    def __init__(self, noise: int, width: int) -> None:
        super().__init__()
        self.noise = noise
        self.generator = perceptron(noise, width, width, 2)
        self.discriminator = perceptron(2, width, width, 1)

    def points(self, count: int) -> Tensor:
        return self.generator(torch.randn(count, self.noise))


def _blurred(points: Tensor) -> Tensor:
    return points + 0.5 * torch.randn(points.shape)


class Adversarial(Task):
    """A generator and a discriminator on a ring of eight Gaussians, in one optimizer.

    Tested by the energy distance between generated points and those held out.
    """

    steps = 1500
    has_objective = True

    def load(self) -> None:
        source = generator(25)
        turns = torch.randint(8, (6000,), generator=source) * (math.pi / 4)
        centres = 2 * torch.stack([turns.cos(), turns.sin()], 1)
        points = centres + 0.2 * torch.randn(6000, 2, generator=source)
        self.inputs, self.test_inputs = points[:4000], points[4000:]
        self.targets, self.test_targets = torch.zeros(4000), torch.zeros(2000)
        self.judged = points[:4000].view(8, 500, 2)[:, :200]

    def build(self) -> nn.Module:
        return Players(4, 48)

    def groups(self, network: Players) -> list[tuple[list[nn.Parameter], float]]:
        """Return both players; the generator learns at a quarter of the rate."""
        generator, discriminator = network.generator, network.discriminator
        return [(list(discriminator.parameters()), 1.0), (list(generator.parameters()), 0.25)]

    def loss(self, network: Players, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        """Return what both players lose; each sees the other's part as fixed."""
        real, _ = minibatch
        points = _blurred(network.points(len(real)))
        told_real, told_false = network.discriminator(
            torch.cat([_blurred(real), points.detach()])
        ).chunk(2)
        discriminating = F.softplus(-told_real).mean() + F.softplus(told_false).mean()
        frozen = {name: p.detach() for name, p in network.discriminator.named_parameters()}
        believed = torch.func.functional_call(network.discriminator, frozen, (points,))
        return discriminating + F.softplus(-believed).mean()

    @torch.no_grad()
    def objective(self, network: Players) -> list[float]:
        with fixed_noise(26):
            return [energy_distance(network.points(200), points) for points in self.judged]

    @torch.no_grad()
    def score(self, network: Players, part: Part) -> float:
        points, _ = self.held_out(part)
        with fixed_noise(27):
            return energy_distance(network.points(1000), points)
