"""The command that lists runs and studies. It imports no torch."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from annealtune.annealing.race import rate_text
from annealtune.errors import ConfigError, RunError
from annealtune.studies.records import (
    LOCK,
    METRICS_FILE,
    RESULT_FILE,
    STUDY_FILE,
    RunRecord,
    Study,
    is_locked,
    read_lone_run,
    read_study,
)
from annealtune.training.storage import CONFIG_FILE

PLACES = (Path("runs"), Path("studies"))
_SCORES = ("validation_accuracy", "validation_loss", "test_accuracy", "test_loss")
# What only a run leaves behind: many a program has a config.toml.
_TRACES = (METRICS_FILE, RESULT_FILE, "checkpoints", LOCK)

app = typer.Typer(rich_markup_mode=None)


@app.command("list")
def list_runs(
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            help="Where to look; a study lists its runs.  [default: runs and studies]",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """List runs and studies: state, rate and scores."""
    places = [place for place in PLACES if place.is_dir()] if directory is None else [directory]
    entries = [entry for place in places for entry in list_directory(place)]
    if as_json:
        typer.echo(json.dumps(entries, indent=2))
    elif entries:
        for line in _lines(entries):
            typer.echo(line)
    else:
        where = " and ".join(map(str, PLACES if directory is None else places))
        typer.echo(f"no runs or studies in {where}; list DIR looks elsewhere, train starts a run")


def list_directory(root: Path) -> list[dict[str, Any]]:
    """Return the runs and studies in a directory, or the runs of a study, as plain data.

    Raises:
        ConfigError: if it is not a directory.
    """
    if not root.is_dir():
        raise ConfigError(f"{root}: is not a directory")
    if (root / STUDY_FILE).is_file():
        return [_entry_of_run(run) for run in read_study(root, large=False).runs]
    return [_entry_at(path) for path in sorted(_find(root))]


def _find(root: Path) -> Iterator[Path]:
    for folder, below, files in os.walk(root):
        is_run = CONFIG_FILE in files and {*files, *below}.intersection(_TRACES)
        if is_run or STUDY_FILE in files:
            yield Path(folder)
            below.clear()


def _entry_at(path: Path) -> dict[str, Any]:
    """Return the entry of a run or a study; what is damaged is one that says so."""
    is_study = (path / STUDY_FILE).is_file()
    try:
        if is_study:
            return _entry_of_study(read_study(path, large=False))
        return _entry_of_run(read_lone_run(path, large=False))
    except (ConfigError, RunError) as error:
        kind = "study" if is_study else "run"
        return {"path": str(path), "kind": kind, "state": "failed", "reason": str(error)}


def _entry_of_study(study: Study) -> dict[str, Any]:
    """Return the entry of a study; what is done and planned are runs."""
    counts = [run.status for run in study.runs]
    done, failed = counts.count("finished"), counts.count("failed")
    state = "finished" if done == len(counts) else "failed" if failed else "unfinished"
    return {
        "path": str(study.path),
        "kind": "study",
        "state": _or_running(state, study.path),
        "reason": f"{failed} failed" if failed else None,
        "method": ", ".join(study.methods),
        "data": study.experiment.get("data", "several"),
        "model": study.experiment.get("model", "several"),
        "done": done,
        "planned": len(counts),
    }


def _entry_of_run(run: RunRecord) -> dict[str, Any]:
    """Return the entry of a run; what is done and planned are epochs."""
    return {
        "path": str(run.path),
        "kind": "run",
        "state": _or_running(run.status, run.path),
        "reason": run.reason if run.status == "failed" else None,
        "method": run.method,
        "data": run.config.get("data", ""),
        "model": run.config.get("model", ""),
        "done": len(run.metrics),
        "planned": run.config.get("epochs"),
        "rate": _rate(run),
        **_scores(run),
    }


def _or_running(state: str, path: Path) -> str:
    """Return the state, or running if a process works in the directory."""
    if state == "finished" or not (path / LOCK).exists():
        return state
    try:
        return "running" if is_locked(path) else state
    except OSError:  # a directory that may only be read
        return state


def _rate(run: RunRecord) -> float | None:
    """Return the rate of the last race, else the one that was given, else the highest one.

    A known length makes the rate decay to zero in the end: the last one says little.
    """
    records = [*run.metrics, run.result or {}]
    races = [race for record in records for race in record.get("races") or []]
    if races:
        return float(races[-1]["rate"])
    given = run.config.get(str(run.config.get("method")), {}).get("lr")
    if isinstance(given, list):
        given = given[0] if len(given) == 1 else None
    rates = [record["rate"] for record in run.metrics if record.get("rate") is not None]
    return max(rates, default=None) if given is None else float(given)


def _scores(run: RunRecord) -> dict[str, Any]:
    """Return the scores of the best epoch on the validation set, and on the test set."""
    seen = [record for record in run.metrics if record["validation_loss"] is not None]
    # As a run chooses it: the highest accuracy, of equal ones the lowest loss.
    best = min(
        seen,
        key=lambda record: (-record.get("validation_accuracy", 0.0), record["validation_loss"]),
        default={},
    )
    scores = {**best, **(run.result or {})}
    return {key: scores[key] for key in _SCORES if scores.get(key) is not None}


def _lines(entries: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each, the path last: however long it is, the columns stand."""
    rows = [("state", "done", "rate", "valid.", "test", "run or study")]
    for entry in entries:
        rate, what = entry.get("rate"), _what(entry)
        rows.append(
            (
                entry["state"],
                f"{entry.get('done', '?')}/{entry.get('planned') or '?'}",
                "" if rate is None else rate_text(rate),
                _score(entry, "validation"),
                _score(entry, "test"),
                f"{entry['path']}  ({what})" if what else entry["path"],
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for *cells, last in rows:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        yield "  ".join([*padded, last])


def _what(entry: dict[str, Any]) -> str:
    """Return method, model and data, and what is wrong."""
    method = entry.get("method", "")
    if entry["kind"] == "study" and method:
        method = f"study of {method}"
    task = f"{entry['model']} on {entry['data']}" if entry.get("data") else ""
    words = ", ".join(filter(None, (method, task)))
    return "; ".join(filter(None, (words, entry.get("reason"))))


def _score(entry: dict[str, Any], part: str) -> str:
    """Return an accuracy, or the loss where there is none."""
    accuracy, loss = entry.get(f"{part}_accuracy"), entry.get(f"{part}_loss")
    if accuracy is not None:
        return f"{accuracy:.1%}"
    return "" if loss is None else f"{loss:.3g}"
