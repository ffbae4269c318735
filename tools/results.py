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
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

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
from annealtune.studies.report.joint_table import OF_PAPER, PAPER, joint_table
from annealtune.studies.report.study_page import write_overview
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
    order = [BASELINE, *METHODS.values()]
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
        write_overview(studies, pages)
    text = paper.read_text(encoding="utf-8")
    filled = fill(text, studies)
    if filled != text:
        paper.write_text(filled, encoding="utf-8")
    return studies


def fill(text: str, studies: Sequence[Study]) -> str:
    """Return a page with the tables between its marks built from studies."""
    tables: dict[str, Callable[[], list[Sequence[str]]]] = {
        "table-1": lambda: _table_1(studies, "last epoch", is_paper=False),
        "table-1-best": lambda: _table_1(studies, "best epoch", is_paper=False),
        "table-1-paper": lambda: _table_1(studies, "last epoch", is_paper=True),
        **{name: partial(_claim, each, studies) for name, each in CLAIMS.items()},
        "figure-1": lambda: _figure_1(studies),
        "records": lambda: _records(studies),
    }

    def built(match: re.Match[str]) -> str:
        titles, *rows = tables[match[2]]() or [()]
        lines = [titles, ["---"] * len(titles), *rows]
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        return match[1] + (table if rows else "No records yet.\n") + match[3]

    return _BUILT.sub(built, text)


def _table_1(studies: Sequence[Study], epoch: str, *, is_paper: bool) -> list[Sequence[str]]:
    """Return Table 1 with the numbers of one epoch: of the paper, or of our runs.

    Below the last epochs of our runs stand mean and best of the paper too.
    """
    table = joint_table(studies)
    if table is None:
        return []
    titles = [(title, column) for title, width in table.groups for column in range(width)]
    wanted = [place for place, (title, _) in enumerate(titles) if not title or epoch in title]
    # Best epochs are ours alone.
    both = not is_paper and epoch == "last epoch"
    rows = [row for row in table.rows if row[0].text.endswith(OF_PAPER) is is_paper]
    rows += [r for r in table.footer if both or r[0].text.endswith(OF_PAPER) is is_paper]
    nets = [title.partition(",")[0] for title, _ in titles]
    if is_paper:
        nets = [net.partition("-w")[0] for net in nets]
    named = [f"{nets[place]}: {table.columns[place]}" for place in wanted[2:]]
    lines: list[Sequence[str]] = [(*table.columns[:2], *named)]
    for row in rows:
        cells = [row[place] for place in wanted]
        lines.append([f"**{cell.text}**" if cell.is_best else cell.text for cell in cells])
    return lines


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
            named = zip(ORIGIN[2:], rest, strict=True)
            made_with = ", ".join(f"{key} {value}" for key, value in named)
            program = f"{version}, {commit[:12]}"
            rows.append((f"`{study.name}`", "; ".join(texts), program, made_with))
    return [("record", "methods and seeds", "annealtune, commit", "made with"), *rows]


# --- The paper's claims, point by point ---

BASELINE, ALWAYS = "scheduled-sgd", "random-rate"
METHODS = {
    "the text's method": "sgd-sa-paper-text",
    "the script's method": "sgd-sa-paper-code",
    "always accept": ALWAYS,
    "self-tuned over SGD": "self-tuned-sgd",
    "self-tuned over AdamW": "self-tuned",
}
NO_RECORD = "no record yet"
_LOSS, _ACCURACY, _TRAINING = "validation_paper_loss", "validation_accuracy", "train_eval_accuracy"
# The first and the last epochs that are looked at together.
_SOME = 10
# By seed, the numbers of a run's epochs.
_Curves = dict[int, list[float]]


class Claim(NamedTuple):
    """What is measured for one claim.

    Attributes:
        ours: the text for a method of a study.
        theirs: the text for the paper's own numbers of its two methods by a key; None: it has none.
        key: which numbers those are.
        is_of_steps: whether it is about the accept test of steps, which not all methods have.
    """

    ours: Callable[[Study, str], str]
    theirs: Callable[[_Curves, _Curves], str] | None = None
    key: str = _ACCURACY
    is_of_steps: bool = False


def _claim(claim: Claim, studies: Sequence[Study]) -> list[Sequence[str]]:
    """Return what the paper has for a claim on both nets, and what each method gives."""
    found = {net: next((s for s in studies if net_of(s.name) == net), None) for net in PAPER}
    titles = [
        net if study is None else f"{study.experiment.get('model', net)}"
        for net, study in found.items()
    ]
    rows: list[Sequence[str]] = [("", *titles)]
    if claim.theirs is not None:
        printed = (
            [dict(enumerate([v] for v in PAPER[net][m][claim.key == _ACCURACY])) for m in _THEIRS]
            for net in found
        )
        rows.append(("the paper", *(claim.theirs(*each) for each in printed)))
    for name, method in METHODS.items():
        if claim.is_of_steps and method.startswith("self-tuned"):
            continue
        cells = [
            NO_RECORD if study is None or not _curves(study, method, _LOSS)
            else claim.ours(study, method)
            for study in found.values()
        ]  # fmt: skip
        rows.append((name, *cells))
    return rows


_THEIRS = ("sgd-sa", BASELINE)


def _curves(study: Study, method: str, key: str) -> _Curves:
    """Return the numbers of every epoch of every run of a method, by seed."""
    curves = {run.seed: [line.get(key) for line in run.metrics] for run in study.of(method)}
    known = {seed: [v for v in curve if v is not None] for seed, curve in curves.items()}
    return {seed: curve for seed, curve in known.items() if curve}


def _compared(
    key: str, text: Callable[[_Curves, _Curves], str], with_: str = BASELINE
) -> Callable[[Study, str], str]:
    """Return what compares a method with another one, on the seeds that both have."""
    return lambda study, method: text(_curves(study, method, key), _curves(study, with_, key))


def _common(*both: _Curves) -> list[list[list[float]]]:
    """Return the curves of the common seeds, in their order."""
    seeds = sorted(set.intersection(*(set(each) for each in both)))
    return [[each[seed] for seed in seeds] for each in both]


def _won(ours: _Curves, base: _Curves, *, is_loss: bool = False) -> str:
    """Return on how many of the common seeds ours ends better, and the means over them."""
    pairs = [(a[-1], b[-1]) for a, b in zip(*_common(ours, base), strict=True)]
    if not pairs:
        return NO_RECORD
    won = sum(a < b if is_loss else a > b for a, b in pairs)
    means = [fmean(each) for each in zip(*pairs, strict=True)]
    texts = [f"{mean:.6f}" if is_loss else _per_cent(mean) for mean in means]
    return f"{won} of {len(pairs)} seeds; {texts[0]} against {texts[1]}"


def _ended(summarise: Callable[[list[float]], float]) -> Callable[[_Curves, _Curves], str]:
    """Return what compares a summary of the ends of the common seeds."""

    def text(ours: _Curves, base: _Curves) -> str:
        both = _common(ours, base)
        if len(both[0]) < (2 if summarise is stdev else 1):
            return "too few seeds"
        return " against ".join(_per_cent(summarise([c[-1] for c in each])) for each in both)

    return text


def _dropped(ours: _Curves, base: _Curves) -> str:
    """Return the largest drop from an epoch to the next one, and when it was."""
    texts = []
    for each in _common(ours, base):
        falls = [
            (before - after, epoch)
            for curve in each
            for epoch, (before, after) in enumerate(itertools.pairwise(curve), 2)
        ]
        size, epoch = max(falls, default=(0.0, 0))
        texts.append(f"{100 * size:.2f} points in epoch {epoch}")
    return " against ".join(texts)


def _probability(study: Study, method: str) -> str:
    curves = list(_curves(study, method, "accept_probability").values())
    middle = len(curves[0]) // 2
    first, half, last = (fmean(curve[at] for curve in curves) for at in (0, middle - 1, -1))
    return f"{first:.3f} in the first epoch, {half:.3f} at half, {last:.3f} in the last"


def _by_rate(study: Study, method: str) -> str:
    """Return which share of small and of large rates was accepted, at first and in the end."""
    texts = []
    for title, is_meant in (("0.5 and more", _is_large), ("0.1 and less", _is_small)):
        shares = []
        for part in (slice(None, _SOME), slice(-_SOME, None)):
            moves = [
                move
                for run in study.of(method)
                for line in run.moves[part]
                for move in line["settings"]
                if is_meant(move["setting"]["lr"])
            ]
            tried, accepted = (sum(move[key] for move in moves) for key in ("tried", "accepted"))
            shares.append(_per_cent(accepted / tried) if tried else "never tried")
        texts.append(f"{title}: {shares[0]}, then {shares[1]}")
    return "; ".join(texts)


def _is_large(rate: float) -> bool:
    return rate >= 0.5


def _is_small(rate: float) -> bool:
    return rate <= 0.1


def _refused(study: Study, method: str) -> str:
    """Return what the accept test refused, and where that led compared with no such test."""
    curves = _curves(study, method, "acceptance_rate").values()
    shares = [1 - fmean(curve) for curve in curves]
    late = [1 - fmean(curve[len(curve) // 2 :]) for curve in curves]
    text = f"{_per_cent(fmean(shares))} of all moves refused"
    text += f" ({_per_cent(fmean(late))} in the second half)"
    if method == ALWAYS:
        return text
    return f"{text}; more accurate on {_compared(_ACCURACY, _won, ALWAYS)(study, method)}"


CLAIMS = {
    "loss": Claim(
        _compared(_LOSS, partial(_won, is_loss=True)), partial(_won, is_loss=True), _LOSS
    ),
    "accuracy": Claim(_compared(_ACCURACY, _won), _won),
    "best-seed": Claim(_compared(_ACCURACY, _ended(max)), _ended(max)),
    "probability": Claim(_probability, is_of_steps=True),
    "large-rates": Claim(_by_rate, is_of_steps=True),
    "training": Claim(_compared(_TRAINING, _ended(fmean))),
    "drops": Claim(_compared(_ACCURACY, _dropped)),
    "seed": Claim(_compared(_ACCURACY, _ended(stdev)), _ended(stdev)),
    "accept-test": Claim(_refused, is_of_steps=True),
}


def _figure_1(studies: Sequence[Study]) -> list[Sequence[str]]:
    """Return what SSA and SGD reach on Fashion-MNIST, in the last epoch."""
    rows: list[Sequence[str]] = []
    for study in studies:
        for method in study.methods if any(m.startswith("ssa") for m in study.methods) else ():
            accuracy, training, loss = (
                fmean(curve[-1] for curve in _curves(study, method, key).values())
                for key in (_ACCURACY, _TRAINING, "validation_loss")
            )
            moves = _curves(study, method, "acceptance_rate").values()
            shares = [_per_cent(fmean(curve[at] for curve in moves)) for at in (0, -1) if moves]
            texts = (_per_cent(accuracy), _per_cent(training), f"{loss:.4f}")
            rows.append((method, str(len(study.of(method))), *texts, ", ".join(shares)))
    columns = ("method", "seeds", "validation accuracy", "training accuracy", "validation loss")
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
