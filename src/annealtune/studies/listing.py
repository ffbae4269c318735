"""Which runs and studies lie below a directory, and how far each got. Imports no torch.

A directory that cannot be read, or is broken, is an entry that says so.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from annealtune.errors import ConfigError, RunError
from annealtune.studies.records import FAILURE_FILE, STUDY_FILE, RunRecord, Study, read_study
from annealtune.training.storage import CONFIG_FILE, is_run
from annealtune.training.storage.files import read_lines, read_object
from annealtune.training.storage.seal import check_run

State = Literal["finished", "running", "unfinished", "failed", "damaged"]
# What only a run leaves behind: many a program has a config.toml.
_TRACES = ("metrics.jsonl", "best.json", "result.json", "checkpoints", ".lock")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A run or a study.

    Attributes:
        path: of its directory.
        kind: which of the two.
        state: how it stands.
        reason: why it is not finished, None if there is nothing to say.
        method: of the run; of a study those that it compares, with commas.
        data: on what.
        model: the net.
        done: complete epochs; of a study complete runs.
        planned: how many there will be.
        rate: the learning rate that was found in the run, or given; None if there is no one rate.
        scores: best validation and test loss, and the accuracies where there are any.
    """

    path: Path
    kind: Literal["run", "study"]
    state: State
    reason: str | None = None
    method: str = ""
    data: str = ""
    model: str = ""
    done: int = 0
    planned: int | None = None
    rate: float | None = None
    scores: dict[str, float] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        plain = {**dataclasses.asdict(self), "path": str(self.path), **self.scores}
        del plain["scores"]
        return plain


@dataclasses.dataclass(frozen=True)
class Listing:
    """What was found.

    Attributes:
        entries: runs and studies, by their paths.
        skipped: other directories that lie there.
    """

    entries: tuple[Entry, ...]
    skipped: tuple[Path, ...]


def list_directory(root: Path) -> Listing:
    """Return the runs and studies in a directory; of a study its runs.

    Raises:
        ConfigError: if it is not a directory.
    """
    if not root.is_dir():
        raise ConfigError(f"{root}: is not a directory")
    held = _held_files()
    if _is_study(root):
        runs = (_with_lock(_entry_of(run), held) for run in read_study(root, large=False).runs)
        return Listing(_sorted(runs), ())
    if _is_run(root):
        return Listing((_with_lock(_read_run(root), held),), ())
    entries: list[Entry] = []
    refused: list[Path] = []

    def refuse(error: OSError) -> None:
        refused.append(Path(str(error.filename)))

    for folder, below, _ in os.walk(root, onerror=refuse):
        path = Path(folder)
        try:
            if _is_study(path):
                entries.append(_with_lock(_read_study(path), held))
            elif _is_run(path):
                entries.append(_with_lock(_read_run(path), held))
            else:
                below[:] = [name for name in below if not name.startswith(".")]
                continue
        except OSError:  # its names may be read, and nothing else
            refused.append(path)
        below.clear()
    return Listing(_sorted(entries), tuple(sorted({*refused, *_without(root, entries)})))


def _sorted(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Sort by path, seed 10 after seed 9."""

    def key(entry: Entry) -> list[tuple[int, str]]:
        return [
            (int(part), "") if part.isdecimal() else (-1, part)
            for part in re.split(r"([0-9]+)", str(entry.path))
        ]

    return tuple(sorted(entries, key=key))


def _without(root: Path, entries: Iterable[Entry]) -> list[Path]:
    """Return the directories right below the root in which nothing was found."""
    found = {entry.path.relative_to(root).parts[0] for entry in entries}
    return [
        path
        for path in root.iterdir()
        if path.name not in found and not path.name.startswith(".") and path.is_dir()
    ]


def _is_study(path: Path) -> bool:
    return (path / STUDY_FILE).is_file()


def _is_run(path: Path) -> bool:
    traces = sum((path / name).exists() for name in _TRACES)
    if not (path / CONFIG_FILE).is_file():
        return traces > 1  # what is left of one
    return traces > 0 or "method" in _read(path / CONFIG_FILE, [])


def _held_files() -> set[str]:
    """Return the files that some process has locked, as Linux names them; none on other systems.

    To try a lock would be to hold it for a moment, in which a run could not start.
    """
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return set()
    return {word for line in lines for word in line.split() if word.count(":") == 2}


def _with_lock(entry: Entry, held: set[str]) -> Entry:
    """Return the entry as running if a process works in its directory."""
    if entry.state not in ("unfinished", "failed"):
        return entry
    try:
        lock = (entry.path / ".lock").stat()
    except OSError:
        return entry
    name = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    return dataclasses.replace(entry, state="running") if name in held else entry


def _read_study(path: Path) -> Entry:
    try:
        study = read_study(path, large=False)
    except ConfigError as error:
        return Entry(path, "study", "damaged", " ".join(str(error).split()))
    counts = [run.state for run in study.runs]
    done = sum(state in ("finished", "pruned") for state in counts)
    failed = counts.count("failed")
    state: State = "finished" if done == len(counts) else "failed" if failed else "unfinished"
    return Entry(
        path=path,
        kind="study",
        state=state,
        reason=f"{failed} failed" if failed else None,
        method=", ".join(study.methods),
        data=_common(study, "data"),
        model=_common(study, "model"),
        done=done,
        planned=len(counts),
    )


def _common(study: Study, key: str) -> str:
    return str(study.experiment.get(key, "several"))


def _entry_of(run: RunRecord) -> Entry:
    """Return the entry of a run that its study knows, begun or not."""
    if run.status == "missing":
        return Entry(run.path, "run", "unfinished", "not begun", method=run.method)
    entry = _read_run(run.path)
    state = "failed" if run.status == "failed" and entry.state != "damaged" else entry.state
    return dataclasses.replace(entry, method=run.method, state=state, reason=run.reason)


def _read_run(path: Path) -> Entry:
    damages: list[str] = []
    try:
        if is_run(path):
            check_run(path, large=False)
    except (RunError, OSError) as error:
        damages.append(" ".join(str(error).split()))
    config = _read(path / CONFIG_FILE, damages)
    result = _read(path / "result.json", damages)
    best = _read(path / "best.json", damages)
    failure = _read(path / FAILURE_FILE, damages)
    records = _read_lines(path / "metrics.jsonl", damages)
    if not config and not damages:
        damages = [f"it has no {CONFIG_FILE}"]
    state: State = "finished" if result else "failed" if failure else "unfinished"
    reason = str(failure.get("reason")) if state == "failed" else None
    epochs = config.get("epochs")
    return Entry(
        path=path,
        kind="run",
        state="damaged" if damages else state,
        reason=", ".join(damages) or reason,
        method=str(config.get("method", "")),
        data=str(config.get("data", "")),
        model=str(config.get("model", "")),
        done=len(records),
        planned=epochs if isinstance(epochs, int) else None,
        rate=_rate(config, result, records),
        scores=_scores(best, result),
    )


def _rate(
    config: Mapping[str, Any], result: Mapping[str, Any], records: list[dict[str, Any]]
) -> float | None:
    """Return the rate of the last race, else the one that was given, else the highest one.

    A known length makes the rate fall to nothing in the end: the last one says little.
    """
    races = [
        race
        for record in (*records, result)
        for race in _listed(record.get("races"))
        if isinstance(race, dict)
    ]
    if races:
        return _number(races[-1].get("rate"))
    block = config.get(str(config.get("method")), {})
    given = block.get("lr") if isinstance(block, dict) else None
    if given is not None:
        return _number(given[0] if len(_listed(given)) == 1 else given)
    return max(filter(None, (_number(each.get("rate")) for each in records)), default=None)


def _scores(best: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, float]:
    found = {
        "validation_accuracy": best.get("validation_accuracy"),
        "validation_loss": best.get("validation_loss"),
        "test_accuracy": result.get("test_accuracy"),
        "test_loss": result.get("test_loss"),
    }
    numbers = {name: _number(value) for name, value in found.items()}
    return {name: value for name, value in numbers.items() if value is not None}


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _read(path: Path, damages: list[str]) -> dict[str, Any]:
    """Return a table, empty if the file is not there; note if it cannot be used."""
    try:
        if path.suffix == ".toml":
            return tomllib.loads(path.read_text(encoding="utf-8"))
        return read_object(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        damages.append(f"{path.name} cannot be read")
        return {}


def _read_lines(path: Path, damages: list[str]) -> list[dict[str, Any]]:
    """Return the complete lines of a file; a last one without its end is still being written."""
    try:
        return read_lines(path)
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        damages.append(f"{path.name} cannot be read")
        return []
