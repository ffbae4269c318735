"""A study read back from disk: ``study.toml`` and a directory for each run.

Reading imports no torch, changes nothing and survives what a crash leaves behind: a run that
cannot be read is a record that says why.
"""

import dataclasses
import hashlib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import tomli_w

from annealtune.errors import ConfigError, RunError
from annealtune.training.config import read_toml
from annealtune.training.storage import is_run, require_run
from annealtune.training.storage.files import DamageError, read_lines, read_object
from annealtune.training.storage.seal import METRICS, MOVES, check_run, unsealed

STUDY_FILE = "study.toml"
RUNS = "runs"
LOG_FILE = "log.txt"
FAILURE_FILE = "failure.json"
SEARCH_FILE = "search.json"
FORMAT = 2
_UNSEALED = 1  # of earlier versions
_SEAL_LINE = b"# sha256 of the lines above: "


_Content = TypeVar("_Content")

Status = Literal["finished", "failed", "unfinished", "missing"]
_PRUNED = "pruned after epoch"


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """One run of a study.

    Attributes:
        method: the label of its method.
        seed: its value of the seed that the study varies.
        path: its run directory, which may not exist.
        status: finished with a result, failed, begun but not finished, or not begun.
        reason: why it is not finished, as one line; None if there is nothing to say.
        config: ``config.toml``, with the table ``environment``; empty if there is none.
        metrics: the complete lines of ``metrics.jsonl``.
        moves: the complete lines of ``moves.jsonl``.
        result: ``result.json``, None unless the status is finished.
    """

    method: str
    seed: int
    path: Path
    status: Status
    reason: str | None
    config: dict[str, Any]
    metrics: tuple[dict[str, Any], ...]
    moves: tuple[dict[str, Any], ...]
    result: dict[str, Any] | None

    @property
    def state(self) -> str:
        """The status in words; a run that a search gave up is pruned."""
        if self.status == "unfinished":
            return "pruned" if (self.reason or "").startswith(_PRUNED) else "not finished"
        return "not begun" if self.status == "missing" else self.status


@dataclasses.dataclass(frozen=True)
class Study:
    """All runs of a study, methods in the order of the plan, then seeds.

    Attributes:
        path: of the study directory.
        name: of the study.
        command: the command line that made it, as it was typed.
        methods: the labels.
        seeds: the values of the seed that is varied.
        experiment: what all runs have in common, every default resolved.
        environment: versions, machine and commit.
        runs: a record for each method and seed.
        vary: which seed is varied: seed, init_seed, data_seed or decision_seed.
        configs: by label, the resolved config of a method without its seed.
        search: the log of a search for the best seed, None if the study compares methods.
    """

    path: Path
    name: str
    command: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    experiment: dict[str, Any]
    environment: dict[str, Any]
    runs: tuple[RunRecord, ...]
    vary: str = "seed"
    configs: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    search: dict[str, Any] | None = None

    def of(self, method: str) -> tuple[RunRecord, ...]:
        """Return the runs of one method, one for each seed."""
        return tuple(run for run in self.runs if run.method == method)


def run_path(study: Path, method: str, seed: int) -> Path:
    """Return where a run of a study lies; no label leads out of the study.

    Example:
        >>> run_path(Path("s"), "sgd-sa", 3).as_posix()
        's/runs/sgd-sa-seed3'
        >>> run_path(Path("s"), "../<b>", 3).as_posix()
        's/runs/..%2F%3Cb%3E-seed3'
    """
    return study / RUNS / f"{quote(method, safe='+')}-seed{seed}"


def read_study(path: Path, *, large: bool = True) -> Study:
    """Read a study, finished or not.

    Args:
        path: of its directory.
        large: whether weights and checkpoints of the runs are checked too.

    Raises:
        ConfigError: if there is no study, or its ``study.toml`` cannot be used.
    """
    path = Path(path)
    facts = read_facts(path)
    search = _read_search(path / SEARCH_FILE, is_sealed=facts["format"] == FORMAT)
    labels = tuple(method["label"] for method in facts["methods"])
    seeds = tuple(facts["seeds"])
    return Study(
        path=path,
        name=facts["name"],
        command=facts["command"],
        methods=labels,
        seeds=seeds,
        experiment=facts["experiment"],
        environment=facts["environment"],
        runs=tuple(
            _with_search(read_run(path, label, seed, large=large), search)
            for label in labels
            for seed in seeds
        ),
        vary=facts["vary"],
        configs={method["label"]: method["config"] for method in facts["methods"]},
        search=search,
    )


def read_facts(path: Path) -> dict[str, Any]:
    """Read ``study.toml`` and check its form.

    Raises:
        ConfigError: if it is not there or has another form.
    """
    file = path / STUDY_FILE
    if not file.is_file():
        raise ConfigError(
            f"{path}: is not a study directory: it has no {STUDY_FILE}; "
            "annealtune study EXPERIMENT --out DIR makes one"
        )
    facts = read_toml(file)
    number = facts.get("format")
    if number not in (_UNSEALED, FORMAT):
        raise ConfigError(f"{file}: format = {number!r}: this version reads format {FORMAT}")
    text = file.read_bytes()
    if (number == FORMAT or _SEAL_LINE in text) and text != sealed_toml(facts):
        raise ConfigError(
            f"{file}: was changed or damaged: its digest does not fit. Put it back as it was, or "
            "restore it from a backup"
        )
    forms: dict[str, type] = {
        "name": str,
        "command": str,
        "vary": str,
        "seeds": list,
        "methods": list,
        "experiment": dict,
        "environment": dict,
    }
    for key, form in forms.items():
        if not isinstance(facts.get(key), form):
            raise ConfigError(f"{file}: {key}: must be a {form.__name__}, got {facts.get(key)!r}")
    if not all(type(seed) is int and seed >= 0 for seed in facts["seeds"]):
        raise ConfigError(f"{file}: seeds: must be numbers from 0, got {facts['seeds']!r}")
    for method in facts["methods"]:
        match method:
            case {"label": str(), "config": dict()}:
                continue
        raise ConfigError(f"{file}: methods: each must have a label and a config")
    return facts


def sealed_toml(facts: Mapping[str, Any]) -> bytes:
    """Return what ``study.toml`` holds: the facts, and a last line with their digest."""
    text = tomli_w.dumps(facts).encode()
    return text + _SEAL_LINE + hashlib.sha256(text).hexdigest().encode() + b"\n"


def read_run(study: Path, method: str, seed: int, *, large: bool = True) -> RunRecord:
    """Read one run of a study, whatever state it is in."""
    return _read_run(run_path(study, method, seed), method, seed, large=large)


def read_lone_run(path: Path, *, large: bool = True) -> RunRecord:
    """Read a run that may belong to no study, finished or not.

    Args:
        path: of its directory.
        large: whether weights and checkpoints are checked too.

    Raises:
        ConfigError: if there is none.
        RunError: if it is not what was sealed.
    """
    require_run(path)
    check_run(Path(path), large=large)
    run = _read_run(Path(path), "", 0, large=False)
    method, seed = run.config.get("method"), run.config.get("seed")
    return dataclasses.replace(
        run,
        method=method if isinstance(method, str) else "unknown method",
        seed=seed if isinstance(seed, int) else 0,
    )


def _read_run(path: Path, method: str, seed: int, *, large: bool) -> RunRecord:
    damages: list[str] = []
    try:
        if is_run(path):
            check_run(path, large=large)
    except (RunError, OSError) as error:
        damages.append(str(error))
    result = _attempt(damages, read_object, path / "result.json")
    failure = _attempt(damages, read_object, path / FAILURE_FILE)
    config = _attempt(damages, _read_config, path / "config.toml") or {}
    metrics, moves = (_attempt(damages, read_lines, path / name) or () for name in (METRICS, MOVES))
    status: Status
    reason: str | None = None
    if damages:
        status, reason = "failed", "; ".join(damages)
    elif result is not None:
        status = "finished"
    elif failure is not None:
        status, reason = "failed", str(failure.get("reason", "no reason was recorded"))
    elif path.is_dir():
        epochs = config.get("epochs")
        done = f"{len(metrics or ())} of {epochs} epochs" if epochs else "nothing saved yet"
        status, reason = "unfinished", f"begun, {done}"
    else:
        status = "missing"
    return RunRecord(
        method=method,
        seed=seed,
        path=path,
        status=status,
        reason=reason,
        config=config,
        metrics=() if damages else tuple(metrics),  # what is damaged is shown nowhere
        moves=() if damages else tuple(moves),
        result=result if status == "finished" else None,
    )


def _with_search(run: RunRecord, search: dict[str, Any] | None) -> RunRecord:
    """Mark a run that a search gave up: it was not just interrupted."""
    for rung in search["rungs"] if search is not None else []:
        if run.status == "unfinished" and run.seed in rung["pruned"]:
            return dataclasses.replace(run, reason=f"{_PRUNED} {rung['epochs']}")
    return run


def _read_search(path: Path, *, is_sealed: bool) -> dict[str, Any] | None:
    """Read the log of a search, None if there is none."""
    damages: list[str] = []
    search = _attempt(damages, _read_sealed if is_sealed else read_object, path)
    rungs = [] if search is None else search.get("rungs")
    if not isinstance(rungs, list) or not all(map(_is_rung, rungs)):
        damages.append(f"{path.name} is damaged: its rungs have another form")
    if damages:
        raise ConfigError(
            f"{path.parent}: {damages[0]}; restore the file, or start the search again"
        )
    return search


def _is_rung(rung: Any) -> bool:
    match rung:
        case {"pruned": list(), "epochs": int()}:
            return True
    return False


def _attempt(damages: list[str], read: Callable[[Path], _Content], path: Path) -> _Content | None:
    """Read a file that may not be there; note what is wrong with it."""
    try:
        return read(path) if path.exists() else None
    except ValueError as error:
        damages.append(f"{path.name} is damaged: {error}")
    except OSError as error:
        damages.append(f"{path.name} cannot be read: {error.strerror or error}")
    return None


def _read_sealed(path: Path) -> dict[str, Any]:
    try:
        return unsealed(path.read_bytes(), path.name)
    except DamageError as damage:
        raise ValueError(str(damage)) from None


def _read_config(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))
