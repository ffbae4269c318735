"""The page of one run, finished or not, and of several beside each other."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from annealtune.annealing.race_info import rate_text
from annealtune.studies.records import RunRecord
from annealtune.studies.statistics.measures import number
from annealtune.training.storage import MEAN_OF_MOVES, flat

from .figures.panels import Drawing, Panel, render
from .figures.run_details import accept_panels, average_panels
from .figures.run_hero import hero
from .figures.run_races import race_panels
from .run_story import RunStory, shown
from .shell import render_template
from .tables import Cell, Table, number_cell, text_cell
from .writing import free_directory, make_directory, write_file

# How often the page of a run that is going on looks whether there is a newer one.
_REFRESH_SECONDS = 5

# Where there are more, the first ones are in the table alone.
_DRAWN_RACES = 4

_RESULTS = (
    ("test_accuracy", "test accuracy"),
    ("test_loss", "test loss"),
    ("best_validation_accuracy", "best validation accuracy"),
    ("best_validation_loss", "best validation loss"),
    ("training_seconds", "training time"),
)


def write_run_report(
    run: RunRecord, out: Path | None = None, *, figures: bool = True, is_live: bool = False
) -> Path:
    """Write the page of a run, whatever state it is in.

    Args:
        run: of `read_lone_run`.
        out: the directory to write to; by default ``report`` in that of the run.
        figures: whether every figure is written as SVG and PDF too.
        is_live: whether the run is going on and the page will be written again: it then loads
            itself anew every few seconds.

    Returns:
        The path of the page.

    Raises:
        ConfigError: if ``out`` is not a directory.
        RunError: if the disk is full or not writable.
    """
    story = RunStory(run, run.path.name)
    drawn = _Drawn(figures)
    first = hero([story])
    page = render_template(
        "run.html",
        story=story,
        refresh=_REFRESH_SECONDS if is_live and not story.is_finished else None,
        subtitle=_subtitle(run),
        hero=None if first is None else drawn.one(first),
        races=drawn.each(race_panels(story.races[-_DRAWN_RACES:])),
        race_table=_race_table(story),
        average=drawn.each(average_panels(story)),
        accepted=drawn.each(accept_panels(story)),
        results=_results(story),
        epochs=_epoch_table(story),
        command=_environment(run).get("command"),
        config=_pairs({k: v for k, v in run.config.items() if k != "environment"}),
        environment=_pairs({k: v for k, v in _environment(run).items() if k != "command"}),
        files=_files(run),
    )
    return drawn.write(out or run.path / "report", page)


def write_comparison(
    runs: Sequence[RunRecord], out: Path | None = None, *, figures: bool = True
) -> Path:
    """Write one page about several runs: curves, rates, results, and in what they differ.

    Args:
        runs: at least two, of `read_lone_run`.
        out: the directory to write to; by default ``comparison`` beside the runs, or here if they
            lie in different places, and ``comparison-2`` and so on where that is taken.
        figures: whether every figure is written as SVG and PDF too.

    Returns:
        The path of the page.
    """
    stories = [RunStory(run, name) for run, name in zip(runs, _names(runs), strict=True)]
    parents = {run.path.parent for run in runs}
    default = (parents.pop() if len(parents) == 1 else Path()) / "comparison"
    drawn = _Drawn(figures)
    first = hero(stories)
    page = render_template(
        "runs.html",
        stories=stories,
        over_h=MEAN_OF_MOVES if any(s.has_moves and s.rate is not None for s in stories) else None,
        hero=None if first is None else drawn.one(first),
        results=_comparison_table(stories),
        differing=_differing(stories),
        common=_common(stories),
        commands=[(s.name, _environment(s.run).get("command")) for s in stories],
    )
    return drawn.write(out or free_directory(default), page)


class _Drawn:
    """Draws panels, keeps their files and writes them with the page."""

    def __init__(self, with_files: bool) -> None:
        self._with_files = with_files
        self._files: dict[str, bytes] = {}

    def one(self, panel: Panel) -> Drawing:
        drawing = render(panel, files=self._with_files)
        if self._with_files:
            self._files[f"{panel.name}.svg"] = drawing.svg
            self._files[f"{panel.name}.pdf"] = drawing.pdf
        return drawing

    def each(self, panels: Sequence[tuple[Panel, str]]) -> list[tuple[Drawing, str]]:
        return [(self.one(panel), caption) for panel, caption in panels]

    def write(self, directory: Path, page: str) -> Path:
        make_directory(directory / "figures" if self._files else directory)
        for name, content in self._files.items():
            write_file(directory / "figures" / name, content)
        write_file(directory / "index.html", page.encode())
        return directory / "index.html"


def _subtitle(run: RunRecord) -> str:
    config = run.config
    told = [f"{run.method}, {config.get('model', 'a model')} on {config.get('data', 'data')}"]
    if "epochs" in config:
        told.append(f"{config['epochs']} epochs")
    if "batch_size" in config:
        told.append(f"batches of {config['batch_size']}")
    told.append(f"seed {run.seed}")
    return ", ".join(map(str, told))


def _results(story: RunStory) -> list[tuple[str, str]]:
    """Return what came out, as pairs of a name and a value."""
    source: Mapping[str, Any] = story.run.result or {}
    rows = [
        (title, _score(key, value))
        for key, title in _RESULTS
        if (value := number(source, key)) is not None
    ]
    if story.best_epoch is not None:
        rows.append(("best epoch", f"{story.best_epoch} of {story.planned_epochs or story.epochs}"))
    if story.told_rate is not None:
        rows.append(("learning rate", story.told_rate))
    return rows


def _score(key: str, value: float) -> str:
    if key.endswith("accuracy"):
        return f"{100 * value:.2f} %"
    return f"{value:.1f} s" if key.endswith("seconds") else f"{value:.4g}"


def _race_table(story: RunStory) -> Table | None:
    rows = []
    for race in story.races:
        for arm in range(len(race.settings)):
            made = len(race.losses[arm]) if arm < len(race.losses) else None
            score = race.scores[arm] if arm < len(race.scores) else float("nan")
            is_known = score == score  # not NaN
            rows.append(
                (
                    number_cell(str(race.number), race.number),
                    text_cell(race.name(arm)),
                    number_cell(f"{score:.4g}" if is_known else "–", score if is_known else None),
                    number_cell("–" if made is None else str(made), made),
                    text_cell(race.fate(arm)),
                )
            )
    columns = ("race", "arm", "score", "steps made", "what became of it")
    return Table(columns, tuple(rows)) if rows else None


_EPOCH_COLUMNS = (
    ("train_loss", "training loss"),
    ("validation_loss", "validation loss"),
    ("validation_accuracy", "validation accuracy"),
    ("last_weights_validation_accuracy", "of the last weights"),
    ("rate", "rate"),
    ("temperature", "temperature"),
    ("acceptance_rate", "accepted"),
)


def _epoch_table(story: RunStory) -> Table | None:
    keys = [(key, title) for key, title in _EPOCH_COLUMNS if story.has(key)]
    if not keys:
        return None
    if story.has_moves:
        keys = [(key, "mean rate accepted" if key == "rate" else title) for key, title in keys]
    rows = []
    for place, record in story.shown_epochs:
        cells = [number_cell(str(place), place)]
        for key, _ in keys:
            value = number(record, key)
            cells.append(number_cell("–" if value is None else _cell(key, value), value))
        rows.append(tuple(cells))
    return Table(("epoch", *(title for _, title in keys)), tuple(rows))


def _cell(key: str, value: float) -> str:
    if key.endswith("accuracy") or key == "acceptance_rate":
        return f"{100 * value:.2f} %"
    return rate_text(value) if key == "rate" else f"{value:.4g}"


def _environment(run: RunRecord) -> dict[str, Any]:
    found = run.config.get("environment")
    return found if isinstance(found, dict) else {}


def _pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, shown(value)) for key, value in flat(values).items()]


def _files(run: RunRecord) -> list[tuple[str, str]]:
    """Return what lies in the run directory, and what it is."""
    known = {
        "metrics.jsonl": "one line of JSON an epoch",
        "moves.jsonl": "one line of JSON an epoch: how often each setting was tried and accepted",
        "result.json": "the scores at the end, and all races",
        "best.safetensors": "the weights of the best epoch",
        "config.toml": "the configuration",
    }
    return [(name, what) for name, what in known.items() if (run.path / name).is_file()]


def _names(runs: Sequence[RunRecord]) -> list[str]:
    """Return short names that tell runs apart: the ends of their paths."""
    paths = [run.path.resolve() for run in runs]
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{path.name} ({place})" for place, path in enumerate(paths, 1)]


def _comparison_table(stories: Sequence[RunStory]) -> Table:
    keys = [
        (key, title)
        for key, title in _RESULTS
        if any(number(s.run.result or {}, key) is not None for s in stories)
    ]
    known = {
        key: [v for s in stories if (v := number(s.run.result or {}, key)) is not None]
        for key, _ in keys
    }
    rows = []
    for story in stories:
        cells: list[Cell] = [text_cell(story.name), text_cell(story.run.method)]
        for key, _ in keys:
            value = number(story.run.result or {}, key)
            best = max(known[key]) if key.endswith("accuracy") else min(known[key])
            is_best = value == best and len(stories) > 1 and key != "training_seconds"
            cells.append(number_cell("–" if value is None else _score(key, value), value, is_best))
        rate = story.rate
        cells.append(number_cell("–" if rate is None else rate_text(rate), rate))
        extra = number(story.run.metrics[-1], "extra_steps") if story.epochs else None
        cells.append(number_cell("–" if extra is None else f"{extra:.0f}", extra))
        state = "finished" if story.is_finished else (story.run.reason or story.run.state)
        cells.append(text_cell(state))
        rows.append(tuple(cells))
    titles = (title for _, title in keys)
    columns = ("run", "method", *titles, "learning rate", "extra steps", "state")
    return Table(columns, tuple(rows))


def _options(story: RunStory) -> dict[str, Any]:
    return flat({k: v for k, v in story.run.config.items() if k != "environment"})


def _differing(stories: Sequence[RunStory]) -> Table | None:
    """Return the options in which the runs differ, one a row; None if there are none."""
    configs = [_options(story) for story in stories]
    keys = sorted({key for config in configs for key in config})
    rows = [
        (text_cell(key), *(text_cell(shown(config.get(key, "–"))) for config in configs))
        for key in keys
        if any(config.get(key) != configs[0].get(key) for config in configs)
    ]
    return Table(("option", *(story.name for story in stories)), tuple(rows)) if rows else None


def _common(stories: Sequence[RunStory]) -> list[tuple[str, str]]:
    configs = [_options(story) for story in stories]
    return [
        (key, shown(value))
        for key, value in sorted(configs[0].items())
        if all(key in config and config[key] == value for config in configs)
    ]
