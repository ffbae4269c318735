"""How the files of a page are written: all of them, or an error that says what to do."""

from collections.abc import Mapping
from pathlib import Path

from annealtune.errors import ConfigError, RunError
from annealtune.training.storage.files import write_atomically


def write_files(directory: Path, contents: Mapping[str, bytes]) -> Path:
    """Write files into a directory, each at once or not at all; the page comes last.

    Args:
        directory: is made if it is not there.
        contents: by name, which may begin with a folder; ``index.html`` is the page.

    Returns:
        The path of the page.

    Raises:
        ConfigError: if a file is where a directory should be.
        RunError: if the disk is full or not writable.
    """
    for folder in sorted({(directory / name).parent for name in contents}):
        _make(folder)
    for name in sorted(contents, key=lambda name: name == "index.html"):
        _write(directory / name, contents[name])
    return directory / "index.html"


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ConfigError(
            f"{directory}: cannot be made: a file is in the way; choose another --out"
        ) from None
    except OSError as error:
        raise RunError(
            f"{directory}: cannot be made: {error.strerror}; choose another --out"
        ) from None


def _write(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, content)
    except RunError as error:
        reason = getattr(error.__cause__, "strerror", None) or error
        raise RunError(
            f"{path}: cannot be written: {reason}; make room or choose another --out"
        ) from error
