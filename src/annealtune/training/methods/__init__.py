"""Who makes the steps of a run.

- `Method`: what they have in common, `CountedMinibatch`: what they are given (`method.py`);
- `build`: from a config to a method (`registry.py`);
- one file a kind: `plain.py`, `self_tuned.py`, `annealed.py`.
"""

from .method import CountedMinibatch, Method
from .registry import build

__all__ = ["CountedMinibatch", "Method", "build"]
