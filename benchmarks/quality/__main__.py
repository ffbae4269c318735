"""The command line: run what is missing, then write the page."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from annealtune.errors import DataError

from . import __doc__ as package_text
from . import page, plan, records, variants
from .bases import BASES
from .methods import METHODS, SCHEDULES, run
from .records import Key
from .tasks.catalogue import OPEN, SEALED, TASKS
from .tasks.task import Sources
from .version_0_2 import OldVersionError

RESULTS = Path("docs/results")
# In the text beside the page, the tables stand between these.
FIRST, LAST = "<!-- tables -->\n", "<!-- end of tables -->"
HALVES = {"open": OPEN, "sealed": SEALED}


def main(arguments: list[str] | None = None) -> None:
    parser = _parser()
    options = parser.parse_args(arguments)
    if others := [task for task in options.tasks or () if task not in HALVES[options.half]]:
        parser.error(f"{', '.join(others)} of --tasks must be in --half {options.half}")
    try:
        if not options.page_only:
            _run_missing(options)
        if not options.vary:
            _show(records.read(options.results / "quality.jsonl"), options.results)
    except (DataError, records.RecordsError, OldVersionError) as error:
        sys.exit(f"error: {error}")
    except ModuleNotFoundError as error:
        sys.exit(f"error: {error}; pip install '.[train,bench]' brings the peers")
    except BrokenProcessPool:
        sys.exit("error: a run was killed, for lack of memory perhaps; start again to go on")
    except KeyboardInterrupt:
        sys.exit("interrupted; what has ended is recorded, start again to go on")


def _parser() -> argparse.ArgumentParser:
    assert package_text is not None
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality",
        description=package_text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--half", choices=HALVES, default="open", help="of the tasks; default: open")
    add("--tasks", type=_names(TASKS), help="of that half, comma-separated; default: all")
    add("--methods", type=_names([*METHODS, *SCHEDULES]), help="comma-separated; default: all")
    add("--seeds", type=_seeds, help="comma-separated; default: all")
    add("--bases", type=_names(BASES), help="comma-separated; default: all")
    add("--length-factor", type=float, help="1 or 10; default: both")
    add(
        "--vary",
        type=_variant,
        metavar="NAME=VALUE[,...]",
        help="the tuner with other constants or rules, and nothing else; no page; "
        f"names: {', '.join(variants.NAMES)}",
    )
    add("--jobs", type=int, default=1, help="runs at a time, one thread each; default: 1")
    add("--data-dir", type=Path, help="default: as for annealtune train")
    add("--text", type=Path, help="of the language models")
    add("--cache", type=Path, default=Sources.cache, help=f"default: {Sources.cache}")
    add(
        "--results",
        type=Path,
        default=RESULTS,
        help="folder of quality.jsonl (every run), quality.html (the page) and quality.md, whose "
        f"tables are brought up to date if it is there; default: {RESULTS}",
    )
    add("--page-only", action="store_true", help="run nothing")
    return parser


def _run_missing(options: argparse.Namespace) -> None:
    """Make the runs that have no record; again and again, as a grid tells which come next."""
    sources = Sources(options.data_dir, options.text, options.cache)
    os.environ["OMP_NUM_THREADS"] = "1"  # read when a process imports torch
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        while keys := _missing(options):
            pending = [pool.submit(run, key, sources) for key in keys]
            try:
                for number, ended in enumerate(as_completed(pending), start=1):
                    record = ended.result()
                    records.append(options.results / "quality.jsonl", record)
                    print(f"{number} of {len(keys)}: {_progress(record)}", flush=True)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _show(known: records.Records, folder: Path) -> None:
    """Write the page, and the tables of the text beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = folder / "quality.html"
    shown.write_text(page.render(known), encoding="utf-8")
    print(f"page: {shown}")
    text = folder / "quality.md"
    if text.exists():
        before, mark, rest = text.read_text(encoding="utf-8").partition(FIRST)
        _, end, after = rest.partition(LAST)
        if mark and end:
            tables = page.markdown(known)
            text.write_text(f"{before}{FIRST}\n{tables}\n{LAST}{after}", encoding="utf-8")


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
