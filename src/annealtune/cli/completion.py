"""What the shell offers after the tab key. Nothing here imports torch or reads more than names.

`annealtune --install-completion` tells the shell to ask.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from annealtune.training.config import RunConfig, is_block
from annealtune.training.storage import is_run

Complete = Callable[[str], list[str]]
_STUDY_FILE = "study.toml"


def complete_names(names: Iterable[str]) -> Complete:
    """Return what offers these names.

    Example:
        >>> complete_names(["adamw", "sgd"])("ad")
        ['adamw']
    """
    names = tuple(names)

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def complete_list(names: Iterable[str]) -> Complete:
    """Return what offers these names in a list with commas, each once.

    Example:
        >>> complete_list(["adamw", "sgd", "ssa"])("sgd,")
        ['sgd,adamw', 'sgd,ssa']
    """
    names = tuple(names)

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        free = [name for name in names if name not in before.split(",")]
        return [f"{before}{comma}{name}" for name in free if name.startswith(last)]

    return complete


def complete_assignment(incomplete: str) -> list[str]:
    """Offer the keys that --set takes, first the methods, then their options.

    Example:
        >>> complete_assignment("sgd.")
        ['sgd.lr=']
    """
    blocks = {
        field.alias or name: field.annotation
        for name, field in RunConfig.model_fields.items()
        if is_block(field)
    }
    method, dot, _ = incomplete.partition(".")
    if dot:
        options = getattr(blocks.get(method), "model_fields", ())
        keys = [f"{method}.{key}=" for key in options]
    else:
        keys = [f"{name}." for name in blocks]
        keys += [
            f"{name}=" for name, field in RunConfig.model_fields.items() if not is_block(field)
        ]
    return [key for key in keys if key.startswith(incomplete)]


def complete_run(incomplete: str) -> list[str]:
    """Offer the run directories, those below runs/ and studies/ too."""
    return list(_places(incomplete, is_run))


def complete_run_or_study(incomplete: str) -> list[str]:
    """Offer these and the study directories."""
    return list(_places(incomplete, lambda path: is_run(path) or _is_study(path)))


def complete_experiment(names: Iterable[str] = ()) -> Complete:
    """Return what offers TOML files, folders on the way to them, and these names."""
    names = tuple(names)

    def complete(incomplete: str) -> list[str]:
        found = [name for name in names if name.startswith(incomplete)]
        for path, typed in _entries(incomplete):
            if path.is_dir():
                found.append(f"{typed}/")
            elif path.suffix == ".toml":
                found.append(typed)
        return found

    return complete


def _is_study(path: Path) -> bool:
    return (path / _STUDY_FILE).is_file()


def _places(incomplete: str, is_wanted: Callable[[Path], bool]) -> Iterator[str]:
    """Yield wanted directories, as typed so far and completed, and the folders on the way."""
    for path, typed in _entries(incomplete):
        if not path.is_dir():
            continue
        if is_wanted(path):
            yield typed
            continue
        below = [child for child in _children(path) if is_wanted(child)]
        yield from (f"{typed}/{child.name}" for child in below)
        if not below and any(child.is_dir() for child in _children(path)):
            yield f"{typed}/"


def _entries(incomplete: str) -> Iterator[tuple[Path, str]]:
    """Yield what may be meant by the beginning of a path, and how it is typed."""
    folder, slash, start = incomplete.rpartition("/")
    for path in _children(Path(f"{folder}{slash}").expanduser()):
        if path.name.startswith(start):
            yield path, f"{folder}{slash}{path.name}"


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:  # nothing to offer
        return []
