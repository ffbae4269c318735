"""The page of one run, finished or not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from annealtune.annealing.race import rate_text
from annealtune.studies.records import RunRecord
from annealtune.studies.statistics.measures import number

from .figures.runs import RunView, accept_panels, average_panels, hero_panel, race_panels
from .shell import Page, Section, facts_of
from .study_page import task_of
from .table_1 import state_of
from .tables import Cell, Table, duration, number_cell, text_cell

# Where there are more, the first ones are in the table alone.
_DRAWN_RACES = 4

_RESULTS = {
    "test_accuracy": "test accuracy",
    "test_loss": "test loss",
    "best_validation_accuracy": "best validation accuracy",
    "best_validation_loss": "best validation loss",
    "training_seconds": "training time",
}


def write_run_report(run: RunRecord, out: Path | None = None, *, figures: bool = True) -> Path:
    """Write the page of a run, whatever state it is in.

    Args:
        run: of `read_lone_run`.
        out: the directory to write to; by default ``report`` in that of the run.
        figures: whether every figure is written as SVG and PDF too.

    Returns:
        The path of the page.

    Raises:
        ConfigError: if ``out`` is not a directory.
        RunError: if the disk is full or not writable.
    """
    view = RunView(run)
    page = Page(out or run.path / "report", with_files=figures)
    hero = hero_panel(view)
    races = [page.draw(*each) for each in race_panels(view.races[-_DRAWN_RACES:])]
    race_table = _race_table(view)
    environment = dict(_environment(run))
    command = environment.pop("command", None)
    options = {key: value for key, value in run.config.items() if key != "environment"}
    sections = [
        Section(
            "results",
            "Results",
            figures=[] if hero is None else [page.draw(hero)],
            facts=_results(view),
        ),
        Section(
            "races",
            "Races",
            "Score: mean loss over the second half of the race, or the objective.",
            figures=races,
            tables=[(race_table, "Every arm of every race")] if race_table else [],
        ),
        Section("moves", "Accept test", figures=[page.draw(p) for p in accept_panels(view)]),
        Section(
            "average",
            "Averaged and last weights",
            "The average is what is scored; it never enters the training.",
            figures=[page.draw(panel) for panel in average_panels(view)],
        ),
        Section(
            "configuration",
            "Configuration",
            code=[str(command)] if command else [],
            folds=[
                Section("options", "Every option", facts=facts_of(options)),
                Section("environment", "Versions and machine", facts=facts_of(environment)),
            ],
        ),
    ]
    told = ", ".join([run.method, *task_of(run.config), f"seed {run.seed}"])
    return page.write("annealtune run", run.path.name, told, sections)


def _results(view: RunView) -> list[tuple[str, str]]:
    """Return what came out, as pairs of a name and a value."""
    run = view.run
    rows = [("state", state_of(run))]
    if run.status == "unfinished":
        rows.append(("continue by", f"annealtune train --out {run.path} --resume"))
    rows += [
        (title, _score(key, value))
        for key, title in _RESULTS.items()
        if (value := number(run.result or {}, key)) is not None
    ]
    if view.best_epoch is not None:
        rows.append(("best epoch", f"{view.best_epoch} of {run.config.get('epochs', '?')}"))
    if view.rate is not None:
        rows.append((_rate_title(view), rate_text(view.rate)))
    extra = number(run.metrics[-1], "extra_steps") if run.metrics else None
    if view.races and extra is not None:
        share = extra / (view.steps_per_epoch * run.config.get("epochs", len(run.metrics)))
        rows.append(("extra steps of races", f"{extra:.0f} ({100 * share:.1f} % of the run)"))
    return rows


def _rate_title(view: RunView) -> str:
    if view.races:
        return "learning rate found"
    is_over_h = view.has("acceptance_rate")
    return "mean rate accepted at last" if is_over_h else "highest learning rate"


def _score(key: str, value: float) -> str:
    if key.endswith(("accuracy", "acceptance_rate")):
        return f"{100 * value:.2f} %"
    if key == "rate":
        return rate_text(value)
    return duration(value) if key.endswith("seconds") else f"{value:.4g}"


def _score_cell(record: Mapping[str, Any], key: str) -> Cell:
    value = number(record, key)
    return number_cell("–" if value is None else _score(key, value), value)


def _race_table(view: RunView) -> Table | None:
    rows = []
    for race in view.races:
        for arm in range(len(race.settings)):
            made = len(race.losses[arm]) if arm < len(race.losses) else None
            rows.append(
                (
                    number_cell(str(race.number), race.number),
                    text_cell(race.name(arm)),
                    _score_cell({"score": race.scores[arm]}, "score"),
                    number_cell("–" if made is None else str(made), made),
                    text_cell(race.fate(arm)),
                )
            )
    columns = ("race", "arm", "score", "steps made", "outcome")
    return Table(columns, tuple(rows)) if rows else None


def _environment(run: RunRecord) -> Mapping[str, Any]:
    found = run.config.get("environment")
    return found if isinstance(found, dict) else {}
