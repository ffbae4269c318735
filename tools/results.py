"""Records of runs that are kept in the repository, and everything that is built from them.

    python -m tools.results keep STUDY... [--name NAME]
    python -m tools.results

The first command adds the finished runs of studies, whose other runs may go on, to the record
``docs/results/records/NAME``. A record is one experiment with as many methods and seeds as there
are; its runs may come one by one, from several commits and machines. ``study.toml`` lists them,
``runs.tar.xz`` has of every run its config with versions, commit, CPU and threads,
``metrics.jsonl``, ``moves.jsonl`` and result. Where the study and the data lay on a disk is left
out. The second command builds from all records, without training, the pages in
``docs/results/pages``, which are not committed, and the tables between the marks of
``docs/results/paper.md``, which are; and what ``benchmarks`` has records for.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import re
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from annealtune.errors import AnnealtuneError, ConfigError
from annealtune.studies.records import (
    Study,
    read_facts,
    read_study,
    run_path,
    sealed_toml,
    shared_options,
)
from annealtune.studies.report.study_page import write_overview
from annealtune.training.config import flat
from benchmarks.quality import __main__ as quality
from benchmarks.scripts import __main__ as scripts
from tools.paper_tables import BASELINE, METHODS, ORIGIN, fill

RESULTS = Path(__file__).parents[1] / "docs" / "results"
RECORDS, PAGES, PAPER_PAGE = RESULTS / "records", RESULTS / "pages", RESULTS / "paper.md"
STUDY, PACKED = "study.toml", "runs.tar.xz"
# What is kept of a run: no weights, no checkpoints, no log, and so no seal over all files.
_KEPT = ("best.json", "config.toml", "metrics.jsonl", "moves.jsonl", "result.json", "task.json")
# By the name of its directory, the files of a run.
_Runs = dict[str, dict[str, bytes]]


# --- Keeping records ---


def keep(studies: Sequence[Path], folder: Path) -> tuple[int, int]:
    """Add the finished runs of studies to a record; the same runs give the same bytes.

    Args:
        studies: their directories, which are only read. Other runs may go on meanwhile.
        folder: where the record is, or is made. What is kept in it stays as it is.

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
    done = {path: [r for r in read_study(path).runs if r.status == "finished"] for path in studies}
    if not any(done.values()):
        names = ", ".join(map(str, studies))
        raise ConfigError(f"{names}: must have a finished run to be kept, has none yet")
    for path, finished in done.items():
        if not finished:
            continue
        found = tomllib.loads(_without_places((path / STUDY).read_bytes(), path).decode())
        facts = found if facts is None else _merged(facts, found, folder)
        for run in finished:
            _add(runs, run.path.name, _files_of(run.path, path), folder)
    assert facts is not None
    folder.mkdir(parents=True, exist_ok=True)
    _pack(runs, folder / PACKED)
    (folder / STUDY).write_bytes(sealed_toml(_described(facts, runs, folder.name)))
    return len(runs) - before, len(runs)


def _files_of(run: Path, study: Path) -> dict[str, bytes]:
    """Return the files of a run that are kept."""
    present = (run / name for name in _KEPT if (run / name).exists())
    return {file.name: _without_places(file.read_bytes(), study) for file in present}


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
    pairs = [("", _task(kept), _task(more))]
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


def _task(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what all methods of a plan have in common, but for the options of a method."""
    shared = shared_options(each["config"] for each in facts["methods"])
    common = {key: value for key, value in shared.items() if "." not in key and key != "method"}
    return {**common, "vary": facts["vary"]}


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
        key: "; ".join(dict.fromkeys(str(each[key]) for each in made if key in each))
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
        study = read_study(path)
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


def build_all() -> list[Study]:
    """Build everything that the repository has records for; return the kept studies."""
    quality.build(RESULTS)
    scripts.build(RESULTS)
    return build()


def main(arguments: list[str] | None = None) -> None:
    """Keep the records of runs, or build what is built from records."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command")
    keeping = commands.add_parser("keep", help="add the finished runs of studies to a record")
    keeping.add_argument("studies", type=Path, nargs="+", metavar="STUDY")
    keeping.add_argument("--name", help="of the record; by default that of the only study")
    given = parser.parse_args(arguments)
    try:
        if given.command == "keep":
            if given.name is None and len(given.studies) > 1:
                parser.error("--name must be given with several studies, got none")
            folder = RECORDS / (given.name or given.studies[0].resolve().name)
            added, known = keep(given.studies, folder)
            print(f"{folder}: {added} runs added, {known} in all")
        else:
            print(f"{len(build_all())} records; {PAGES}")
    except AnnealtuneError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
