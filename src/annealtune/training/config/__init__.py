"""Every key of a run, its rule and its default. Known without importing torch.

- `RunConfig`: the run itself (`run_config.py`); one block of options a method (`blocks.py`);
- data sets and models that have a name (`names.py`);
- `from_values`, `read_toml`, `assign`: from text to a config, or to an error (`reading.py`).
"""

from .blocks import Options
from .reading import assign, differences, faults, flat, from_values, read_toml
from .run_config import (
    DEFAULT_METHOD,
    ENVIRONMENT,
    MOST_THREADS,
    STUDY_TABLES,
    MethodName,
    RunConfig,
    is_block,
)

__all__ = [
    "RunConfig",
    "Options",
    "MethodName",
    "is_block",
    "assign",
    "differences",
    "faults",
    "flat",
    "from_values",
    "read_toml",
    "DEFAULT_METHOD",
    "ENVIRONMENT",
    "MOST_THREADS",
    "STUDY_TABLES",
]
