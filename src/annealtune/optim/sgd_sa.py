"""SGD-SA: the paper's Algorithm 2 over plain SGD, with its presets."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed import ProcessGroup

from annealtune.annealing import PAPER_RATES, Schedule, Strategy, grid
from annealtune.optim.annealing_state import Preset, preset_temperature
from annealtune.optim.context import check_model
from annealtune.optim.embedded import AcceptOn, EmbeddedTuner
from annealtune.optim.options import Choices, as_neighborhood

PAPER_COOLING_FACTOR = 0.8
# The authors' program does not let its temperature fall below this, in its own unit of loss.
SCRIPT_FLOOR = 1e-14


class SGDSA(EmbeddedTuner):
    r"""SGD whose learning rate (momentum, ...) is picked from H at every step and annealed.

    The base is plain SGD. Presets reproduce the paper, each cooled by a `cool` after every epoch:

    * ``"paper-text"``: Algorithm 2 to the letter, T0 = 1, alpha = 0.8 per epoch, both losses in
      train mode.
    * ``"paper-code"``: as the authors' public script computes it, which is almost certainly the
      program behind the published numbers. Its accept test divides the mean loss once more by the
      batch size, so T0 and the floor are multiplied by ``batch_size`` here; both losses are taken
      in evaluation mode.

    Args:
        model: the module; for groups of parameters use `EmbeddedTuner` over ``torch.optim.SGD``.
        neighborhood: H, as in `EmbeddedTuner`; by default the paper's 14 rates from 0.9 to 0.05.
        preset: ``"paper-text"``, ``"paper-code"`` or None.
        temperature: as in `EmbeddedTuner`; with a preset a number replaces its T0, in units of the
            loss, and keeps its cooling.
        strategy: another metaheuristic instead of simulated annealing: its name or an object.
        accept_on: what moves are judged by, as in `EmbeddedTuner`.
        epochs: planned number of epochs, for the default schedule.
        total_steps: planned number of steps, for the default schedule.
        batch_size: size of a minibatch, needed by ``"paper-code"`` and read by nothing else.
        seed: of the tuner's own generator.
        process_group: as in `EmbeddedTuner`.

    Raises:
        ValueError: if an argument breaks its rule.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> opt = SGDSA(model, grid(lr=[0.1, 0.01], momentum=[0.0, 0.9]), temperature=0.0)
        >>> x, y = torch.ones(4, 2), torch.zeros(4, 1)
        >>> loss = opt.step(lambda: nn.functional.mse_loss(model(x), y))
        >>> opt.last_step.new_loss <= opt.last_step.loss or not opt.last_step.accepted
        True

    Reference:
        Fischetti and Stringher (2019), Algorithm 2 and Section 4.
    """

    def __init__(
        self,
        model: nn.Module,
        neighborhood: Choices | None = None,
        *,
        preset: Preset | None = None,
        temperature: float | Schedule | None = None,
        strategy: Strategy | str | None = None,
        accept_on: AcceptOn = "loss",
        epochs: int | None = None,
        total_steps: int | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        process_group: ProcessGroup | None = None,
    ) -> None:
        check_model("SGDSA", model)
        neighborhood = as_neighborhood(
            "SGDSA", grid(lr=PAPER_RATES) if neighborhood is None else neighborhood
        )
        if "lr" not in neighborhood.options:
            raise ValueError(
                "SGDSA(neighborhood=...) must name lr in its settings, got options "
                f"{', '.join(neighborhood.options)}"
            )
        base = torch.optim.SGD(model.parameters(), lr=neighborhood[0]["lr"] or 1.0)
        if preset is not None:
            temperature = preset_temperature(
                "SGDSA", preset, temperature, batch_size, PAPER_COOLING_FACTOR, SCRIPT_FLOOR
            )
        super().__init__(
            base,
            model,
            neighborhood=neighborhood,
            temperature=temperature,
            strategy=strategy,
            accept_on=accept_on,
            epochs=epochs,
            total_steps=total_steps,
            seed=seed,
            probe_in="eval" if preset == "paper-code" else "train",
            process_group=process_group,
        )
