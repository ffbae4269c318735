"""Tasks of ten kinds that the others lack, written before any tuner was run on them."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .adaptation import LowRank, Unfrozen
from .games import energy_distance
from .images import Digits, PatchBlock, Pixels, fashion
from .task import Part, Task, fixed_noise, generator, perceptron
from .text import Characters


class DownAndUp(nn.Module):
    """A U-Net of two levels: what is seen before an image is halved is seen again after that."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.before = self._twice(1, width)
        self.within = self._twice(width, 2 * width)
        self.after = self._twice(3 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def _twice(self, inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.ReLU(),
        )

    def forward(self, images: Tensor) -> Tensor:
        fine = self.before(images)
        coarse = self.within(F.max_pool2d(fine, 2))
        raised = F.interpolate(coarse, scale_factor=2.0)
        return self.head(self.after(torch.cat([fine, raised], 1)))


class Shapes(Task):
    """A U-Net finds discs and squares in noise: which of them, if any, each pixel belongs to."""

    steps = 800
    batch_size = 8
    size, each = 20, 3

    def load(self) -> None:
        self.inputs, self.targets = self._drawn(1200, generator(101))
        self.test_inputs, self.test_targets = self._drawn(400, generator(102))

    def _drawn(self, count: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return noisy images and the classes of their pixels; later shapes hide earlier ones."""
        rows, columns = torch.meshgrid(*2 * [torch.arange(self.size)], indexing="ij")
        images = 0.4 * torch.randn(count, self.size, self.size, generator=source)
        classes = torch.zeros(count, self.size, self.size, dtype=torch.long)
        levels = torch.zeros(count, self.size, self.size)
        for _ in range(self.each):
            down, right = torch.randint(self.size, (2, count, 1, 1), generator=source)
            radius = 2 + 3 * torch.rand(count, 1, 1, generator=source)
            is_disc = torch.rand(count, 1, 1, generator=source) < 0.5
            level = 0.5 + torch.rand(count, 1, 1, generator=source)
            far_down, far_right = (rows - down).abs(), (columns - right).abs()
            distance = torch.where(
                is_disc,
                torch.hypot(far_down.float(), far_right.float()),
                torch.maximum(far_down, far_right).float(),
            )
            is_inside = distance <= radius
            classes = torch.where(is_inside, torch.where(is_disc, 1, 2), classes)
            levels = torch.where(is_inside, level, levels)
        return (images + levels)[:, None], classes

    def build(self) -> nn.Module:
        return DownAndUp(8, 3)


class BothSides(nn.Module):
    """Two blocks that see all characters of a window; the last code stands for a hidden one."""

    def __init__(self, characters: int, window: int, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters + 1, width)
        self.positions = nn.Parameter(torch.randn(window, width) * 0.02)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.Sequential(PatchBlock(width), PatchBlock(width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters)

    def forward(self, codes: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embedding(codes) + self.positions)))


class MaskedCharacters(Characters):
    """One in six characters is hidden, and to be told from those on both sides."""

    steps = 1200
    batch_size = 16
    window = 24
    test_windows = 600

    def build(self) -> nn.Module:
        return BothSides(self.characters, self.window)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        codes, _ = minibatch
        is_hidden = torch.rand(codes.shape) < 1 / 6
        outputs = network(torch.where(is_hidden, self.characters, codes))
        return F.cross_entropy(outputs[is_hidden], codes[is_hidden])

    def score(self, network: nn.Module, part: Part) -> float:
        with fixed_noise(103):
            return super().score(network, part)


class Vowels(Task):
    """Convolutions along made sounds: one of four pairs of formants, the pitch rising or falling.

    A sound is a train of overtones; those near a formant are loud. Voices differ in pitch and in
    the length of the throat, which moves both formants.
    """

    steps = 1000
    batch_size = 32
    length = 320
    formants = ((0.3, 2.3), (0.7, 1.2), (0.5, 1.8), (0.35, 0.85))

    def load(self) -> None:
        self.inputs, self.targets = self._spoken(4000, generator(104))
        self.test_inputs, self.test_targets = self._spoken(3000, generator(105))

    def _spoken(self, count: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return waves and their classes; frequencies are in parts of a thousand samples."""
        vowels = torch.randint(4, (count,), generator=source)
        is_rising = torch.randint(2, (count,), generator=source)
        throat = 0.85 + 0.3 * torch.rand(count, 1, generator=source)
        pitch = 12 + 10 * torch.rand(count, 1, generator=source)
        times = torch.arange(self.length) / 1000
        bend = 0.6 * (2 * is_rising[:, None] - 1)
        turns = pitch * (times + bend * (times - 0.16).square() / 0.32)
        waves = 2.2 * torch.randn(count, self.length, generator=source)
        places = 100 * throat * torch.tensor(self.formants)[vowels]
        for overtone in range(1, 20):
            begin = torch.rand(count, 1, generator=source)
            apart = (overtone * pitch - places) / 12
            loud = (-apart.square()).exp().sum(1, keepdim=True)
            waves = waves + loud * torch.sin(2 * math.pi * (overtone * turns + begin))
        return waves[:, None], 2 * vowels + is_rising

    def build(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv1d(1, 16, 16, stride=4),
            nn.ReLU(),
            nn.Conv1d(16, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv1d(32, 32, 4, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(3),
            nn.Flatten(),
            nn.Linear(96, 8),
        )


class Relations(nn.Module):
    """Vectors of things, and of kinds of edges; a thing hears from its neighbours once."""

    def __init__(self, neighbors: Tensor, kinds: int, width: int) -> None:
        super().__init__()
        self.neighbors = neighbors
        self.things = nn.Embedding(len(neighbors), width)
        self.kinds = nn.Embedding(kinds, width)
        self.message = nn.Linear(width, width)
        nn.init.normal_(self.things.weight, std=0.1)
        nn.init.ones_(self.kinds.weight)

    def forward(self, edges: Tensor) -> Tensor:
        """Return how well each thing fits the end of edges that are begun: from where, and kind."""
        heard = F.dropout(self.neighbors, 0.5, self.training) @ self.things.weight
        vectors = self.things.weight + torch.tanh(self.message(heard))
        begun, kinds = edges.unbind(1)
        return (vectors[begun] * self.kinds(kinds)) @ self.things.weight.T


class Links(Task):
    """Where an edge of a graph ends, from where it begins and its kind: 300 nodes, five kinds."""

    steps = 1500
    batch_size = 128
    things, kinds, edges = 300, 5, 12_000

    def load(self) -> None:
        source = generator(106)
        places = torch.randn(self.things, 4, generator=source)
        turns = torch.randn(self.kinds, 4, 4, generator=source)
        begun = torch.randint(self.things, (self.edges + 3000,), generator=source)
        kinds = torch.randint(self.kinds, begun.shape, generator=source)
        aims = (places[begun, None] @ turns[kinds])[:, 0]
        ends = torch.multinomial(F.softmax(aims @ places.T, 1), 1, generator=source)[:, 0]
        pairs = torch.stack([begun, kinds], 1)
        self.inputs, self.test_inputs = pairs[: self.edges], pairs[self.edges :]
        self.targets, self.test_targets = ends[: self.edges], ends[self.edges :]
        counts = torch.zeros(self.things, self.things)
        counts.index_put_((begun[: self.edges], self.targets), torch.tensor(1.0), accumulate=True)
        self.neighbors = counts / counts.sum(1, keepdim=True).clamp(min=1)

    def build(self) -> nn.Module:
        return Relations(self.neighbors, self.kinds, 16)


class Columns(nn.Module):
    """A perceptron on numbers, and on vectors of the two names in the last columns."""

    def __init__(self, numbers: int, names: int, width: int) -> None:
        super().__init__()
        self.names = nn.ModuleList([nn.Embedding(names, 4) for _ in range(2)])
        self.layers = perceptron(numbers + 8, width, width, 1)

    def forward(self, table: Tensor) -> Tensor:
        numbers, names = table[:, :-2], table[:, -2:].long()
        vectors = [embedding(names[:, place]) for place, embedding in enumerate(self.names)]
        return self.layers(torch.cat([numbers, *vectors], 1))[:, 0]


class MixedTable(Task):
    """Prices, around 50, from 1,000 rows of eight numbers and two names; some rows are far off."""

    steps = 2000
    batch_size = 64
    numbers, names = 8, 12

    def load(self) -> None:
        source = np.random.RandomState(107)
        numbers = source.randn(4000, self.numbers)
        names = source.randint(self.names, size=(4000, 2))
        worth = source.randn(2, self.names)
        first, second = worth[0][names[:, 0]], worth[1][names[:, 1]]
        prices = (
            np.sin(2 * numbers[:, 0])
            + numbers[:, 1] * (numbers[:, 2] > 0)
            + 0.5 * np.square(numbers[:, 3])
            + first * numbers[:, 4]
            + second
            + 0.3 * source.standard_t(3, 4000)
        )
        prices = 50 + 20 * (prices - prices.mean()) / prices.std()
        inputs = torch.tensor(np.concatenate([numbers, names], 1)).float()
        targets = torch.tensor(prices).float()
        self.inputs, self.test_inputs = inputs[:1000], inputs[1000:]
        self.targets, self.test_targets = targets[:1000], targets[1000:]

    def build(self) -> nn.Module:
        return Columns(self.numbers, self.names, 128)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        table, prices = minibatch
        return F.smooth_l1_loss(network(table), prices)


class Louder(LowRank):
    """What is of low rank counts eight times, as the scale of LoRA has it."""

    def forward(self, inputs: Tensor) -> Tensor:
        return self.linear(inputs) + 8 * self.up(self.down(inputs))


class TurnedImages(Unfrozen):
    """A trained perceptron is frozen; scaled adapters of rank 4 learn images on their side."""

    steps = 2000
    batch_size = 64

    def load(self) -> None:
        images, self.targets = fashion(self.sources, "train", 4000, 30_000)
        test_images, self.test_targets = fashion(self.sources, "test", 2000)
        self.inputs, self.test_inputs = (part.mT for part in (images, test_images))

    def build(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            network = super().build().requires_grad_(False)
        layers = network[1]
        for place, layer in enumerate(layers):
            if isinstance(layer, nn.Linear):
                layers[place] = Louder(layer)
        return network


class DrawnAgain(Unfrozen):
    """A trained perceptron is frozen; a linear head draws the image from its last hidden layer."""

    steps = 800
    batch_size = 256

    def load(self) -> None:
        self.inputs = fashion(self.sources, "train", 6000, 30_000)[0]
        self.test_inputs = fashion(self.sources, "test", 2000)[0]
        self.targets, self.test_targets = self.inputs.flatten(1), self.test_inputs.flatten(1)

    def build(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            network = super().build().requires_grad_(False)
        network[1][-1] = nn.Linear(128, 196)
        return network

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        images, pixels = minibatch
        return F.mse_loss(network(images), pixels)


class TwentyLayers(Pixels):
    """Twenty layers of width 128 without normalisation, from He's initial weights."""

    steps = 1200
    batch_size = 16
    images = 6000

    def build(self) -> nn.Module:
        network = perceptron(196, *[128] * 19, 10)
        for layer in network:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)
        return network


class Picture(nn.Module):
    """Pixels that are looked for, and the blur through which they are seen."""

    def __init__(self, size: int, kernel: Tensor) -> None:
        super().__init__()
        self.kernel = kernel
        self.pixels = nn.Parameter(0.1 * torch.randn(size, size))

    def forward(self, places: Tensor) -> Tensor:
        return blurred(self.pixels, self.kernel)[places]


def blurred(pixels: Tensor, kernel: Tensor) -> Tensor:
    """Return what is seen of a picture, as one row."""
    reach = kernel.shape[-1] // 2
    wider = F.pad(pixels[None, None], 4 * [reach], mode="replicate")
    return F.conv2d(wider, kernel).flatten()


class Deblurring(Task):
    """A photograph from its blurred pixels, which are noisy: the loss is the misfit of those.

    Tested by the error of the pixels themselves, relative to how they vary.
    """

    steps = 2000
    batch_size = 512
    size, spread, noise = 64, 1.2, 0.01

    def load(self) -> None:
        from sklearn.datasets import load_sample_image

        image = torch.tensor(load_sample_image("flower.jpg")).float().mean(2)
        photograph = F.avg_pool2d(image[None, 20:404, 120:504], 6)[0]
        photograph = (photograph - photograph.mean()) / photograph.std()
        line = (-torch.arange(-3.0, 4.0).square() / (2 * self.spread**2)).exp()
        kernel = line[:, None] * line
        self.kernel = (kernel / kernel.sum())[None, None]
        seen = blurred(photograph, self.kernel)
        self.inputs = self.test_inputs = torch.arange(self.size**2)
        self.targets = seen + self.noise * torch.randn(seen.shape, generator=generator(108))
        self.test_targets = photograph.flatten()

    def build(self) -> nn.Module:
        return Picture(self.size, self.kernel)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        places, values = minibatch
        return F.mse_loss(network(places), values)

    @torch.no_grad()
    def score(self, network: Picture, part: Part) -> float:
        places, values = self.held_out(part)
        return float((network.pixels.flatten()[places] - values).square().mean().sqrt())


class Forger(nn.Module):
    """A generator of digits, and a discriminator."""

    def __init__(self, noise: int, width: int) -> None:
        super().__init__()
        self.noise = noise
        self.generator = nn.Sequential(perceptron(noise, width, width, 64), nn.Sigmoid())
        self.discriminator = perceptron(64, width, width, 1, activation=nn.LeakyReLU)

    def digits(self, count: int) -> Tensor:
        return self.generator(torch.randn(count, self.noise))


class ForgedDigits(Digits):
    """A generator and a discriminator of digits, at one rate.

    Tested by the energy distance between generated digits and those held out.
    """

    steps = 1500
    has_objective = True

    def load(self) -> None:
        super().load()
        self.judged = self.inputs.view(5, 200, 64)

    def build(self) -> nn.Module:
        return Forger(16, 96)

    def loss(self, network: Forger, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        """Return what both players lose; each sees the other's part as fixed."""
        real, _ = minibatch
        forged = self._noisy(network.digits(len(real)))
        both = torch.cat([self._noisy(real), forged.detach()])
        told_real, told_forged = network.discriminator(both).chunk(2)
        discriminating = F.softplus(-told_real).mean() + F.softplus(told_forged).mean()
        frozen = {name: p.detach() for name, p in network.discriminator.named_parameters()}
        believed = torch.func.functional_call(network.discriminator, frozen, (forged,))
        return discriminating + F.softplus(-believed).mean()

    def _noisy(self, digits: Tensor) -> Tensor:
        return digits + 0.5 * torch.randn(digits.shape)

    @torch.no_grad()
    def objective(self, network: Forger) -> list[float]:
        with fixed_noise(109):
            return [energy_distance(network.digits(200), digits) for digits in self.judged]

    @torch.no_grad()
    def score(self, network: Forger, part: Part) -> float:
        digits, _ = self.held_out(part)
        with fixed_noise(110):
            return energy_distance(network.digits(400), digits)
