"""The weights of a small net as a problem for the search engines, without any gradient."""

from __future__ import annotations

import numbers
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from annealtune.annealing.arguments import positive
from annealtune.optim.evaluation import guards
from annealtune.optim.evaluation.probe import unchanged


class WeightPopulation:
    r"""Solutions are flat weight vectors, moves are Gaussian noise, the energy is a loss.

    .. math:: w_{new} = w + radius \cdot z, \quad z \sim N(0, 1)

    For `GeneticSearch` and for `Annealer`. A child takes each weight matrix and each bias as a
    whole from one of its parents. Only parameters that require a gradient take part. An evaluation
    changes nothing: weights, gradients, buffers, training flags and torch's random numbers are put
    back, so that dropout, if any, draws the same mask for all solutions. Noise comes from the
    generator of the search, by way of a seed.

    Args:
        model: the net whose present weights the search starts from.
        loss: returns the loss of the model as it stands, a number or a tensor of one element, for
            example over the whole training set; called without gradients.
        radius: the standard deviation of the noise.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if no parameter requires a gradient, or the radius is not positive and finite.

    Example:
        >>> from annealtune.search import GeneticSearch
        >>> model, x = nn.Linear(2, 1), torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> y = x @ torch.tensor([[1.0], [-1.0]])
        >>> problem = WeightPopulation(model, lambda: nn.functional.mse_loss(model(x), y))
        >>> result = GeneticSearch(problem, seed=0).run(iterations=60)
        >>> problem.load(result.best_state)
        >>> bool(nn.functional.mse_loss(model(x), y) < 0.01)
        True

    Reference:
        Montana and Davis (1989), Training feedforward neural networks using genetic algorithms,
        Proceedings of the Eleventh International Joint Conference on Artificial Intelligence.
        Crossing whole tensors is our choice (single weights mean little without their row; on a
        small net of two layers it ended lower than a coin for every weight), and so is a constant
        radius.
    """

    def __init__(self, model: nn.Module, loss: Callable[[], Any], *, radius: float = 0.1) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"WeightPopulation(model=...) must be a torch.nn.Module, got {model!r}")
        if not callable(loss):
            raise TypeError(f"WeightPopulation(loss=...) must be callable, got {loss!r}")
        self.model = model
        self.loss = loss
        self.radius = positive("WeightPopulation(radius=...)", radius)
        self._weights = [p for p in model.parameters() if p.requires_grad]
        self._sizes = [p.numel() for p in self._weights]
        if not self._weights:
            raise ValueError(
                "WeightPopulation(model=...) must have a parameter that requires a gradient, got "
                f"none in {model!r}"
            )

    def initial(self, rng: random.Random) -> Tensor:
        """Return the model's present weights with noise on them."""
        return self.propose(self._present(), rng)

    def propose(self, state: Tensor, rng: random.Random) -> Tensor:
        """Return the weights with noise on them."""
        # Drawn on the CPU, so that one seed gives the same noise on every device.
        generator = torch.Generator().manual_seed(rng.getrandbits(63))
        noise = torch.randn(state.shape, generator=generator, dtype=state.dtype)
        return state + self.radius * noise.to(state.device)

    def crossover(self, first: Tensor, second: Tensor, rng: random.Random) -> Tensor:
        """Return weights of which each tensor comes from one parent or the other."""
        pairs = zip(first.split(self._sizes), second.split(self._sizes), strict=True)
        return torch.cat([rng.choice(pair) for pair in pairs])

    def energy(self, state: Tensor) -> float:
        """Return the loss at these weights; the model is as before afterwards.

        Raises:
            TypeError: if the loss is no number.
            ValueError: if the weights do not fit the model.
        """
        with self._everything_kept(), torch.no_grad():
            self.load(state)
            loss = self.loss()
            if isinstance(loss, Tensor) and loss.numel() == 1:
                loss = loss.item()
        if isinstance(loss, bool) or not isinstance(loss, numbers.Real):
            raise TypeError(
                "WeightPopulation(loss=...) must return a number or a tensor of one element, got "
                f"{loss!r}"
            )
        return float(loss)

    @torch.no_grad()
    def load(self, state: Tensor) -> None:
        """Write weights into the model.

        Raises:
            ValueError: if they do not fit.
        """
        if state.shape != (sum(self._sizes),):
            raise ValueError(
                "WeightPopulation.load(state=...) must be a vector of the model's "
                f"{sum(self._sizes)} weights, got a tensor of shape {tuple(state.shape)}"
            )
        for p, part in zip(self._weights, state.split(self._sizes), strict=True):
            p.copy_(part.view_as(p))

    def _present(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self._weights])

    @contextmanager
    def _everything_kept(self) -> Iterator[None]:
        """Put back whatever an evaluation changes, also if it fails."""
        gradients = guards.Gradients(self.model.parameters())
        with guards.kept(gradients), unchanged(self._weights, list(self.model.modules())):
            gradients.put_aside()  # out of reach of a zero_grad
            yield
