"""The nets, by name.

- `build`: from a name to a net that is known to fit the data (`building.py`);
- `parse`, `padded_size`, `ARCHITECTURES`: what a name means, without importing torch (`names.py`);
- `vgg.py`, `resnet.py`: the two families of the paper; `small_cnn.py`, `mlp.py`: for a CPU.
"""

from typing import TYPE_CHECKING

from .names import ARCHITECTURES, ModelName, padded_size, parse

if TYPE_CHECKING:
    from .building import build

__all__ = ["ARCHITECTURES", "ModelName", "build", "padded_size", "parse"]


def __getattr__(name: str) -> object:
    """Import torch only when a net is built: a typo in a name is answered at once."""
    if name == "build":
        from .building import build

        return build
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
