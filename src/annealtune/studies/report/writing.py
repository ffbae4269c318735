"""The files of a report: the page, Table 1 as CSV and LaTeX, every figure as SVG and PDF."""

from pathlib import Path

from annealtune.errors import ConfigError, RunError
from annealtune.studies.records import Study
from annealtune.studies.statistics.summaries import study_statistics
from annealtune.training.storage.files import write_atomically

from .figures.gallery import plates
from .figures.panels import render
from .hero import hero_of
from .page import render_page
from .table_1 import result_rows, shown_measures
from .table_files import results_csv, results_tex


def write_report(study: Study, out: Path | None = None, *, figures: bool = True) -> Path:
    """Write the report of a study, finished or not. The same records give the same bytes.

    Args:
        study: of `read_study`.
        out: the directory to write to; by default ``report`` in that of the study. What an earlier
            report left there is replaced, file by file, the page last.
        figures: whether every figure is also written as SVG and PDF, with links to them. The page
            itself holds all figures either way.

    Returns:
        The path of the page.

    Raises:
        ConfigError: if ``out`` is not a directory.
        RunError: if the disk is full or not writable.
    """
    directory = study.path / "report" if out is None else Path(out)
    statistics = study_statistics(study)
    rows = result_rows(study, statistics)
    hero = hero_of(study, statistics)
    found = plates(study, statistics)
    panels = [*([hero.panel] if hero else []), *(p for plate in found for p in plate.panels)]
    drawings = {panel.name: render(panel, files=figures) for panel in panels}
    page = render_page(study, statistics, hero, found, drawings)
    tex = results_tex(study, rows, shown_measures(study, statistics))
    files = {
        f"figures/{name}.{ending}": content
        for name, drawing in drawings.items()
        for ending, content in (("svg", drawing.svg), ("pdf", drawing.pdf))
        if content
    }
    contents = {
        **files,
        "table.csv": results_csv(rows).encode(),
        "table.tex": tex.encode(),
        "index.html": page.encode(),
    }
    make_directory(directory / "figures" if files else directory)
    for name, content in contents.items():
        write_file(directory / name, content)
    return directory / "index.html"


def free_directory(first: Path) -> Path:
    """Return a path at which there is nothing yet: the first one, or it with -2, -3 and so on."""
    path, number = first, 1
    while path.exists():
        number += 1
        path = first.with_name(f"{first.name}-{number}")
    return path


def make_directory(directory: Path) -> None:
    """Make a directory for a report, unless it is there.

    Raises:
        ConfigError: if a file is in the way.
        RunError: if it cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ConfigError(
            f"{directory}: cannot be made: a file is in the way; choose another --out"
        ) from None
    except OSError as error:
        raise RunError(
            f"{directory}: cannot be made: {error.strerror}; choose another --out"
        ) from None


def write_file(path: Path, content: bytes) -> None:
    """Write one file of a report, whole or not at all.

    Raises:
        RunError: if the disk is full or not writable.
    """
    try:
        write_atomically(path, content)
    except RunError as error:
        reason = getattr(error.__cause__, "strerror", None) or error
        raise RunError(
            f"{path}: cannot be written: {reason}; make room or choose another --out"
        ) from error
