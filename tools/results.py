"""Records of runs that are kept in the repository, and everything that is built from them.

    python -m tools.results keep STUDY... [--name NAME] [--cpu NAME]
    python -m tools.results

The first command adds the finished runs of studies, whose other runs may go on, to the record
``docs/results/records/NAME``. A record is one experiment with as many methods and seeds as there
are; its runs may come one by one, from several commits and machines. ``study.toml`` lists them,
``runs.tar.xz`` has of every run its config with versions, commit, CPU and threads,
``metrics.jsonl``, ``moves.jsonl`` and result. Where the study and the data lay on a disk is left
out. The second command builds from all records, without training, the pages in
``docs/results/pages``, which are not committed, and the tables between the marks of
``docs/results/paper.md``, which are.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import itertools
import json
import re
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import tomli_w

from annealtune.errors import AnnealtuneError, ConfigError
from annealtune.studies.records import (
    RunRecord,
    Study,
    read_facts,
    read_study,
    run_path,
    sealed_toml,
)
from annealtune.studies.report.joint_table import PAPER, joint_table
from annealtune.studies.report.study_page import write_overview
from annealtune.studies.report.tables import Table
from annealtune.studies.reproduction import net_of
from annealtune.training.storage import flat

RESULTS = Path(__file__).parents[1] / "docs" / "results"
RECORDS, PAGES, PAPER_PAGE = RESULTS / "records", RESULTS / "pages", RESULTS / "paper.md"
STUDY, PACKED = "study.toml", "runs.tar.xz"
# What is kept of a run: no weights, no checkpoints, no log, and so no seal over all files.
_KEPT = ("best.json", "config.toml", "metrics.jsonl", "moves.jsonl", "result.json", "task.json")
_BUILT = re.compile(r"(<!-- built: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
# What tells how a run was made, besides its experiment.
ORIGIN = ("annealtune", "commit", "torch", "python", "machine", "cpu", "threads")
# By the name of its directory, the files of a run.
_Runs = dict[str, dict[str, bytes]]


# --- Keeping records ---


def keep(studies: Sequence[Path], folder: Path, cpu: str | None = None) -> tuple[int, int]:
    """Add the finished runs of studies to a record; the same runs give the same bytes.

    Args:
        studies: their directories, which are only read. Other runs may go on meanwhile.
        folder: where the record is, or is made. What is kept in it stays as it is.
        cpu: the machine of those runs whose config names no CPU.

    Returns:
        How many runs were added, and how many there are now.

    Raises:
        ConfigError: if there is no study, no run has finished, a study is of another experiment
            than the record, or a run that is kept comes again with other numbers. Nothing is
            written then.
    """
    facts: dict[str, Any] | None = None
    runs: _Runs = {}
    if (folder / PACKED).exists():
        facts, runs = read_facts(folder), _unpacked(folder)
    before = len(runs)
    for path in studies:
        study = read_study(path)
        finished = [run for run in study.runs if run.status == "finished"]
        if not finished:
            raise ConfigError(f"{path}: must have a finished run to be kept, has none yet")
        found = tomllib.loads(_without_places((path / STUDY).read_bytes(), path).decode())
        facts = found if facts is None else _merged(facts, found, folder)
        for run in finished:
            _add(runs, run.path.name, _files_of(run.path, path, cpu), folder)
    assert facts is not None
    folder.mkdir(parents=True, exist_ok=True)
    _pack(runs, folder / PACKED)
    (folder / STUDY).write_bytes(sealed_toml(_described(facts, runs, folder.name)))
    return len(runs) - before, len(runs)


def _files_of(run: Path, study: Path, cpu: str | None) -> dict[str, bytes]:
    """Return the files of a run that are kept."""
    present = (run / name for name in _KEPT if (run / name).exists())
    files = {file.name: _without_places(file.read_bytes(), study) for file in present}
    config = tomllib.loads(files["config.toml"].decode())
    if cpu is not None and "cpu" not in config["environment"]:
        config["environment"]["cpu"] = cpu
        files["config.toml"] = tomli_w.dumps(config).encode()
    return files


def _without_places(content: bytes, study: Path) -> bytes:
    """Return a file without the directories that the study and its data lay in."""
    content = content.replace(f"{study.resolve().parent}/".encode(), b"")
    content = re.sub(rb'(?<=data_dir = ").*(?="$)', b"data", content, flags=re.MULTILINE)
    return re.sub(rb"(?<=--data-dir )\S+", b"data", content)


def _add(runs: _Runs, name: str, files: dict[str, bytes], folder: Path) -> None:
    """Add a run to those that are kept; one that is kept must have the same numbers."""
    kept = runs.setdefault(name, files)
    differing = [
        file
        for file in sorted(kept.keys() | files.keys())
        if _numbers(file, kept.get(file)) != _numbers(file, files.get(file))
    ]
    if differing:
        raise ConfigError(
            f"{folder}: the run {name} is kept and must come again with the same numbers, got "
            f"others in {', '.join(differing)}; keep it under another name"
        )


def _numbers(file: str, content: bytes | None) -> Any:
    """Return what of a file must be the same whenever and wherever a run is made again."""
    if content is None or not file.startswith(("metrics", "moves", "result")):
        return None
    lines = [content] if file.endswith(".json") else content.splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if not key.endswith("_seconds")}
        for line in lines
    ]


def _merged(kept: dict[str, Any], more: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the plan of a record with the methods and seeds of one more study."""
    methods = {each["label"]: each for each in kept["methods"]}
    ours, theirs = ({**each["experiment"], "vary": each["vary"]} for each in (kept, more))
    pairs = [("", ours, theirs)]
    for each in more["methods"]:
        old = methods.setdefault(each["label"], each)
        pairs.append((f"{each['label']}: ", old["config"], each["config"]))
    for where, ours, theirs in pairs:
        old_values, new_values = flat(ours), flat(theirs)
        # An option that one of them does not have is of another version.
        for key in old_values.keys() & new_values.keys():
            if old_values[key] != new_values[key]:
                raise ConfigError(
                    f"{folder}: {where}{key} must be {old_values[key]!r} as in the record, got "
                    f"{new_values[key]!r}; keep the study under another name"
                )
    seeds = sorted({*kept["seeds"], *more["seeds"]})
    return {**kept, "methods": list(methods.values()), "seeds": seeds}


def _described(facts: Mapping[str, Any], runs: _Runs, name: str) -> dict[str, Any]:
    """Return the plan of the runs alone, with a command that makes them, and how they were made."""
    labels, seeds = [each["label"] for each in facts["methods"]], facts["seeds"]
    has = {(m, s) for m in labels for s in seeds if run_path(Path(), m, s).name in runs}
    methods = [each for each in facts["methods"] if each["label"] in {m for m, _ in has}]
    # The same order, and so the same colours, whichever run came first.
    order = [BASELINE, *COLUMNS.values()]
    methods.sort(key=lambda e: order.index(e["label"]) if e["label"] in order else len(order))
    seeds = sorted({seed for _, seed in has})
    told = {
        "methods": ",".join(each["label"] for each in methods),
        "seeds": ",".join(map(str, seeds)),
        "out": name,
    }
    command = facts["command"]
    for option, value in told.items():
        command = re.sub(rf"(?<=--{option} )\S+", value, command)
    configs = (tomllib.loads(files["config.toml"].decode()) for _, files in sorted(runs.items()))
    made = [config["environment"] for config in configs]
    environment = {
        key: ", ".join(dict.fromkeys(str(each[key]) for each in made if key in each))
        for key in ORIGIN
        if any(key in each for each in made)
    }
    changed = {"name": name, "command": command, "environment": environment}
    return {**facts, **changed, "methods": methods, "seeds": seeds}


def _pack(runs: _Runs, packed: Path) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz", preset=9) as archive:
        for name, files in sorted(runs.items()):
            for file, text in sorted(files.items()):
                entry = tarfile.TarInfo(f"runs/{name}/{file}")
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text))
    packed.write_bytes(content.getvalue())


def _unpacked(folder: Path) -> _Runs:
    runs: _Runs = {}
    with tarfile.open(folder / PACKED) as archive:
        for entry in archive:
            _, name, file = entry.name.split("/")
            content = archive.extractfile(entry)
            assert content is not None
            runs.setdefault(name, {})[file] = content.read()
    return runs


def read_kept(folder: Path) -> Study:
    """Read the runs of a record as one study: not every method has every seed."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, folder.name)
        path.mkdir()
        (path / STUDY).write_bytes((folder / STUDY).read_bytes())
        with tarfile.open(folder / PACKED) as archive:
            archive.extractall(path, filter="data")
        study = read_study(path, large=False)
    runs = tuple(run for run in study.runs if run.status == "finished")
    return dataclasses.replace(study, runs=runs)


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
    """Return which runs there are, those made in the same way together."""
    rows: list[Sequence[str]] = []
    for study in studies:
        groups: dict[tuple[str, ...], list[RunRecord]] = {}
        for run in study.runs:
            made = run.config["environment"]
            origin = tuple(str(made.get(key, "not recorded")) for key in ORIGIN)
            groups.setdefault(origin, []).append(run)
        for (version, commit, *rest), runs in groups.items():
            texts = []
            for method in dict.fromkeys(run.method for run in runs):
                seeds = ", ".join(str(run.seed) for run in runs if run.method == method)
                texts.append(f"{method} {seeds}")
            model = str(study.experiment.get("model"))
            made_with = (f"{version}, {commit[:12]}", *rest)
            rows.append((f"`{study.name}`", model, "; ".join(texts), *made_with))
    titles = ("record", "net", "methods and seeds", "annealtune, commit", *ORIGIN[2:])
    return [titles, *rows] if rows else []


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
    """Keep the records of runs, or build what is built from records."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command")
    keeping = commands.add_parser("keep", help="add the finished runs of studies to a record")
    keeping.add_argument("studies", type=Path, nargs="+", metavar="STUDY")
    keeping.add_argument("--name", help="of the record; by default that of the only study")
    keeping.add_argument("--cpu", help="of the machine, where the runs do not name it themselves")
    given = parser.parse_args(arguments)
    try:
        if given.command == "keep":
            if given.name is None and len(given.studies) > 1:
                parser.error("--name must be given with several studies, got none")
            folder = RECORDS / (given.name or given.studies[0].resolve().name)
            added, known = keep(given.studies, folder, given.cpu)
            print(f"{folder}: {added} runs added, {known} in all")
        else:
            print(f"{len(build())} records; {PAGES}")
    except AnnealtuneError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
