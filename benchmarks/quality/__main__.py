"""The command line: run what is missing, or show what there is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from annealtune.errors import DataError

from . import __doc__ as package_text
from . import oracle, records, table, variants
from .catalogue import NOT_FOR_SGD, TASKS
from .methods import BASES, CONTROLS, METHODS, TUNERS, at_rate, run
from .records import Key
from .task import Sources, Task

RECORDS = Path("docs/results/races.jsonl")
ORACLE = "oracle"


def main(arguments: list[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    try:
        if options.table:
            print(_table(options))
        else:
            _run_missing(options)
    except (DataError, records.RecordsError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; what has ended is recorded, start again to go on")


def _parser() -> argparse.ArgumentParser:
    assert package_text is not None
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.races",
        description=package_text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    methods = [ORACLE, *METHODS]
    add("--tasks", type=_names(TASKS), help="comma-separated; default: all the base can train")
    add("--methods", type=_names(methods), default=methods, help="comma-separated; default: all")
    add("--seeds", type=_seeds, default=[0, 1], help="comma-separated; default: 0,1")
    add("--base", choices=BASES, default="adamw")
    add("--length-factor", type=float, default=1.0, help="factor of all lengths")
    add(
        "--vary",
        type=_variant,
        action="append",
        metavar="NAME=VALUE[,...]",
        help="the tuner with other constants, instead; may be given several times; "
        f"names: {', '.join(variants.NAMES)}",
    )
    add("--data-dir", type=Path, help="default: as for annealtune train")
    add("--text", type=Path, help="of the language models")
    add("--cache", type=Path, default=Sources.cache, help=f"default: {Sources.cache}")
    add("--records", type=Path, default=RECORDS, help=f"default: {RECORDS}")
    add("--table", action="store_true", help="print the table of the records; runs nothing")
    return parser


def _run_missing(options: argparse.Namespace) -> None:
    sources = Sources(options.data_dir, options.text, options.cache)
    known = records.by_key(records.read(options.records))
    for name in options.tasks or _trainable(options.base):
        tasks: dict[int, Task] = {}
        for key in _keys(name, options, known):
            if key in known:
                continue
            if key.seed not in tasks:
                tasks[key.seed] = TASKS[name](sources, key.seed, key.length_factor)
            with variants.applied(key.variant):
                record = {**key._asdict(), **run(tasks[key.seed], key.base, key.method)}
            records.append(options.records, record)
            known[key] = record
            print(_progress(record), flush=True)


def _keys(name: str, options: argparse.Namespace, known: oracle.Records) -> Iterator[Key]:
    """Yield the runs on one task; every run is recorded before the next is asked for."""
    key = Key(name, 0, options.base, "", "", options.length_factor)
    if ORACLE in options.methods:
        while (run := oracle.next_key(known, key)) is not None:
            yield run
    best = oracle.oracle_rate(known, key)
    for seed in options.seeds:
        if best is not None:
            yield key._replace(seed=seed, method=at_rate(best))
        for method, variant in _columns(options):
            # A fixed 3e-3 is one of the grid.
            name = at_rate(3e-3) if method == "held-3e-3" else method
            yield key._replace(seed=seed, method=name, variant=variant)


def _columns(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return methods and variants; only what tunes has variants."""
    if not options.vary:
        # A rate that suits Adam says nothing about SGD.
        controls = [m for m in CONTROLS if options.base == "adamw" or m != "held-3e-3"]
        return [(m, "") for m in (*TUNERS, *controls) if m in options.methods]
    return [(m, variant) for variant in options.vary for m in TUNERS if m in options.methods]


def _table(options: argparse.Namespace) -> str:
    known = records.by_key(records.read(options.records))
    return table.markdown(
        known,
        options.tasks or _trainable(options.base),
        options.seeds,
        _columns(options),
        base=options.base,
        length_factor=options.length_factor,
    )


def _trainable(base: str) -> list[str]:
    return [name for name in TASKS if base != "sgd" or name not in NOT_FOR_SGD]


def _progress(record: dict[str, Any]) -> str:
    test = "broken" if record["test"] is None else f"test {record['test']:.4g}"
    parts = [record["task"], f"seed {record['seed']}", record["method"], record["variant"]]
    return (
        f"{', '.join(part for part in parts if part)}: {test}, rate {record['rate']:.3g}, "
        f"cost {record['cost']} of {record['budget']}, {record['extra_steps']} of them extra, "
        f"{record['seconds']} s"
    )


def _names(known: Iterable[str]) -> Any:
    def parse(text: str) -> list[str]:
        names = list(dict.fromkeys(text.split(",")))
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"unknown {', '.join(unknown)}; there are {', '.join(known)}"
            )
        return names

    return parse


def _seeds(text: str) -> list[int]:
    if not all(piece.isdecimal() for piece in text.split(",")):
        raise argparse.ArgumentTypeError(f"must be whole numbers, got {text!r}")
    return list(dict.fromkeys(map(int, text.split(","))))


def _variant(text: str) -> str:
    try:
        variants.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


if __name__ == "__main__":
    main()
