"""A study read back from disk: ``study.toml`` and a directory for each run.

Reading imports no torch, changes nothing and survives what a crash leaves behind: a run that
cannot be read is a record that says why.
"""

import dataclasses
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from annealtune.errors import ConfigError
from annealtune.training.config import read_toml
from annealtune.training.storage import require_run

STUDY_FILE = "study.toml"
RUNS = "runs"
LOG_FILE = "log.txt"
FAILURE_FILE = "failure.json"
SEARCH_FILE = "search.json"
FORMAT = 1

# Records of a run that a page shows.
MOST_SHOWN = 1000

_Content = TypeVar("_Content")
_Record = TypeVar("_Record")

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


def read_study(path: Path) -> Study:
    """Read a study, finished or not.

    Raises:
        ConfigError: if there is no study, or its ``study.toml`` cannot be used.
    """
    path = Path(path)
    facts = read_facts(path)
    search = _read_search(path / SEARCH_FILE)
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
            _with_search(read_run(path, label, seed), search) for label in labels for seed in seeds
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
    if facts.get("format") != FORMAT:
        raise ConfigError(
            f"{file}: format = {facts.get('format')!r}: this version reads format {FORMAT}"
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


def read_run(study: Path, method: str, seed: int) -> RunRecord:
    """Read one run of a study, whatever state it is in."""
    return _read_run(run_path(study, method, seed), method, seed)


def read_lone_run(path: Path) -> RunRecord:
    """Read a run that may belong to no study, whatever state it is in.

    Raises:
        ConfigError: if there is none.
    """
    require_run(path)
    run = _read_run(Path(path), "", 0)
    method, seed = run.config.get("method"), run.config.get("seed")
    return dataclasses.replace(
        run,
        method=method if isinstance(method, str) else "unknown method",
        seed=seed if isinstance(seed, int) else 0,
    )


def _read_run(path: Path, method: str, seed: int) -> RunRecord:
    damages: list[str] = []
    result = _attempt(damages, _read_object, path / "result.json")
    failure = _attempt(damages, _read_object, path / FAILURE_FILE)
    config = _attempt(damages, _read_config, path / "config.toml") or {}
    metrics = _attempt(damages, _read_lines, path / "metrics.jsonl") or ()
    moves = _attempt(damages, _read_lines, path / "moves.jsonl") or ()
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
        done = f"{len(metrics)} of {epochs} epochs" if epochs else "nothing saved yet"
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
        metrics=metrics,
        moves=moves,
        result=result if status == "finished" else None,
    )


def shown_records(records: Sequence[_Record]) -> Sequence[_Record]:
    """Return those records of a long run that a page shows: a page does not grow with the epochs.

    All of a thousand epochs; of more every second, fourth, eighth and so on, so that runs of
    different lengths have epochs in common, besides the first and the last one.

    Example:
        >>> shown_records(range(1, 3))
        range(1, 3)
        >>> found = shown_records(range(1, 2502))
        >>> found[:3], found[-2:], len(found)
        ((1, 4, 8), (2500, 2501), 627)
    """
    every = 1
    while len(records) > MOST_SHOWN * every:
        every *= 2
    if every == 1:
        return records
    last = records[-1:] if len(records) % every else ()
    return (*records[:1], *records[every - 1 :: every], *last)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables in one level, keys joined by a dot."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _with_search(run: RunRecord, search: dict[str, Any] | None) -> RunRecord:
    """Mark a run that a search gave up: it was not just interrupted."""
    for rung in search["rungs"] if search is not None else []:
        if run.status == "unfinished" and run.seed in rung["pruned"]:
            return dataclasses.replace(run, reason=f"{_PRUNED} {rung['epochs']}")
    return run


def _read_search(path: Path) -> dict[str, Any] | None:
    """Read the log of a search, None if there is none."""
    damages: list[str] = []
    search = _attempt(damages, _read_object, path)
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


class _DamageError(Exception):
    """Why a file cannot be used."""


def _attempt(damages: list[str], read: Callable[[Path], _Content], path: Path) -> _Content | None:
    """Read a file that may not be there; note what is wrong with it."""
    if not path.exists():
        return None
    try:
        return read(path)
    except _DamageError as damage:
        damages.append(f"{path.name} is damaged {damage}")
    except (ValueError, RecursionError) as error:
        damages.append(f"{path.name} is damaged: {error}")
    except OSError as error:
        damages.append(f"{path.name} cannot be read: {error.strerror or error}")
    return None


def _read_object(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_bytes())
    if not isinstance(content, dict):
        raise ValueError("it must hold a JSON object")
    return content


def _read_config(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _read_lines(path: Path) -> tuple[dict[str, Any], ...]:
    """Return the complete lines; a last one without its end is still being written."""
    records = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise _DamageError(f"in line {number}")
        records.append(record)
    return tuple(records)
