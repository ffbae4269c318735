"""The command that writes the report of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from annealtune.studies.results import read_study

StudyPath = Annotated[
    Path, typer.Argument(metavar="STUDY", help="A study directory, finished or not.")
]
Out = Annotated[
    Path | None,
    typer.Option(help="Directory of the report.  [default: STUDY/report]", metavar="DIR"),
]


def report(study: StudyPath, out: Out = None) -> None:
    """Write one page about a study: table, tests, figures; beside it CSV, LaTeX, SVG and PDF."""
    records = read_study(study)

    from annealtune.studies.report import write_report

    typer.echo(write_report(records, out))


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(report)
