"""What a run leaves on disk.

- `directory.py`: all of it, held by `lock.py`;
- `seal.py`: the digests that bind it together, `verify.py`: are they those of the files,
  `changes.py`: what may differ;
- `checkpoint.py`: what a run continues from; `best.py`: its best weights; `records.py`: what is
  written of every epoch; `noted_task.py`: what it learns; `provenance.py`: versions and machine;
- `files.py`: how anything is written.
"""

from pathlib import Path

from annealtune.errors import ConfigError, nearest

CONFIG_FILE = "config.toml"
# What the rate in the last record of a run over H is.
MEAN_OF_MOVES = "mean of the accepted moves of the last epoch"


def is_run(path: Path) -> bool:
    """Tell whether a directory holds a run. Known without importing torch."""
    return (path / CONFIG_FILE).is_file()


def require_run(path: Path) -> None:
    """Check that a directory holds a run.

    Raises:
        ConfigError: if it does not.
    """
    if not is_run(path):
        raise ConfigError(
            f"{path}: is not a run directory: it has no {CONFIG_FILE}{nearest_run(path)}"
        )


def nearest_run(path: Path) -> str:
    """Return the end of a message about a directory without a run: the nearest one beside it."""
    path = Path(path)
    try:
        near = nearest(path.name, [other.name for other in path.parent.iterdir() if is_run(other)])
    except OSError:  # nothing to suggest
        return ""
    return "" if near is None else f"; did you mean {str(path.with_name(near))!r}?"
