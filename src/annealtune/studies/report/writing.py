"""The files of a report: the page, Table 1 as CSV and LaTeX, every figure as SVG and PDF."""

from pathlib import Path

from annealtune.studies.records import Study
from annealtune.studies.statistics.summaries import study_statistics

from .figures.gallery import plates
from .figures.panels import render
from .files import write_files
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
    return write_files(directory, contents)
