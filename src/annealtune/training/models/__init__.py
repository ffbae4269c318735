"""The nets, by name.

- `build`: from a name to a net that is known to fit the data (`building.py`);
- `paper_nets.py`: the two families of the paper; `small_nets.py`: for a CPU.
"""

from .building import build

__all__ = ["build"]
