"""annealtune: train once, tune nothing; the hyper-parameters anneal inside the run.

The other strategies and temperatures are in `annealtune.strategies` and `annealtune.temperatures`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from annealtune.annealing import Neighborhood, RaceInfo, Setting, grid
from annealtune.errors import AnnealtuneError, NonFiniteLossError
from annealtune.search import Annealer

__version__ = "0.3.0"

__all__ = [
    "SelfTuner",
    "EmbeddedTuner",
    "SGDSA",
    "StochasticSA",
    "Annealer",
    "grid",
    "Neighborhood",
    "Setting",
    "RaceInfo",
    "StepInfo",
    "load",
    "AnnealtuneError",
    "NonFiniteLossError",
]

if TYPE_CHECKING:
    from annealtune.optim import SGDSA, EmbeddedTuner, SelfTuner, StepInfo, StochasticSA
    from annealtune.training import load
else:
    # What needs torch is imported when it is first used: the program answers before that.
    _LATER = {
        "SelfTuner": "annealtune.optim",
        "EmbeddedTuner": "annealtune.optim",
        "SGDSA": "annealtune.optim",
        "StochasticSA": "annealtune.optim",
        "StepInfo": "annealtune.optim",
        "load": "annealtune.training",
    }

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_LATER[name]), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
