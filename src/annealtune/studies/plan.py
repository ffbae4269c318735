"""Which runs a study consists of: one experiment x methods x seeds, checked before any starts.

An experiment file may say itself what is studied:

    [study]
    methods = ["hot", "scheduled-sgd"]
    seeds = "0-9"

    [methods.hot]          # your own name: a method, and options that override its block
    method = "sgd-sa"
    temperature = 2.0
    epochs = 24            # so that methods are compared at equal cost, not at equal length
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from annealtune.errors import ConfigError, unknown_name
from annealtune.studies.records import FAILURE_FILE, run_path
from annealtune.training.config import (
    DEFAULT_METHOD,
    STUDY_TABLES,
    MethodName,
    RunConfig,
    from_values,
)
from annealtune.training.config.blocks import AnnealingOptions
from annealtune.training.storage.seal import METRICS, RESULT_FILE

VARIED = ("seed", "init_seed", "data_seed", "decision_seed")
DEFAULT_SEEDS = "0-9"  # as many as in the paper
MOST_SEEDS = 10_000
_PRESETS = ("paper-text", "paper-code")
# What each name of `--methods` stands for.
BUILT_IN: dict[str, dict[str, Any]] = {
    **{name: {"method": name} for name in get_args(MethodName)},
    **{f"sgd-sa-{preset}": {"method": "sgd-sa", "preset": preset} for preset in _PRESETS},
}
_TEMPERATURE = frozenset((*AnnealingOptions.model_fields, "preset"))
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


@dataclasses.dataclass(frozen=True)
class Task:
    """One run that is to be brought to its end.

    Attributes:
        method: the label of its method.
        seed: its value of the seed that is varied.
        config: what to run.
        path: the run directory.
    """

    method: str
    seed: int
    config: RunConfig
    path: Path

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"{self.method} seed {self.seed}"

    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        return (self.path / RESULT_FILE).exists()

    def is_left(self) -> bool:
        """Whether it is neither done nor given up earlier."""
        return not self.is_done() and not (self.path / FAILURE_FILE).exists()

    def epochs_done(self) -> int:
        """Return how many epochs are recorded."""
        try:
            return (self.path / METRICS).read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0


@dataclasses.dataclass(frozen=True)
class Plan:
    """The runs of a study.

    Attributes:
        name: of the study.
        command: the command line that asked for it.
        vary: which seed is varied.
        seeds: its values.
        configs: one for each method, by label; the varied seed in them is not used.
    """

    name: str
    command: str
    vary: str
    seeds: tuple[int, ...]
    configs: dict[str, RunConfig]

    def tasks(self, study: Path) -> list[Task]:
        """Return all runs, seed by seed, so that a part of a study compares like with like.

        Args:
            study: its directory.
        """
        return [
            Task(
                label,
                seed,
                config.model_copy(update={self.vary: seed}),
                run_path(study, label, seed),
            )
            for seed in self.seeds
            for label, config in self.configs.items()
        ]

    def with_threads(self, threads: int) -> Plan:
        """Return the plan with a thread count for all runs."""
        configs = {
            label: config.model_copy(update={"threads": threads})
            for label, config in self.configs.items()
        }
        return dataclasses.replace(self, configs=configs)

    def config_of(self, label: str) -> dict[str, Any]:
        """Return the config of a method without the seed that is varied, as plain data."""
        values = self.configs[label].to_dict()
        values.pop(self.vary, None)
        return values


def make_plan(
    values: Mapping[str, Any],
    *,
    name: str,
    command: str = "",
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    vary: str | None = None,
    source: str = "experiment",
) -> Plan:
    """Make a plan and check every config in it.

    Args:
        values: the experiment: keys of a run, ``[study]`` and ``[methods.NAME]`` tables.
        name: of the study.
        command: the command line that asks for it.
        methods: labels; without them those of ``[study]``, else all ``[methods.NAME]``, else the
            method of the experiment.
        seeds: without them those of ``[study]``, else 0 to 9.
        vary: which seed is varied; without it that of ``[study]``, else ``seed``.
        source: where the experiment comes from, for messages.

    Raises:
        ConfigError: naming the bad key, label, seed or value, and what to do.
    """
    table = _study_table(values, source)
    own = _own_methods(values, source)
    vary = vary or table.get("vary", "seed")
    if vary not in VARIED:
        raise unknown_name("vary", str(vary), VARIED)
    if methods is None:
        methods = table.get("methods") or list(own) or [str(values.get("method", DEFAULT_METHOD))]
    if seeds is None:
        seeds = parse_seeds(table.get("seeds", DEFAULT_SEEDS))
    for label in methods:
        if label not in own and label not in BUILT_IN:
            raise unknown_name("methods", label, [*own, *BUILT_IN])
    _check_once("methods", [label.lower() for label in methods])
    run_values = {key: value for key, value in values.items() if key not in STUDY_TABLES}
    configs = {}
    for label in methods:
        chosen = own.get(label) or BUILT_IN[label]
        where = f"{source}, method {label!r}"
        configs[label] = from_values(_apply(run_values, chosen, vary, seeds[0]), where)
    return Plan(name, command, vary, tuple(seeds), configs)


def parse_seeds(text: Any) -> tuple[int, ...]:
    """Return the seeds of text such as ``0-9`` or ``0,3,5-7``; a list of numbers also serves.

    Raises:
        ConfigError: if it is neither, or names a seed twice.

    Example:
        >>> parse_seeds("0,3,5-7")
        (0, 3, 5, 6, 7)
    """
    rule = (
        f"seeds = {text!r}: must be numbers and ranges such as 0-9 or 0,3,5-7, at most "
        f"{MOST_SEEDS} of them"
    )
    parts = text if isinstance(text, list | tuple) else str(text).split(",")
    seeds: list[int] = []
    for part in parts:
        match = re.fullmatch(r"\s*(\d{1,18})\s*(?:-\s*(\d{1,18})\s*)?", str(part), re.ASCII)
        if match is None or isinstance(part, bool | float):
            raise ConfigError(f"{rule}, got {str(part).strip()!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + MOST_SEEDS - len(seeds):
            raise ConfigError(f"{rule}, got {str(part).strip()!r}")
        seeds.extend(range(first, last + 1))
    if not seeds:
        raise ConfigError(rule)
    _check_once("seeds", seeds)
    return tuple(seeds)


def _apply(
    values: Mapping[str, Any], chosen: Mapping[str, Any], vary: str, seed: int
) -> dict[str, Any]:
    """Return the values of a run of one method: its options override the method's block."""
    alias = BUILT_IN[chosen["method"]]
    options = {**alias, **chosen, "method": alias["method"]}
    method = options.pop("method")
    # The only key of a run that a method's table may set besides the options of the method.
    values = {**values, **({"epochs": options.pop("epochs")} if "epochs" in options else {})}
    block = values.pop(method.replace("-", "_"), {})  # a block may be spelled either way
    block = values.pop(method, block)
    if "preset" in options and isinstance(block, dict) and block.get("preset") != options["preset"]:
        # A preset is a temperature of simulated annealing: what the block says of another one, or
        # of another strategy, is not meant for it.
        block = {key: value for key, value in block.items() if key not in _TEMPERATURE}
    if options and isinstance(block, dict):
        block = {**block, **options}
    return {**values, "method": method, method: block, vary: seed}


def _study_table(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    table = values.get("study", {})
    known = ("methods", "seeds", "vary")
    if not isinstance(table, dict):
        raise ConfigError(f"{source}: study: must be a table of {', '.join(known)}, got {table!r}")
    for key in table:
        if key not in known:
            raise unknown_name(f"{source}: study", key, known)
    methods = table.get("methods", [])
    if not isinstance(methods, list) or not all(isinstance(name, str) for name in methods):
        raise ConfigError(f"{source}: study.methods: must be a list of names, got {methods!r}")
    return table


def _own_methods(values: Mapping[str, Any], source: str) -> dict[str, dict[str, Any]]:
    tables = values.get("methods", {})
    if not isinstance(tables, dict):
        raise ConfigError(
            f"{source}: methods: must be tables [methods.NAME], got {tables!r}; the list of what "
            "is compared is study.methods"
        )
    for label, table in tables.items():
        where = f"{source}: methods.{label}"
        if not _LABEL.fullmatch(label):  # it names a directory, a table row and a curve
            raise ConfigError(
                f"{where}: must be 1 to 64 letters, digits and - _ . + and begin with a letter or "
                f"digit, got {label!r}"
            )
        if label in BUILT_IN:
            raise ConfigError(
                f"{where}: is the name of a built-in method; choose another name, or set options "
                f"for all runs in [{BUILT_IN[label]['method']}]"
            )
        if not isinstance(table, dict) or not isinstance(table.get("method"), str):
            raise ConfigError(f"{where}: must be a table with a method, got {table!r}")
        if table["method"] not in BUILT_IN:
            raise unknown_name(f"{where}.method", table["method"], BUILT_IN)
    return tables


def _check_once(key: str, values: Sequence[Any]) -> None:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise ConfigError(f"{key}: {', '.join(map(str, twice))} is there more than once")
