"""The page of a study, with Table 1 as CSV and LaTeX, and one page of several studies."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from annealtune.studies.records import Study
from annealtune.studies.reproduction import PAPER_STUDIES, net_of
from annealtune.studies.statistics import (
    Statistics,
    main_measure,
    statistics_of,
    study_statistics,
    test_set_chose,
)

from .figures.curves import accept_panels, performance_panels, rate_panels
from .figures.paper import paper_figures
from .figures.scores import hero_panel
from .figures.settings import setting_panels
from .shell import Page, Section, facts_of
from .table_1 import result_rows, results_csv, results_table, results_tex, shown_measures
from .tables import comparison_table, cost_table, difference_table

_TESTS = (
    "Intervals: Student's t; p: Wilcoxon signed-rank, exact, of paired seeds; bold: below 0.05 "
    "after Holm."
)
# The tests of more methods are a long table, which a click opens.
_FEW_METHODS = 4
_LINES = "Thick: mean of the seeds; thin: each seed; dotted: as the legend says, or not finished."


def write_report(study: Study, out: Path | None = None, *, figures: bool = True) -> Path:
    """Write the report of a study, finished or not. The same records give the same bytes.

    Args:
        study: of `read_study`.
        out: the directory to write to; by default ``report`` in that of the study.
        figures: whether every figure is also written as SVG and PDF.

    Returns:
        The path of the page.

    Raises:
        ConfigError: if ``out`` is not a directory.
        RunError: if the disk is full or not writable.
    """
    page = Page(study.path / "report" if out is None else out, with_files=figures)
    statistics = study_statistics(study)
    rows, measures = result_rows(study, statistics), shown_measures(study, statistics)
    main = main_measure(study)
    is_paper = study.name in PAPER_STUDIES
    scale = " Loss on the paper's scale: sum of minibatch means / images." if is_paper else ""
    files = {"table.csv": results_csv(rows), "table.tex": results_tex(study, rows, measures)}
    sections = [
        _first_section(page, study, statistics.get(main)),
        Section(
            "table-1",
            "Table 1: seed by seed" if net_of(study.name) else "Seed by seed",
            f"Bold: the best of a seed, or of a kind of line.{scale}",
            tables=[(results_table(study, rows, measures), "Every method, then every run")],
            links=list(files),
        ),
        Section(
            "tests",
            "Paired tests",
            _TESTS,
            folds=[
                Section(
                    each.key.replace("_", "-"),
                    each.title[0].upper() + each.title[1:],
                    tables=[(comparison_table(statistics[each]), "First minus second")],
                    is_open=each == main and len(study.methods) <= _FEW_METHODS,
                )
                for each in measures
                if any(pair.n > 1 for pair in statistics[each].comparisons)
            ],
        ),
        *_figure_sections(page, study),
        Section(
            "costs",
            "Cost",
            tables=[(cost_table(study), "Means over finished runs, probes and races included")],
        ),
        _configuration(study),
        Section("origin", "Command", command=study.command),
    ]
    return page.write("annealtune study", study.name, subtitle(study), sections, files=files)


def write_overview(studies: Sequence[Study], out: Path, *, figures: bool = True) -> Path:
    """Write one page about several studies, and the report of each in a directory beside it.

    Args:
        studies: at least one, of `read_study`, finished or not.
        out: the directory to write to: ``index.html``, and for each study a directory with its
            name, as `write_report` writes it.
        figures: whether the reports of the studies hold their figures as files too.

    Returns:
        The path of the page.

    Raises:
        ConfigError: if ``out`` is not a directory.
        RunError: if the disk is full or not writable.
    """
    page, panels, links = Page(out, with_files=False), [], []
    for place, study in enumerate(studies, 1):
        folder = re.sub(r"[^a-z0-9_]+", "-", study.name.lower())[:40].strip("-")
        if not folder or f"{folder}/index.html" in links:
            folder = f"{folder or 'study'}-{place}"
        write_report(study, Path(out) / folder, figures=figures)
        links.append(f"{folder}/index.html")
        found = statistics_of(study, main_measure(study))
        if found.ranking:
            panel = hero_panel(study, found)
            told = f"{study.name}: {subtitle(study)}. {panel.title}."
            # Two of them stand beside each other: the narrow form is the one that fits.
            panels.append(panel._replace(name=f"{folder}-hero", is_wide=False, caption=told))
    section = Section("studies", "Studies", figures=page.draw(panels), links=links)
    title = ", ".join(study.name for study in studies)
    return page.write("annealtune studies", title, "", [section])


def subtitle(study: Study) -> str:
    """Return what a study is about, in one line."""
    methods, seeds = len(study.methods), len(study.seeds)
    vary = study.vary.replace("_", " ")
    size = f"{methods} method{'s' * (methods != 1)} × {seeds} {vary}{'s' * (seeds != 1)}"
    return ", ".join([*task_of(study.experiment), size])


def task_of(config: Mapping[str, Any]) -> list[str]:
    """Return model, data, epochs, examples and batches of a config, as far as it knows them."""
    # Of package.module:factory the factory is enough here; the whole name is in the configuration.
    model, data = (str(config.get(key, key)).rpartition(":")[2] for key in ("model", "data"))
    known = [f"{model} on {data}"]
    if "epochs" in config:
        known.append(f"{config['epochs']} epochs")
    if config.get("train_size"):
        size, share = config["train_size"], config.get("validation_fraction", 0)
        held_out = 0 if config.get("validate_on") == "test" else round(size * share)
        known.append(f"{size - held_out:,} training examples")
        known += [f"{held_out:,} for validation"] * bool(held_out)
    if "batch_size" in config:
        known.append(f"batches of {config['batch_size']}")
    return known


def _first_section(page: Page, study: Study, found: Statistics | None) -> Section:
    """Return what the methods reached by the main measure, and the states of the runs."""
    counts = Counter(run.state for run in study.runs)
    facts = [("runs", ", ".join(f"{n} {state}" for state, n in counts.items()) or "none")]
    chosen = "test set" if test_set_chose(study) else "validation set"
    facts.append(("best epoch chosen on", chosen))
    if found is None:
        return Section("results", "Results", facts=facts)
    panel = hero_panel(study, found)
    return Section("results", panel.title, figures=page.draw([panel]), facts=facts)


def _figure_sections(page: Page, study: Study) -> list[Section]:
    """Return every figure that the records allow; on the paper's own pages those of the paper."""
    own = [
        ("curves", "Training and validation",
         performance_panels(study, study.methods, "curves"), ""),
        ("accept-test", "Accept test", accept_panels(study), ""),
    ]  # fmt: skip
    curves = (paper_figures(study) if study.name in PAPER_STUDIES else []) or own
    found = [
        ("rates", "Learning rate", rate_panels(study),
         "At the end of each epoch; over H the mean of the accepted moves."),
        *((name, title, panels, f"{told} {_LINES}") for name, title, panels, told in curves),
        ("settings", "Which settings were accepted when", setting_panels(study), ""),
    ]  # fmt: skip
    return [
        Section(name, title, caption, figures=page.draw(panels))
        for name, title, panels, caption in found
    ]


def _configuration(study: Study) -> Section:
    differing = difference_table(study.configs)
    tables = [(differing, "Options that are not the same for all methods")] if differing else []
    folds = [
        Section("differing", "Where the methods differ", tables=tables),
        Section("common", "What all methods share", facts=facts_of(study.experiment)),
        Section("environment", "Versions and machine", facts=facts_of(study.environment)),
    ]
    return Section("configuration", "Configuration", folds=[f for f in folds if not f.is_empty])
