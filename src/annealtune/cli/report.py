"""The command report: the page of a run or a study, or of several. It imports no torch."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from annealtune.errors import ConfigError
from annealtune.studies.records import STUDY_FILE, read_lone_run, read_study
from annealtune.training.storage import CONFIG_FILE, is_run

Paths = Annotated[
    list[Path], typer.Argument(metavar="PATH...", help="Run directories, or study directories.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Directory of the page.  [default: PATH/report; of several: a new comparison or "
        "overview]",
        metavar="DIR",
    ),
]
Open = Annotated[bool, typer.Option("--open", help="Open the page in the browser.")]
Figures = Annotated[
    bool, typer.Option("--figures/--no-figures", help="Write every figure as SVG and PDF too.")
]

app = typer.Typer(rich_markup_mode=None)


@app.command()
def report(paths: Paths, out: Out = None, open_: Open = False, figures: Figures = True) -> None:
    """Write one page about a run, a study, or several of one kind."""
    write = _write_studies if _are_studies(paths) else _write_runs
    page = write(paths, out, figures)
    typer.echo(page)
    if open_ and not webbrowser.open(page.resolve().as_uri()):
        typer.echo(f"no browser was found: open {page} yourself", err=True)


def _are_studies(paths: list[Path]) -> bool:
    """Tell studies from runs.

    Raises:
        ConfigError: if a path is neither, or they are not all of one kind.
    """
    studies = [path for path in paths if (path / STUDY_FILE).is_file()]
    runs = [path for path in paths if path not in studies]
    for path in runs:
        if not is_run(path):
            raise ConfigError(
                f"{path}: is neither a run directory, which has a {CONFIG_FILE}, nor a study "
                f"directory, which has a {STUDY_FILE}"
            )
    if studies and runs:
        raise ConfigError(
            f"{studies[0]} is a study and {runs[0]} is a run: one page shows runs or studies; give "
            f"two commands, or runs of the study: {studies[0]}/runs/NAME"
        )
    return bool(studies)


def _write_studies(paths: list[Path], out: Path | None, figures: bool) -> Path:
    studies = [read_study(path) for path in dict.fromkeys(paths)]

    from annealtune.studies.report.shell import free_directory
    from annealtune.studies.report.study_page import write_overview, write_report

    if len(studies) == 1:
        return write_report(studies[0], out, figures=figures)
    parents = {study.path.parent for study in studies}
    beside = parents.pop() if len(parents) == 1 else Path()
    return write_overview(studies, out or free_directory(beside / "overview"), figures=figures)


def _write_runs(paths: list[Path], out: Path | None, figures: bool) -> Path:
    runs = [read_lone_run(path) for path in dict.fromkeys(paths)]

    from annealtune.studies.report.run_page import write_comparison, write_run_report

    if len(runs) == 1:
        return write_run_report(runs[0], out, figures=figures)
    return write_comparison(runs, out, figures=figures)
