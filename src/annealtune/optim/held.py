"""A step that was kept unmeasured, until the next loss confirms it."""

from __future__ import annotations

import dataclasses

from annealtune.optim.guards import Buffers
from annealtune.optim.step_info import StepInfo


@dataclasses.dataclass(frozen=True)
class Held:
    """What is needed to undo it.

    Attributes:
        info: the step.
        buffers: of the model, as they were after it; the next forward writes into them.
    """

    info: StepInfo
    buffers: Buffers
