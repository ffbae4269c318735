"""A study read back from disk: ``study.toml`` and a directory for each run.

Reading imports no torch, changes nothing and survives what a crash leaves behind: a run that
cannot be read is a record that says why.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import filelock
import tomli_w

from annealtune.errors import ConfigError, RunError
from annealtune.training.config import flat, read_toml
from annealtune.training.storage import CONFIG_FILE, is_run, require_run
from annealtune.training.storage.files import LOCK, RecordFile, read_json
from annealtune.training.storage.seal import METRICS, MOVES, RESULT_FILE, check_run

STUDY_FILE = "study.toml"
RUNS = "runs"
LOG_FILE = "log.txt"
FAILURE_FILE = "failure.json"
_SEAL_LINE = b"# sha256 of the lines above: "

Status = Literal["finished", "failed", "unfinished", "missing"]


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
    reason: str | None = None
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    metrics: tuple[dict[str, Any], ...] = ()
    moves: tuple[dict[str, Any], ...] = ()
    result: dict[str, Any] | None = None

    @property
    def state(self) -> str:
        """The status in words."""
        return {"unfinished": "not finished", "missing": "not begun"}.get(self.status, self.status)


@dataclasses.dataclass(frozen=True)
class Study:
    """All runs of a study, methods in the order of the plan, then seeds.

    Attributes:
        path: of the study directory.
        name: of the study.
        command: the command line that made it, as it was typed.
        methods: the labels.
        seeds: the values of the seed that is varied.
        environment: versions, machine and commit.
        runs: a record for each method and seed.
        configs: by label, the resolved config of a method without its seed.
        vary: which seed is varied: seed, init_seed, data_seed or decision_seed.
    """

    path: Path
    name: str
    command: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    environment: dict[str, Any]
    runs: tuple[RunRecord, ...]
    configs: dict[str, dict[str, Any]]
    vary: str = "seed"

    @property
    def experiment(self) -> dict[str, Any]:
        """The options that all methods share; see `shared_options`."""
        return shared_options(self.configs.values())

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


def shared_options(configs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the options that are the same in all configs, keys of tables joined by a dot.

    Example:
        >>> shared_options([{"epochs": 3, "sgd": {"lr": 1.0}}, {"epochs": 3, "sgd": {"lr": 2.0}}])
        {'epochs': 3}
    """
    first, *others = map(flat, configs)
    return {
        key: value
        for key, value in first.items()
        if all(key in other and other[key] == value for other in others)
    }


def read_study(path: Path) -> Study:
    """Read a study, finished or not.

    Raises:
        ConfigError: if there is no study, or its ``study.toml`` cannot be used.
    """
    path = Path(path)
    facts = read_facts(path)
    labels = tuple(method["label"] for method in facts["methods"])
    return Study(
        path=path,
        name=facts["name"],
        command=facts["command"],
        methods=labels,
        seeds=tuple(facts["seeds"]),
        environment=facts["environment"],
        runs=tuple(
            _read_run(run_path(path, label, seed), label, seed)
            for label in labels
            for seed in facts["seeds"]
        ),
        configs={method["label"]: method["config"] for method in facts["methods"]},
        vary=facts["vary"],
    )


def read_facts(path: Path) -> dict[str, Any]:
    """Read ``study.toml`` and check that it is what the program wrote.

    Raises:
        ConfigError: if it is not there, or was changed.
    """
    file = path / STUDY_FILE
    if not file.is_file():
        raise ConfigError(
            f"{path}: is not a study directory: it has no {STUDY_FILE}; "
            "annealtune study EXPERIMENT --out DIR makes one"
        )
    facts = read_toml(file)
    if file.read_bytes() != sealed_toml(facts):
        raise ConfigError(
            f"{file}: was changed or damaged: its digest does not fit. Put it back as it was, or "
            "restore it from a backup"
        )
    return facts


def sealed_toml(facts: Mapping[str, Any]) -> bytes:
    """Return what ``study.toml`` holds: the facts, and a last line with their digest."""
    text = tomli_w.dumps(facts).encode()
    return text + _SEAL_LINE + hashlib.sha256(text).hexdigest().encode() + b"\n"


def read_lone_run(path: Path) -> RunRecord:
    """Read a run that may belong to no study, finished or not.

    Raises:
        ConfigError: if there is none, or its config is damaged.
        RunError: if another file is damaged.
    """
    path = Path(path)
    require_run(path)
    run = _load_run(path, "", 0)
    return dataclasses.replace(
        run,
        method=str(run.config.get("method", "unknown method")),
        seed=int(run.config.get("seed", 0)),
    )


def _read_run(path: Path, method: str, seed: int) -> RunRecord:
    """Read a run, whatever state it is in; of a damaged one nothing is shown but the damage."""
    try:
        return _load_run(path, method, seed)
    except (ConfigError, RunError) as error:
        return RunRecord(method, seed, path, "failed", str(error))


def _load_run(path: Path, method: str, seed: int) -> RunRecord:
    if not path.is_dir():
        return RunRecord(method, seed, path, "missing")
    check_run(path)
    config = read_toml(path / CONFIG_FILE) if is_run(path) else {}
    result, failure = (
        read_json(path / name) if (path / name).exists() else {}
        for name in (RESULT_FILE, FAILURE_FILE)
    )
    metrics, moves = (tuple(RecordFile(path / name).read()) for name in (METRICS, MOVES))
    status: Status = "unfinished"
    reason: str | None = None
    if result:
        status = "finished"
    elif failure:
        status, reason = "failed", str(failure.get("reason"))
    else:
        epochs = config.get("epochs")
        reason = f"begun, {len(metrics)} of {epochs} epochs" if epochs else "nothing saved yet"
    return RunRecord(method, seed, path, status, reason, config, metrics, moves, result or None)


def is_locked(directory: Path) -> bool:
    """Tell whether a process is working in the directory of a run or a study.

    Raises:
        OSError: if the directory cannot be written to.
    """
    try:
        with filelock.FileLock(directory / LOCK, timeout=0):
            return False
    except filelock.Timeout:
        return True
