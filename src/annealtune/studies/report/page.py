"""The report as one page that loads nothing from outside."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from annealtune.studies.records import Study, flat
from annealtune.studies.statistics.comparisons import RESAMPLES
from annealtune.studies.statistics.costs import costs_of
from annealtune.studies.statistics.measures import Measure, main_measure, number
from annealtune.studies.statistics.summaries import Statistics

from .figures.panels import Drawing, Plate
from .findings import findings
from .method_tables import comparison_table, cost_table, summary_table
from .shell import render_template
from .table_1 import result_rows, results_table, shown_measures, state_of
from .tables import Cell, Table, text_cell


class MeasureSection(NamedTuple):
    """What the page says about one measure."""

    title: str
    summaries: Table
    comparisons: Table | None


def render_page(
    study: Study,
    statistics: Mapping[Measure, Statistics],
    plates: Sequence[Plate],
    drawings: Mapping[str, Drawing],
) -> str:
    """Return the page of a study, finished or not, as HTML.

    Args:
        study: what the page is about.
        statistics: by measure, as `study_statistics` returns them.
        plates: the figures in order.
        drawings: by name, every panel of the plates.
    """
    measures = shown_measures(study, statistics)
    main = main_measure(study)
    sections = [_section(statistics[measure]) for measure in measures if measure != main]
    return render_template(
        "study.html",
        study=study,
        subtitle=_subtitle(study),
        findings=findings(study, statistics),
        main=_section(statistics[main]) if main in statistics else None,
        compared="Methods compared" if len(study.methods) > 1 else "Over the seeds",
        results=results_table(study, result_rows(study, statistics), measures),
        sections=sections,
        plates=[
            {**plate._asdict(), "drawings": [(drawings[p.name], p.title) for p in plate.panels]}
            for plate in plates
        ],
        costs_plate=any(plate.name == "costs" for plate in plates),
        costs=cost_table(costs_of(study), statistics.get(main)),
        incomplete=[(run, state_of(run)) for run in study.runs if run.status != "finished"],
        search=_search_table(study.search),
        common=_common(study),
        differing=_differing(study),
        environment=[(key, _text(value)) for key, value in flat(study.environment).items()],
        resamples=f"{RESAMPLES:,}",
    )


def _section(statistics: Statistics) -> MeasureSection:
    return MeasureSection(
        statistics.measure.title,
        summary_table(statistics),
        comparison_table(statistics) if statistics.comparisons else None,
    )


def _subtitle(study: Study) -> str:
    experiment = study.experiment
    known = [
        f"{experiment[key]} {unit}"
        for key, unit in (("epochs", "epochs"), ("train_size", "training images"))
        if key in experiment
    ]
    if "batch_size" in experiment:
        known.append(f"batches of {experiment['batch_size']}")
    what = f"{experiment.get('model', 'model')} on {experiment.get('data', 'data')}"
    methods, seeds = len(study.methods), len(study.seeds)
    vary = study.vary.replace("_", " ")
    known.append(f"{methods} method{'s' * (methods != 1)} × {seeds} {vary}{'s' * (seeds != 1)}")
    return ", ".join([what, *known])


def _common(study: Study) -> list[tuple[str, str]]:
    """Return the options that all methods share, by key; of a study without configs, all."""
    configs = [flat(config) for config in study.configs.values()] or [flat(study.experiment)]
    return [
        (key, _text(value))
        for key, value in sorted(configs[0].items())
        if all(key in each and each[key] == value for each in configs)
    ]


def _differing(study: Study) -> Table | None:
    """Return the options in which the methods differ; None if there are none."""
    configs = {method: flat(config) for method, config in study.configs.items()}
    keys = sorted({key for config in configs.values() for key in config})
    rows = [
        tuple(map(text_cell, (method, key, _text(config[key]))))
        for method, config in configs.items()
        for key in keys
        if key in config and any(each.get(key) != config[key] for each in configs.values())
    ]
    return Table(("method", "option", "value"), tuple(rows)) if rows else None


def _search_table(log: Mapping[str, Any] | None) -> Table | None:
    """Return the rungs of a search for the best seed; None if the study is no search."""
    if log is None:
        return None
    accuracy = Measure("best", "validation", "accuracy")
    rungs = _records(log, "rungs")
    rows: list[tuple[Cell, ...]] = []
    for place, rung in enumerate(rungs, 1):
        stays = "wins" if log.get("winner") and place == len(rungs) else "goes on"
        for score in _records(rung, "scores"):
            value = number(score, "validation_accuracy")
            verdict = stays if score.get("seed") in (rung.get("kept") or []) else "given up"
            rows.append(
                (
                    *_numbers(rung.get("epochs"), score.get("seed")),
                    Cell(accuracy.text(value), "" if value is None else value),
                    text_cell(verdict),
                )
            )
        for failure in _records(rung, "failed"):
            why = Cell(f"failed: {failure.get('reason')}", is_number=False, span=2)
            rows.append((*_numbers(rung.get("epochs"), failure.get("seed")), why))
    columns = ("epochs", "seed", "best validation accuracy so far", "verdict")
    return Table(columns, tuple(rows))


def _records(log: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    records = log.get(key)
    return [each for each in records if isinstance(each, dict)] if isinstance(records, list) else []


def _numbers(*values: Any) -> list[Cell]:
    return [Cell(str(value), value) for value in values]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value)
    return str(value)
