"""Records of studies that are kept in the repository, and everything that is built from them.

    python -m tools.results keep STUDY [NAME]
    python -m tools.results

The first command packs the finished runs of a study, whose other runs may go on, into
``docs/results/records/NAME``: ``study.toml``, the plan with versions, machine and commit, and
``runs.tar.xz``, of every run its config, ``metrics.jsonl``, ``moves.jsonl`` and result. Where the
study and the data lay on a disk is left out. The second command builds from all of them, without
training, the pages in ``docs/results/pages``, which are not committed, and the tables between the
marks of ``docs/results/paper.md``, which are.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import itertools
import re
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from annealtune.errors import AnnealtuneError, ConfigError
from annealtune.studies.records import Study, read_study, sealed_toml
from annealtune.studies.report.joint_table import PAPER, joint_table
from annealtune.studies.report.study_page import write_overview
from annealtune.studies.report.tables import Table
from annealtune.studies.reproduction import net_of

RESULTS = Path(__file__).parents[1] / "docs" / "results"
RECORDS, PAGES, PAPER_PAGE = RESULTS / "records", RESULTS / "pages", RESULTS / "paper.md"
STUDY, PACKED = "study.toml", "runs.tar.xz"
# What is kept of a run: no weights, no checkpoints, no log, and so no seal over all files.
_KEPT = ("best.json", "config.toml", "metrics.jsonl", "moves.jsonl", "result.json", "task.json")
_BUILT = re.compile(r"(<!-- built: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


# --- Keeping records ---


def keep(study: Path, folder: Path) -> int:
    """Pack the finished runs of a study; the same runs give the same bytes.

    Args:
        study: its directory, which is only read. Other runs may go on meanwhile.
        folder: where the record goes; one that is there is replaced.

    Returns:
        How many runs were packed.

    Raises:
        ConfigError: if there is no study, or no run of it has finished.
    """
    finished = [run.path for run in read_study(study).runs if run.status == "finished"]
    if not finished:
        raise ConfigError(f"{study}: must have a finished run to be kept, has none yet")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", preset=9) as archive:
        for run in finished:
            for file in (run / name for name in _KEPT if (run / name).exists()):
                content = _without_places(file.read_bytes(), study)
                entry = tarfile.TarInfo(str(file.relative_to(study)))
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PACKED).write_bytes(packed.getvalue())
    plan = tomllib.loads(_without_places((study / STUDY).read_bytes(), study).decode())
    (folder / STUDY).write_bytes(sealed_toml({**plan, "name": folder.name}))
    return len(finished)


def _without_places(content: bytes, study: Path) -> bytes:
    """Return a file without the directories that the study and its data lay in."""
    content = content.replace(f"{study.resolve().parent}/".encode(), b"")
    content = re.sub(rb'(?<=data_dir = ").*(?="$)', b"data", content, flags=re.MULTILINE)
    return re.sub(rb"(?<=--data-dir )\S+", b"data", content)


def read_kept(folder: Path) -> Study:
    """Read a study that was packed by `keep`, without methods and seeds of which nothing is."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, folder.name)
        path.mkdir()
        (path / STUDY).write_bytes((folder / STUDY).read_bytes())
        with tarfile.open(folder / PACKED) as archive:
            archive.extractall(path, filter="data")
        study = read_study(path, large=False)
    done = {(run.method, run.seed) for run in study.runs if run.status == "finished"}
    methods = tuple(method for method in study.methods if method in {m for m, _ in done})
    seeds = tuple(seed for seed in study.seeds if seed in {s for _, s in done})
    runs = tuple(run for run in study.runs if run.method in methods and run.seed in seeds)
    return dataclasses.replace(study, methods=methods, seeds=seeds, runs=runs)


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
    tables: dict[str, Callable[[], list[Sequence[str]]]] = {
        "table-1": lambda: _rows_of(joint_table(studies)),
        "vgg16": lambda: _claims("vgg16", studies),
        "resnet34": lambda: _claims("resnet34", studies),
        "figure-1": lambda: _figure_1(studies),
        "records": lambda: _records(studies),
    }

    def built(match: re.Match[str]) -> str:
        titles, *rows = tables[match[2]]() or [()]
        lines = [titles, ["---"] * len(titles), *rows]
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        return match[1] + (table if rows else "No records yet.\n") + match[3]

    return _BUILT.sub(built, text)


def _rows_of(table: Table | None) -> list[Sequence[str]]:
    """Return the texts of a table of a report, the titles above the columns joined to theirs."""
    if table is None:
        return []
    groups = [title for title, width in table.groups for _ in range(width)]
    titles = [
        f"{group}: {title}" if group else title
        for group, title in zip(groups or [""] * len(table.columns), table.columns, strict=True)
    ]
    rows = (*table.rows, *table.footer)
    return [titles, *([f"**{c.text}**" if c.is_best else c.text for c in row] for row in rows)]


def _records(studies: Sequence[Study]) -> list[Sequence[str]]:
    """Return which runs there are of each study, and what they were made with."""
    rows: list[Sequence[str]] = [("study", "net", "finished runs", "made with")]
    for study in studies:
        runs = []
        for method in study.methods:
            seeds = [str(run.seed) for run in study.of(method) if run.status == "finished"]
            runs.append(f"{method}: {len(seeds)} ({study.vary} {', '.join(seeds)})")
        made = ", ".join(f"{key} {value}" for key, value in study.environment.items())
        rows.append((f"`{study.name}`", str(study.experiment.get("model")), "; ".join(runs), made))
    return rows


# --- The paper's claims, point by point ---

BASELINE = "scheduled-sgd"
COLUMNS = {
    "the text's method": "sgd-sa-paper-text",
    "the script's method": "sgd-sa-paper-code",
    "always accept": "random-rate",
    "self-tuned over SGD": "self-tuned-sgd",
    "self-tuned over AdamW": "self-tuned",
}
_LOSS, _ACCURACY, _TRAINING = "validation_paper_loss", "validation_accuracy", "train_eval_accuracy"
_Ends = dict[int, float]


def _claims(net: str, studies: Sequence[Study]) -> list[Sequence[str]]:
    """Return what the paper says of one net, and what each method gives."""
    study = next((each for each in studies if net_of(each.name) == net), None)
    if study is None:
        return []
    base, theirs = (
        dict(zip((_LOSS, _ACCURACY), map(_by_seed, PAPER[net][method]), strict=True))
        for method in (BASELINE, "sgd-sa")
    )
    claims: list[tuple[str, str, Callable[[str], str]]] = [
        (
            "SGD-SA ends with the lower validation loss than Scheduled-SGD",
            _won(theirs[_LOSS], base[_LOSS], is_loss=True),
            lambda method: _won(*_ends(study, _LOSS, method, BASELINE), is_loss=True),
        ),
        (
            "and with the higher validation accuracy",
            _won(theirs[_ACCURACY], base[_ACCURACY]),
            lambda method: _won(*_ends(study, _ACCURACY, method, BASELINE)),
        ),
        (
            "the best seed is 1 to 2 points better",
            _against(max, theirs[_ACCURACY], base[_ACCURACY]),
            lambda method: _against(max, *_ends(study, _ACCURACY, method, BASELINE)),
        ),
        (
            "a move is accepted with probability almost one at first, then less and less",
            "a drawing (Figure 2 a)",
            lambda method: _probability(study, method),
        ),
        (
            "its training accuracy comes to one, more slowly",
            "a drawing (Figure 2 b)",
            lambda method: _against(fmean, *_ends(study, _TRAINING, method, BASELINE)),
        ),
        (
            "there are accuracy drops in the first epochs",
            "a drawing (Figures 3 and 4)",
            lambda method: _drop(study, method),
        ),
        (
            "the seed matters more: deviation of the final accuracy",
            _against(stdev, theirs[_ACCURACY], base[_ACCURACY]),
            lambda method: _against(stdev, *_ends(study, _ACCURACY, method, BASELINE)),
        ),
    ]
    known = {method for method in COLUMNS.values() if _curves(study, method, _LOSS)}
    rows: list[Sequence[str]] = [("the paper's claim", "the paper", *COLUMNS)]
    for claim, said, found in claims:
        cells = (found(m) if m in known else "no record yet" for m in COLUMNS.values())
        rows.append((claim, said, *cells))
    return rows


def _by_seed(values: Sequence[float]) -> _Ends:
    return dict(enumerate(values))


def _curves(study: Study, method: str, key: str) -> dict[int, list[float]]:
    """Return the numbers of every epoch of every finished run of a method, by seed."""
    runs = [run for run in study.runs if run.method == method and run.status == "finished"]
    curves = {run.seed: [line.get(key) for line in run.metrics] for run in runs}
    return {
        seed: [value for value in curve if value is not None]
        for seed, curve in curves.items()
        if any(value is not None for value in curve)
    }


def _ends(study: Study, key: str, *methods: str) -> list[_Ends]:
    """Return the last number of every run, by seed, of each method."""
    found = (_curves(study, method, key) for method in methods)
    return [{seed: curve[-1] for seed, curve in curves.items()} for curves in found]


def _won(ours: _Ends, base: _Ends, *, is_loss: bool = False) -> str:
    """Return on how many of the common seeds ours is the better one, and the means over them."""
    seeds = sorted(ours.keys() & base.keys())
    if not seeds:
        return "no record yet"
    won = sum(ours[s] < base[s] if is_loss else ours[s] > base[s] for s in seeds)
    means = [fmean(each[s] for s in seeds) for each in (ours, base)]
    texts = [f"{mean:.6f}" if is_loss else _per_cent(mean) for mean in means]
    return f"{won} of {len(seeds)} seeds; {texts[0]} against {texts[1]}"


def _against(summarise: Callable[[Any], float], ours: _Ends, base: _Ends) -> str:
    try:
        return " against ".join(_per_cent(summarise(each.values())) for each in (ours, base))
    except ValueError:  # of too few numbers
        return "too few seeds"


def _probability(study: Study, method: str) -> str:
    curves = _curves(study, method, "accept_probability").values()
    if not curves:
        return "no accept test of steps"
    middle = len(next(iter(curves))) // 2
    first, half, last = (fmean(curve[at] for curve in curves) for at in (0, middle - 1, -1))
    return f"{first:.3f} in the first epoch, {half:.3f} at half, {last:.3f} in the last"


def _drop(study: Study, method: str) -> str:
    falls = [
        (before - after, epoch)
        for curve in _curves(study, method, _ACCURACY).values()
        for epoch, (before, after) in enumerate(itertools.pairwise(curve), 2)
    ]
    size, epoch = max(falls, default=(0.0, 0))
    return f"the largest is {_per_cent(size)}, in epoch {epoch}"


def _figure_1(studies: Sequence[Study]) -> list[Sequence[str]]:
    """Return what SSA and SGD reach on Fashion-MNIST, in the last epoch."""
    rows: list[Sequence[str]] = []
    for study in studies:
        for method in study.methods if any(m.startswith("ssa") for m in study.methods) else ():
            accuracy, training, loss = (
                fmean(_ends(study, key, method)[0].values())
                for key in (_ACCURACY, _TRAINING, "validation_loss")
            )
            moves = _curves(study, method, "acceptance_rate").values()
            shares = (fmean(curve[at] for curve in moves) for at in (0, -1) if moves)
            texts = (_per_cent(accuracy), _per_cent(training), f"{loss:.4f}")
            rows.append((method, *texts, ", ".join(map(_per_cent, shares))))
    columns = ("method", "validation accuracy", "training accuracy", "validation loss")
    return [(*columns, "moves accepted, first and last epoch"), *rows]


def _per_cent(share: float) -> str:
    return f"{100 * share:.2f} %"


def main(arguments: list[str] | None = None) -> None:
    """Keep the records of a study, or build what is built from records."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command")
    keeping = commands.add_parser("keep", help="pack the finished runs of a study")
    keeping.add_argument("study", type=Path)
    keeping.add_argument("name", nargs="?", help="of the record; by default that of the folder")
    given = parser.parse_args(arguments)
    try:
        if given.command == "keep":
            folder = RECORDS / (given.name or given.study.resolve().name)
            print(f"{folder}: {keep(given.study, folder)} runs")
        else:
            print(f"{len(build())} records; {PAGES}")
    except AnnealtuneError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
