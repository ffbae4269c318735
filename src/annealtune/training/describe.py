"""What a run is and how far it got, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from annealtune.annealing.race import RaceInfo, rate_text
from annealtune.training.progress import describe, told_scores
from annealtune.training.storage.directory import RunDirectory


def describe_run(path: Path) -> list[tuple[str, str]]:
    """Return names and values of the run in a directory, the most asked for first.

    Raises:
        ConfigError: if it holds no run.
    """
    directory = RunDirectory(path)
    directory.check()
    config, result = directory.config(), directory.result()
    # Refuses records that the last checkpoint does not know.
    state = directory.load(lambda _: None) if result is None else None
    records = directory.metrics.read()
    steps = directory.checkpoints.steps()
    saved = f"unfinished, saved at step {steps[0]}" if steps else "begun, nothing saved yet"
    state_text = "finished" if result else f"{saved}; continue with --resume"
    rows = [
        ("run", str(path)),
        ("method", f"{config.method}, {config.model} on {config.data}"),
        ("seeds", ", ".join(f"{name} {seed}" for name, seed in config.seeds.items())),
        ("batch size", str(config.batch_size)),
        ("epochs", f"{len(records)} of {config.epochs}"),
        ("state", state_text),
    ]
    if config.validate_on == "test":
        rows.append(("protocol", "the test set chooses the best epoch, as in the paper"))
    races = [RaceInfo.from_dict(race) for record in records for race in record.get("races", ())]
    rows += [(f"race {race.number}", str(race).split(": ", 1)[1]) for race in races]
    moves = directory.moves.read()
    if records and "rate" in records[-1]:
        rows.append(("rate", _rate(records[-1], races, moves)))
    if records:
        rows.append(("last epoch", describe(records[-1])))
        facts = (state or {}).get("best") or {}
        best = result["best_epoch"] if result else facts.get("epoch")
        rows += [("best epoch", f"{best}: {describe(records[best - 1])}")] if best else []
    if result:
        rows.append(("test", told_scores(result, "test").replace("test ", "")))
        rows.append(("weights", str(directory.best_weights)))
    return rows


def _rate(record: dict[str, Any], races: list[RaceInfo], moves: list[dict[str, Any]]) -> str:
    """Return the rate that was found, and that of the last step or epoch."""
    now = "not known" if record["rate"] is None else rate_text(record["rate"])
    if races:
        return f"{rate_text(races[-1].rate)} found, {now} at the last step"
    where = "mean of the accepted moves of the last epoch" if moves else "at the last step"
    return f"{now}, {where}"
