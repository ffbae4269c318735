"""The files of a report: the page, Table 1 as CSV and LaTeX, every figure as SVG and PDF."""

from pathlib import Path

from annealtune.errors import ConfigError, RunError
from annealtune.studies.records import Study
from annealtune.studies.statistics.summaries import study_statistics
from annealtune.training.storage.files import write_atomically

from .figures.gallery import plates
from .figures.panels import render
from .page import render_page
from .table_1 import result_rows, shown_measures
from .table_files import results_csv, results_tex


def write_report(study: Study, out: Path | None = None) -> Path:
    """Write the report of a study, finished or not. The same records give the same bytes.

    Args:
        study: of `read_study`.
        out: the directory to write to; by default ``report`` in that of the study. What an earlier
            report left there is replaced, file by file, the page last.

    Returns:
        The path of the page.

    Raises:
        ConfigError: if ``out`` is not a directory.
        RunError: if the disk is full or not writable.
    """
    directory = study.path / "report" if out is None else Path(out)
    statistics = study_statistics(study)
    rows = result_rows(study, statistics)
    figures = plates(study)
    drawings = {panel.name: render(panel) for plate in figures for panel in plate.panels}
    page = render_page(study, statistics, figures, drawings)
    tex = results_tex(study, rows, shown_measures(study, statistics))
    contents = {
        **{f"figures/{name}.svg": drawing.svg for name, drawing in drawings.items()},
        **{f"figures/{name}.pdf": drawing.pdf for name, drawing in drawings.items()},
        "table.csv": results_csv(rows).encode(),
        "table.tex": tex.encode(),
        "index.html": page.encode(),
    }
    _make(directory / "figures")
    for name, content in contents.items():
        _write(directory / name, content)
    return directory / "index.html"


def _make(directory: Path) -> None:
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


def _write(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, content)
    except RunError as error:
        reason = getattr(error.__cause__, "strerror", None) or error
        raise RunError(
            f"{path}: cannot be written: {reason}; make room or choose another --out"
        ) from error
