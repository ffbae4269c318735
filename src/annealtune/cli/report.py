"""The command report: the page of a run, of a study or of several. It imports no torch."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from annealtune.errors import ConfigError
from annealtune.studies.records import STUDY_FILE, read_lone_run, read_study
from annealtune.training.storage import CONFIG_FILE, is_run

Paths = Annotated[
    list[Path], typer.Argument(metavar="PATH...", help="A run directory, or study directories.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Directory of the page.  [default: PATH/report; of several: overview beside them]",
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
    """Write one page about a run, a study or several studies."""
    studies = [path for path in paths if (path / STUDY_FILE).is_file()]
    others = [path for path in paths if path not in studies]
    if others and (len(paths) > 1 or not is_run(others[0])):
        raise ConfigError(
            f"{others[0]}: must be one run directory, which has a {CONFIG_FILE}, or study "
            f"directories, which have a {STUDY_FILE}"
        )
    page = _written(paths, out, figures, of_studies=bool(studies))
    typer.echo(page)
    if open_ and not webbrowser.open(page.resolve().as_uri()):
        typer.echo(f"no browser was found: open {page} yourself", err=True)


def _written(paths: list[Path], out: Path | None, figures: bool, *, of_studies: bool) -> Path:
    """Write the page; what draws is imported once everything is read."""
    if not of_studies:
        run = read_lone_run(paths[0])
        from annealtune.studies.report.run_page import write_run_report

        return write_run_report(run, out, figures=figures)
    studies = [read_study(path) for path in dict.fromkeys(paths)]
    from annealtune.studies.report.study_page import write_overview, write_report

    if len(studies) == 1:
        return write_report(studies[0], out, figures=figures)
    return write_overview(studies, out or paths[0].parent / "overview", figures=figures)
