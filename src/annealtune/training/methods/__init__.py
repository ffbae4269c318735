"""Who makes the steps of a run.

- `Method`: what they have in common (`method.py`); `build`: from a config to one (`registry.py`);
- one file a kind: `plain.py`, `self_tuned.py`, `annealed.py`, `next_minibatch.py`,
  `gradient_free.py`;
- what they work with: `counted_minibatch.py`, `criterion.py` (what moves are judged by),
  `loop_options.py` (what else H sets), `parameter_groups.py`.
"""

from .counted_minibatch import CountedMinibatch
from .method import Method
from .registry import build

__all__ = ["CountedMinibatch", "Method", "build"]
