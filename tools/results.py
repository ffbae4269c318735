"""Records of studies that are kept in the repository, and everything that is built from them.

    python -m tools.results keep STUDY [NAME]
    python -m tools.results

The first command packs the finished runs of a study, whose other runs may go on, into
``docs/results/records/NAME``: ``study.toml``, the plan with versions, machine and commit, and
``runs.tar.xz``, of every run its config, ``metrics.jsonl``, ``moves.jsonl``, result and seal. The
second one builds from all of them, without training, the pages in ``docs/results/pages``, which are
not committed, and the tables between the marks of ``docs/results/paper.md``, which are.
"""

from __future__ import annotations

import argparse
import io
import itertools
import re
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from annealtune.errors import AnnealtuneError, ConfigError
from annealtune.studies.records import (
    RUNS,
    STUDY_FILE,
    RunRecord,
    Study,
    read_facts,
    read_study,
    sealed_toml,
)
from annealtune.studies.report.joint_table import PAPER, joint_table
from annealtune.studies.report.study_page import write_overview
from annealtune.studies.report.tables import Cell, Table
from annealtune.studies.reproduction import PAPER_STUDIES, net_of
from annealtune.studies.statistics.measures import Measure, kind_of, number
from annealtune.studies.statistics.summaries import scores_of
from annealtune.training.storage import CONFIG_FILE
from annealtune.training.storage.seal import (
    BEST_FILE,
    METRICS,
    MOVES,
    RESULT_FILE,
    SEAL_FILE,
    TASK_FILE,
    read_seal,
    sealed_text,
)

RESULTS = Path(__file__).parents[1] / "docs" / "results"
RECORDS, PAGES, PAPER_PAGE = RESULTS / "records", RESULTS / "pages", RESULTS / "paper.md"
PACKED = "runs.tar.xz"
_UNCHANGED = (TASK_FILE, BEST_FILE, METRICS, MOVES, RESULT_FILE)
_BUILT = re.compile(r"(<!-- built: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


# --- Keeping records ---


def keep(study: Path, folder: Path) -> int:
    """Pack the finished runs of a study; the same runs give the same bytes.

    In the command lines the place of the study becomes its name: where it lay on a disk is nobody's
    business. Nothing else is changed, and the seal of a run still covers all of it.

    Args:
        study: its directory, which is only read. Other runs may go on meanwhile.
        folder: where the record goes; one that is there is replaced.

    Returns:
        How many runs were packed.

    Raises:
        ConfigError: if there is no study, or no run of it has finished.
    """
    facts = read_facts(study)
    finished = [run for run in read_study(study).runs if run.status == "finished"]
    if not finished:
        raise ConfigError(f"{study}: must have a finished run to be kept, has none yet")
    methods, seeds = {run.method for run in finished}, {run.seed for run in finished}
    places = sorted({str(study), str(study.resolve())}, key=len, reverse=True)

    def without_place(text: str) -> str:
        for place in places:
            text = text.replace(place, facts["name"])
        above = re.escape(str(study.resolve().parent))  # where `reproduce` puts all its studies
        return re.sub(rf"(?<=--out[ =]){above}/?(?!\S)", "studies", text)

    facts |= {
        "command": without_place(facts["command"]),
        "seeds": [seed for seed in facts["seeds"] if seed in seeds],
        "methods": [each for each in facts["methods"] if each["label"] in methods],
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", preset=9) as archive:
        for run in finished:
            for name, content in _files(run.path, without_place).items():
                entry = tarfile.TarInfo(f"{RUNS}/{run.path.name}/{name}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PACKED).write_bytes(packed.getvalue())
    (folder / STUDY_FILE).write_bytes(sealed_toml(facts))
    return len(finished)


def _files(run: Path, without_place: Callable[[str], str]) -> dict[str, bytes]:
    """Return what is kept of a run, by name."""
    found = {name: (run / name).read_bytes() for name in _UNCHANGED if (run / name).exists()}
    config = without_place((run / CONFIG_FILE).read_text(encoding="utf-8"))
    found[CONFIG_FILE] = config.encode()
    if (run / SEAL_FILE).exists():
        seal = read_seal(run / SEAL_FILE)
        found[SEAL_FILE] = sealed_text({**seal, "config": without_place(seal["config"])})
    return dict(sorted(found.items()))


def read_kept(folder: Path) -> Study:
    """Read a study that was packed by `keep`; every file is checked against its seal."""
    with tempfile.TemporaryDirectory() as place:
        study = Path(place, folder.name)
        study.mkdir()
        (study / STUDY_FILE).write_bytes((folder / STUDY_FILE).read_bytes())
        with tarfile.open(folder / PACKED) as archive:
            archive.extractall(study, filter="data")
        return read_study(study, large=False)


# --- Building from them ---


def build(records: Path = RECORDS, pages: Path = PAGES, paper: Path = PAPER_PAGE) -> list[Study]:
    """Build the pages and fill the tables of the paper's page; return the kept studies."""
    studies = [read_kept(each.parent) for each in sorted(records.glob(f"*/{PACKED}"))]
    if studies:
        write_overview(studies, pages, figures=False)
    text = paper.read_text(encoding="utf-8")
    filled = fill(text, studies)
    if filled != text:
        paper.write_text(filled, encoding="utf-8")
    return studies


def fill(text: str, studies: Sequence[Study]) -> str:
    """Return a page with the tables between its marks built from studies."""
    tables: dict[str, Callable[[], Table | None]] = {
        "table-1": lambda: joint_table(studies),
        "vgg16": lambda: _claims("vgg16", studies),
        "resnet34": lambda: _claims("resnet34", studies),
        "figure-1": lambda: _figure_1(studies),
        "records": lambda: _records(studies),
    }

    def built(match: re.Match[str]) -> str:
        table = tables[match[2]]()
        content = "No records yet.\n" if table is None else markdown(table)
        return f"{match[1]}{content}{match[3]}"

    return _BUILT.sub(built, text)


def markdown(table: Table) -> str:
    """Return a table as Markdown, the titles above the columns joined to theirs."""
    groups = [title for title, width in table.groups for _ in range(width)]
    titles = [
        f"{group}: {title}" if group else title
        for group, title in zip(groups or [""] * len(table.columns), table.columns, strict=True)
    ]
    rows = [titles, ["---"] * len(titles)]
    rows += [[_cell(each) for each in row] for row in (*table.rows, *table.footer)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(cell: Cell) -> str:
    return f"**{cell.text}**" if cell.is_best else cell.text


def _study_of(studies: Sequence[Study], is_it: Callable[[Study], bool]) -> Study | None:
    return next(filter(is_it, studies), None)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    cells = (tuple(Cell(text, is_number=False) for text in row) for row in rows)
    return Table(tuple(columns), tuple(cells))


def _records(studies: Sequence[Study]) -> Table | None:
    """Return which runs there are of each study, and what they were made with."""
    rows = [
        (
            f"`{study.name}`",
            str(study.experiment.get("model", "")),
            "; ".join(_finished(study, method) for method in study.methods),
            ", ".join(f"{key} {value}" for key, value in study.environment.items()),
        )
        for study in studies
    ]
    return _table(("study", "net", "finished runs", "made with"), rows) if rows else None


def _finished(study: Study, method: str) -> str:
    seeds = [str(run.seed) for run in study.of(method) if run.status == "finished"]
    return f"{method}: {len(seeds)} ({study.vary} {', '.join(seeds)})"


# --- The paper's claims, point by point ---

BASELINE = "scheduled-sgd"
COLUMNS = {
    "the text's method": "sgd-sa-paper-text",
    "the script's method": "sgd-sa-paper-code",
    "always accept": "random-rate",
    "self-tuned over SGD": "self-tuned-sgd",
    "self-tuned over AdamW": "self-tuned",
}
_LOSS, _ACCURACY = (
    Measure("last", "validation", "paper_loss"),
    Measure("last", "validation", "accuracy"),
)
_NO_RUN = "no record yet"
_Claim = Callable[[Study, str], str | None]


def _claims(net: str, studies: Sequence[Study]) -> Table | None:
    """Return what the paper says of one net, and what each method gives; None without a study."""
    study = _study_of(studies, lambda each: net_of(each.name) == net)
    if study is None:
        return None
    baseline, theirs = PAPER[net][BASELINE], PAPER[net]["sgd-sa"]
    rows = []
    for claim, said, found in (
        (
            "SGD-SA ends with the lower validation loss than Scheduled-SGD",
            _paired(_LOSS, dict(enumerate(theirs[0])), dict(enumerate(baseline[0]))),
            _final(_LOSS),
        ),
        (
            "and with the higher validation accuracy",
            _paired(_ACCURACY, dict(enumerate(theirs[1])), dict(enumerate(baseline[1]))),
            _final(_ACCURACY),
        ),
        (
            "the best seed is 1 to 2 points better",
            f"{_ACCURACY.text(max(theirs[1]))} against {_ACCURACY.text(max(baseline[1]))}",
            _best_seed,
        ),
        (
            "a move is accepted with probability almost one at first, then less and less",
            "a drawing (Figure 2 a)",
            _probability,
        ),
        (
            "its training accuracy comes to one, more slowly",
            "a drawing (Figure 2 b)",
            _training,
        ),
        (
            "there are accuracy drops in the first epochs",
            "a drawing (Figures 3 and 4)",
            _drops,
        ),
        (
            "the seed matters more: deviation of the final accuracy",
            f"{_points(stdev(theirs[1]))} against {_points(stdev(baseline[1]))}",
            _deviation,
        ),
    ):
        cells = [found(study, method) or _NO_RUN for method in COLUMNS.values()]
        rows.append((claim, said, *cells))
    return _table(("the paper's claim", "the paper", *COLUMNS), rows)


def _paired(measure: Measure, ours: Mapping[int, float], base: Mapping[int, float]) -> str | None:
    seeds = sorted(ours.keys() & base.keys())
    if not seeds:
        return None
    won = sum(measure.best([ours[s], base[s]]) == ours[s] != base[s] for s in seeds)
    means = [measure.text(fmean(each[s] for s in seeds)) for each in (ours, base)]
    return f"{won} of {len(seeds)} seeds; {means[0]} against {means[1]}"


def _final(measure: Measure) -> _Claim:
    return lambda study, method: _paired(
        measure, scores_of(study, method, measure), scores_of(study, BASELINE, measure)
    )


def _best_seed(study: Study, method: str) -> str | None:
    ours, base = (scores_of(study, each, _ACCURACY).values() for each in (method, BASELINE))
    if not ours or not base:
        return None
    return f"{_ACCURACY.text(max(ours))} against {_ACCURACY.text(max(base))}"


def _probability(study: Study, method: str) -> str | None:
    if kind_of(study, method) == "self-tuned" and _curves(study, method, "validation_loss"):
        return "no accept test of steps"
    curves = _curves(study, method, "accept_probability")
    if not curves:
        return None
    middle = len(curves[0]) // 2
    first, half, last = (fmean(curve[at] for curve in curves) for at in (0, middle - 1, -1))
    return f"{first:.3f} in the first epoch, {half:.3f} at half, {last:.3f} in the last"


def _training(study: Study, method: str) -> str | None:
    curves = {each: _curves(study, each, "train_eval_accuracy") for each in (method, BASELINE)}
    if not all(curves.values()):
        return None
    ends = [_ACCURACY.text(fmean(c[-1] for c in each)) for each in curves.values()]
    return f"{ends[0]} in the last epoch, against {ends[1]}"


def _drops(study: Study, method: str) -> str | None:
    curves = _curves(study, method, "validation_accuracy")
    if not curves:
        return None
    falls = [
        (before - after, epoch)
        for curve in curves
        for epoch, (before, after) in enumerate(itertools.pairwise(curve), 2)
    ]
    if not falls:
        return None
    size, epoch = max(falls)
    return f"the largest is {_points(size)}, in epoch {epoch}"


def _deviation(study: Study, method: str) -> str | None:
    found = [list(scores_of(study, each, _ACCURACY).values()) for each in (method, BASELINE)]
    if min(map(len, found)) < 2:
        return "needs two seeds" if all(found) else None
    ours, base = map(stdev, found)
    return f"{_points(ours)} against {_points(base)}"


def _points(share: float) -> str:
    return f"{_ACCURACY.number(share)} points"


def _curves(study: Study, method: str, key: str) -> list[list[float]]:
    """Return the numbers of every epoch of every finished run of a method."""
    runs = [run for run in study.runs if run.method == method and run.status == "finished"]
    return [curve for run in runs if (curve := _curve(run, key))]


def _curve(run: RunRecord, key: str) -> list[float]:
    return [value for line in run.metrics if (value := number(line, key)) is not None]


def _figure_1(studies: Sequence[Study]) -> Table | None:
    """Return what SSA and SGD reach on Fashion-MNIST, in the last epoch."""
    study = _study_of(
        studies,
        lambda each: (
            each.name in PAPER_STUDIES and any(kind_of(each, m) == "ssa" for m in each.methods)
        ),
    )
    if study is None:
        return None
    rows = []
    for method in study.methods:
        keys = ("validation_accuracy", "train_eval_accuracy", "validation_loss")
        accuracy, training, loss = (_curves(study, method, key) for key in keys)
        if not accuracy:
            continue
        texts = [_ACCURACY.text(fmean(c[-1] for c in each)) for each in (accuracy, training)]
        last = fmean(curve[-1] for curve in loss)
        rows.append((method, *texts, f"{last:.4f}", _accepted(study, method)))
    columns = ("method", "validation accuracy", "training accuracy", "validation loss")
    return _table((*columns, "moves accepted, first and last epoch"), rows)


def _accepted(study: Study, method: str) -> str:
    curves = _curves(study, method, "acceptance_rate")
    return ", ".join(_ACCURACY.text(fmean(c[at] for c in curves)) for at in (0, -1) if curves)


def main(arguments: list[str] | None = None) -> None:
    """Keep the records of a study, or build what is built from records."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command")
    keeping = commands.add_parser("keep", help="pack the finished runs of a study")
    keeping.add_argument("study", type=Path)
    keeping.add_argument("name", nargs="?", help="of the record; by default that of the study")
    given = parser.parse_args(arguments)
    try:
        if given.command == "keep":
            folder = RECORDS / (given.name or read_facts(given.study)["name"])
            runs = keep(given.study, folder)
            size = (folder / PACKED).stat().st_size
            print(f"{folder}: {runs} runs, {size / 1024:.0f} kB")
        else:
            studies = build()
            print(f"{len(studies)} records" + (f"; {PAGES / 'index.html'}" if studies else ""))
    except AnnealtuneError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
