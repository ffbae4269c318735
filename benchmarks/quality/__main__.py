"""The command line: run what is missing, then write the page."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import command, records
from benchmarks.records import Key

from . import __doc__ as package_text
from . import page, plan, variants
from .bases import BASES
from .methods import METHODS, SCHEDULES, run
from .tasks.catalogue import OPEN, SEALED, TASKS
from .version_0_2 import OldVersionError

HALVES = {"open": OPEN, "sealed": SEALED}


def main(arguments: list[str] | None = None) -> None:
    parser = _parser()
    options = parser.parse_args(arguments)
    if others := [task for task in options.tasks or () if task not in HALVES[options.half]]:
        parser.error(f"{', '.join(others)} of --tasks must be in --half {options.half}")
    path = options.results / "quality.jsonl"
    with command.mistakes_told(OldVersionError, extras="train,bench"):
        command.run_missing(options, path, lambda: _missing(options), run, _progress)
        print(f"page: {build(options.results)}")


def _parser() -> argparse.ArgumentParser:
    parser = command.parser("benchmarks.quality", package_text, "quality")
    add = parser.add_argument
    add("--half", choices=HALVES, default="open", help="of the tasks; default: open")
    add("--tasks", type=command.names(TASKS), help="of that half, comma-separated; default: all")
    every = command.names([*METHODS, *SCHEDULES])
    add("--methods", type=every, help="comma-separated; default: all")
    add("--seeds", type=command.seeds, help="comma-separated; default: all")
    add("--bases", type=command.names(BASES), help="comma-separated; default: all")
    add("--length-factor", type=float, help="1 or 10; default: both")
    add(
        "--vary",
        type=_variant,
        metavar="NAME=VALUE[,...]",
        help="run the tuner with other constants or rules, and nothing else; "
        f"names: {', '.join(variants.NAMES)}",
    )
    return parser


def build(folder: Path) -> Path:
    """Write the page of a folder's records and the tables of its text; return the page's path."""
    known = records.read(folder / "quality.jsonl")
    again = [records.read(path) for path in sorted(folder.glob("quality-again-*.jsonl"))]
    shown = folder / "pages" / "quality.html"
    shown.parent.mkdir(parents=True, exist_ok=True)
    shown.write_text(page.render(known, again), encoding="utf-8")
    command.fill(folder / "quality.md", page.markdown(known, again))
    return shown


def _missing(options: argparse.Namespace) -> list[Key]:
    known = records.read(options.results / "quality.jsonl")
    if not options.vary:
        return plan.missing(known, _filter(options))
    keys = (key._replace(variant=options.vary) for key in plan.tuned(known))
    return [key for key in filter(_filter(options), keys) if key not in known]


def _filter(options: argparse.Namespace) -> Callable[[Key], bool]:
    tasks = options.tasks or HALVES[options.half]

    def wanted(key: Key) -> bool:
        schedule, _, _ = key.method.partition("-at-")
        return (
            key.task in tasks
            and (options.methods is None or {schedule, key.method} & set(options.methods) != set())
            and (options.seeds is None or key.seed in options.seeds)
            and (options.bases is None or key.base in options.bases)
            and (options.length_factor in (None, key.length_factor))
        )

    return wanted


def _progress(record: dict[str, Any]) -> str:
    key = records.key_of(record)
    name = ", ".join(
        filter(None, (key.task, f"seed {key.seed}", key.base, key.method, key.variant))
    )
    longer = "" if key.length_factor == 1 else f", {key.length_factor:g} times the length"
    if "failure" in record:
        return f"{name}{longer}: failed, {record['failure']}"
    test = "broken" if record["test"] is None else f"test {record['test']:.4g}"
    rate = "" if record["rate"] is None else f", rate {record['rate']:.3g}"
    spent = f"cost {record['cost']:g} of {record['budget']}"
    return f"{name}{longer}: {test}{rate}, {spent}, {record['seconds']} s"


def _variant(text: str) -> str:
    try:
        variants.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


if __name__ == "__main__":
    main()
