"""The nets, by name.

- `build`: from a name to a net that is known to fit the data (`building.py`);
- `vgg.py`, `resnet.py`: the two families of the paper; `small_cnn.py`, `mlp.py`: for a CPU.

A net is made for images of ``channels`` planes, gives one score for each of ``classes``, and has
every width divided by ``divisor``.
"""

from .building import build

__all__ = ["build"]
