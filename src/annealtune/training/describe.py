"""What a run is and how far it got, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from annealtune.annealing.race_info import RaceInfo
from annealtune.training.config.annealing import DEFAULT_STRATEGY, AnnealingOptions
from annealtune.training.config.blocks import TunedOptions
from annealtune.training.evaluation import rank
from annealtune.training.progress import describe, told_scores
from annealtune.training.storage.directory import RunDirectory


def describe_run(path: Path) -> list[tuple[str, str]]:
    """Return names and values of the run in a directory, the most asked for first.

    Raises:
        ConfigError: if it holds no run.
    """
    directory = RunDirectory(path)
    config, result = directory.config(), directory.result()
    records = directory.metrics.read()
    steps = directory.checkpoints.steps()
    rows = [
        ("run", str(path)),
        ("method", f"{config.method}, {config.model} on {config.data}"),
        *_search(config.options),
        ("seeds", ", ".join(f"{name} {seed}" for name, seed in config.seeds.items())),
        ("batch size", str(config.batch_size)),
        ("epochs", f"{len(records)} of {config.epochs}"),
        ("state", "finished" if result else _unfinished(steps)),
    ]
    if config.validate_on == "test":
        rows.append(("protocol", "the test set chooses the best epoch, as in the paper"))
    races = (race for record in records for race in record.get("races", ()))
    rows += [("race", str(RaceInfo.from_dict(race)).removeprefix("race ")) for race in races]
    if records:
        rows.append(("last epoch", describe(_known(records[-1]))))
        best = max(records, key=lambda r: rank(r.get("validation_accuracy"), r["validation_loss"]))
        rows.append(("best epoch", f"{best['epoch']}: {describe(_known(best))}"))
    if result:
        rows.append(("test", told_scores(result, "test").replace("test ", "")))
        rows.append(("weights", str(directory.best_weights)))
    sure = "on the CPU: the same config, versions and threads give the same bits"
    unsure = f"not guaranteed on {config.device}: its kernels may sum in any order"
    return [*rows, ("deterministic", sure if config.device == "cpu" else unsure)]


def _search(options: Any) -> list[tuple[str, str]]:
    """Return what tells two runs of one method apart, where it is not the paper's."""
    rows = []
    if isinstance(options, AnnealingOptions) and options.strategy != DEFAULT_STRATEGY:
        arguments = (f"{key} = {value}" for key, value in (options.strategy_options or {}).items())
        rows.append(("strategy", ", ".join([options.strategy, *arguments])))
    if isinstance(options, TunedOptions) and (
        (options.accept_on, options.accept_batch) != ("loss", "same")
    ):
        batch = options.accept_batch
        where = "held-out images" if batch == "held-out" else f"the {batch} minibatch"
        rows.append(("accept test", f"{options.accept_on} of {where}"))
    return rows


def _unfinished(steps: list[int]) -> str:
    if not steps:
        return "begun, nothing saved yet; continue with --resume"
    return f"unfinished, saved at step {steps[0]}; continue with --resume"


def _known(record: dict[str, float | None]) -> dict[str, float]:
    return {key: value for key, value in record.items() if value is not None}
