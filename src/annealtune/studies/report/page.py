"""The report as one page that loads nothing from outside."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from annealtune.studies.records import Study
from annealtune.studies.reproduction import PAPER_STUDIES
from annealtune.studies.statistics.comparisons import RESAMPLES
from annealtune.studies.statistics.costs import costs_of
from annealtune.studies.statistics.measures import Measure, main_measure, number
from annealtune.studies.statistics.summaries import Statistics
from annealtune.training.storage import flat

from .figures.panels import Drawing, Plate
from .findings import findings, searched_by
from .hero import Hero
from .method_tables import comparison_table, cost_table, summary_table
from .shell import render_template
from .table_1 import result_rows, results_table, shown_measures, state_of
from .tables import Cell, Table, text_cell

_RESULTS = (
    "The last epoch, and the best one on the validation set. Bold: the best method for this seed, "
    "or the best of these lines. “Best” is the best seed of each column, chosen by the very number "
    "that is shown."
)
_PAPER_RESULTS = (
    "Table 1 of the paper reports the last epoch; next to it is the best epoch on the validation "
    "set. Bold: the best method for this seed, or the best of these lines. “Best” is the best seed "
    "of each column, chosen by the very number that is shown. The loss on the paper’s scale is the "
    "sum of the minibatches’ mean losses divided by the number of images."
)
_TESTS = (
    "Deviation: of the sample. Intervals: bootstrap of the mean paired difference (BCa, "
    f"{RESAMPLES:,} resamples, fixed seed). Test: Wilcoxon signed-rank, two-sided, exact, ties and "
    "zeros included; Holm’s correction counts the pairs of methods, for each measure by itself. "
    "Only seeds that both methods finished are paired. “n/a”: these runs do not tell."
)
_COSTS = (
    "Cost: forwards plus twice the backwards of training steps, probes and races included. "
    "Relative: to the cheapest method. The time depends on the machine and on what else it did."
)


class Fold(NamedTuple):
    """Tables of one subject, opened by a click.

    Attributes:
        name: letters, digits and hyphens.
        title: what they hold.
        text: how to read them; may be empty.
        tables: each with a caption.
        is_open: whether they are seen without a click.
    """

    name: str
    title: str
    text: str
    tables: tuple[tuple[Table, str], ...]
    is_open: bool = False


class Section(NamedTuple):
    """A plate with its drawings, each with what it shows."""

    name: str
    title: str
    caption: str
    drawings: list[tuple[Drawing, str]]


def render_page(
    study: Study,
    statistics: Mapping[Measure, Statistics],
    hero: Hero | None,
    plates: Sequence[Plate],
    drawings: Mapping[str, Drawing],
) -> str:
    """Return the page of a study, finished or not, as HTML.

    Args:
        study: what the page is about.
        statistics: by measure, as `study_statistics` returns them.
        hero: what the page opens on; None if there is nothing to show yet.
        plates: the other figures in order.
        drawings: by name, the panel of the hero and every panel of the plates.
    """
    told = findings(study, statistics)
    headline = hero.headline if hero else told[0].text
    return render_template(
        "study.html",
        study=study,
        subtitle=subtitle(study),
        headline=headline,
        hero=hero and (drawings[hero.panel.name], hero.caption),
        findings=[finding for finding in told if finding.text != headline],
        search=_search_table(study.search),
        sections=[
            Section(p.name, p.title, p.caption, [(drawings[e.name], e.title) for e in p.panels])
            for p in plates
        ],
        folds=_folds(study, statistics),
        incomplete=[(run, state_of(run)) for run in study.runs if run.status != "finished"],
        common=_common(study),
        differing=_differing(study),
        environment=[(key, _text(value)) for key, value in flat(study.environment).items()],
    )


def _folds(study: Study, statistics: Mapping[Measure, Statistics]) -> list[Fold]:
    """Return all tables: the main measure, seed by seed, the other measures, the costs."""
    main, measures = main_measure(study), shown_measures(study, statistics)
    found = []
    if main in statistics:
        title = "Methods compared" if len(study.methods) > 1 else "Over the seeds"
        found.append(_measure_fold("methods", f"{title}: {main.title}", statistics[main]))
    rows = result_rows(study, statistics)
    is_paper = study.name in PAPER_STUDIES
    found.append(
        Fold(
            "seed-by-seed",
            "Table 1: seed by seed" if is_paper else "Seed by seed",
            _PAPER_RESULTS if is_paper else _RESULTS,
            ((results_table(study, rows, measures), "Every run, then every method"),),
            is_open=is_paper,
        )
    )
    for measure in measures:
        if measure != main:
            name = measure.key.replace("_", "-")
            found.append(_measure_fold(name, measure.title.capitalize(), statistics[measure]))
    costs = cost_table(costs_of(study), statistics.get(main))
    found.append(
        Fold("cost-table", "What a run cost", _COSTS, ((costs, "Means over finished runs"),))
    )
    return found


def _measure_fold(name: str, title: str, statistics: Statistics) -> Fold:
    tables = [(summary_table(statistics), "What each method reached")]
    if statistics.comparisons:
        caption = "First method minus second, seed by seed"
        tables.append((comparison_table(statistics), caption))
    return Fold(name, title, _TESTS if statistics.comparisons else "", tuple(tables))


def subtitle(study: Study) -> str:
    """Return what a study is about, in one line."""
    experiment = study.experiment
    known = [f"{experiment['epochs']} epochs"] if "epochs" in experiment else []
    if "train_size" in experiment:
        known.append(_examples(experiment))
    if "batch_size" in experiment:
        known.append(f"batches of {experiment['batch_size']}")
    # Of package.module:factory the factory is enough here; the whole name is in the configuration.
    model, data = (str(experiment.get(key, key)).rpartition(":")[2] for key in ("model", "data"))
    what = f"{model} on {data}"
    methods, seeds = len(study.methods), len(study.seeds)
    vary = study.vary.replace("_", " ")
    known.append(f"{methods} method{'s' * (methods != 1)} × {seeds} {vary}{'s' * (seeds != 1)}")
    return ", ".join([what, *known])


def _examples(experiment: Mapping[str, Any]) -> str:
    """Return how many examples are trained on, of a fixed number that validation may share."""
    size = experiment["train_size"]
    share = experiment.get("validation_fraction", 0)
    held_out = 0 if experiment.get("validate_on") == "test" else round(size * share)
    text = f"{size - held_out:,} training examples"
    return text + (f" and {held_out:,} for validation" if held_out else "")


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
    rungs = _records(log, "rungs")
    first = next((score for rung in rungs for score in _records(rung, "scores")), {})
    measure = searched_by(first)
    rows: list[tuple[Cell, ...]] = []
    for place, rung in enumerate(rungs, 1):
        stays = "wins" if log.get("winner") and place == len(rungs) else "goes on"
        for score in _records(rung, "scores"):
            value = number(score, f"validation_{measure.quantity}")
            verdict = stays if score.get("seed") in (rung.get("kept") or []) else "given up"
            rows.append(
                (
                    *_numbers(rung.get("epochs"), score.get("seed")),
                    Cell(measure.text(value), "" if value is None else value),
                    text_cell(verdict),
                )
            )
        for failure in _records(rung, "failed"):
            why = Cell(f"failed: {failure.get('reason')}", is_number=False, span=2)
            rows.append((*_numbers(rung.get("epochs"), failure.get("seed")), why))
    columns = ("epochs", "seed", f"best validation {measure.quantity} so far", "verdict")
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
    return f"{value:g}" if isinstance(value, float) else str(value)
