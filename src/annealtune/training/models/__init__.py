"""The nets, by name.

- `build`: from a name to a net that is known to fit the data (`building.py`);
- the nets themselves (`nets.py`).
"""

from .building import build

__all__ = ["build"]
