"""What a run leaves on disk.

- `directory.py`: all of it; `checkpoint.py`: what a run continues from;
- `seal.py`: the names of its files, and one digest over those of a finished run;
- `files.py`: how anything is written, read and locked.
"""

from pathlib import Path

from annealtune.errors import ConfigError

CONFIG_FILE = "config.toml"


def is_run(path: Path) -> bool:
    """Tell whether a directory holds a run. Known without importing torch."""
    return (path / CONFIG_FILE).is_file()


def require_run(path: Path) -> None:
    """Check that a directory holds a run.

    Raises:
        ConfigError: if it does not.
    """
    if not is_run(path):
        raise ConfigError(f"{path}: is not a run directory: it has no {CONFIG_FILE}")
