"""The page of one run, finished or not."""

from pathlib import Path

from annealtune.annealing.race import RaceInfo, rate_text
from annealtune.studies.records import RunRecord, Study
from annealtune.studies.statistics import number

from .figures.curves import accept_panels
from .figures.runs import hero_panel, race_panels, races_of, steps_per_epoch
from .figures.settings import setting_panels
from .shell import Page, Section, facts_of
from .study_page import task_of
from .table_1 import state_of
from .tables import Table, duration, number_cell, text_cell

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
    page = Page(out or run.path / "report", with_files=figures)
    hero, races = hero_panel(run), races_of(run)
    environment = dict(run.config.get("environment", {}))
    command = environment.pop("command", "")
    options = {key: value for key, value in run.config.items() if key != "environment"}
    # A run is a study of one method and one seed.
    alone = Study(
        run.path, run.path.name, command, (run.method,), (run.seed,), {}, (run,),
        {run.method: options},
    )  # fmt: skip
    sections = [
        Section(
            "results",
            "Results",
            figures=page.draw([hero] if hero else []),
            facts=_results(run, races),
        ),
        Section(
            "races",
            "Races",
            "Score: mean loss over the second half of the race, or the objective.",
            figures=page.draw(race_panels(races[-_DRAWN_RACES:])),
            tables=[(_race_table(races), "Every arm of every race")] if races else [],
        ),
        Section(
            "moves",
            "Accept test",
            figures=page.draw([*accept_panels(alone), *setting_panels(alone)]),
        ),
        Section(
            "configuration",
            "Configuration",
            command=command,
            folds=[
                Section("options", "Every option", facts=facts_of(options)),
                Section("environment", "Versions and machine", facts=facts_of(environment)),
            ],
        ),
    ]
    told = ", ".join([run.method, *task_of(run.config), f"seed {run.seed}"])
    return page.write("annealtune run", run.path.name, told, sections)


def _results(run: RunRecord, races: list[RaceInfo]) -> list[tuple[str, str]]:
    """Return what came out, as pairs of a name and a value."""
    rows = [("state", state_of(run))]
    if run.status == "unfinished":
        rows.append(("continue by", f"annealtune train --out {run.path} --resume"))
    rows += [
        (title, _score(key, value))
        for key, title in _RESULTS.items()
        if (value := number(run.result or {}, key)) is not None
    ]
    if run.result:
        rows.append(("best epoch", f"{run.result['best_epoch']} of {run.config['epochs']}"))
    if races:
        extra = run.metrics[-1]["extra_steps"]
        share = extra / (steps_per_epoch(run) * run.config["epochs"])
        rows.append(("learning rate found", rate_text(races[-1].rate)))
        rows.append(("extra steps of races", f"{extra} ({100 * share:.1f} % of the run)"))
    return rows


def _score(key: str, value: float) -> str:
    if key.endswith("accuracy"):
        return f"{100 * value:.2f} %"
    return duration(value) if key.endswith("seconds") else f"{value:.4g}"


def _race_table(races: list[RaceInfo]) -> Table:
    rows = []
    for race in races:
        for arm in range(len(race.settings)):
            score = number({"score": race.scores[arm]}, "score")
            made = len(race.losses[arm]) if arm < len(race.losses) else None
            rows.append(
                (
                    number_cell(race.number, str),
                    text_cell(race.name(arm)),
                    number_cell(score, "{:.4g}".format),
                    number_cell(made, str),
                    text_cell(race.fate(arm)),
                )
            )
    return Table(("race", "arm", "score", "steps made", "outcome"), tuple(rows))
