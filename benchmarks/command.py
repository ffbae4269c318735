"""What the command lines of `benchmarks.quality` and `benchmarks.scripts` share."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from annealtune.errors import DataError

from . import records
from .quality.tasks.task import Sources

RESULTS = Path("docs/results")
# In the text that goes with the records, the tables stand between these.
FIRST, LAST = "<!-- tables -->\n", "<!-- end of tables -->"


def parser(package: str, text: str | None, name: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has.

    Args:
        package: what ``python -m`` is given.
        text: what the help says first.
        name: of the files with results.
    """
    made = argparse.ArgumentParser(
        prog=f"python -m {package}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("--jobs", type=int, default=1, help="runs at a time, one thread each; default: 1")
    add("--data-dir", type=Path, help="default: as for annealtune train")
    add("--text", type=Path, help="of the language models")
    add("--cache", type=Path, default=Sources.cache, help=f"default: {Sources.cache}")
    add(
        "--results",
        type=Path,
        default=RESULTS,
        help=f"folder of {name}.jsonl (every run) and of what is made of it: {name}.md, whose "
        f"tables are brought up to date if it is there; default: {RESULTS}",
    )
    return made


def names(known: Iterable[str]) -> Any:
    """Return what reads names that are separated by commas."""

    def parse(text: str) -> list[str]:
        found = list(dict.fromkeys(text.split(",")))
        unknown = [name for name in found if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"unknown {', '.join(unknown)}; there are {', '.join(known)}"
            )
        return found

    return parse


def seeds(text: str) -> list[int]:
    """Read seeds that are separated by commas."""
    if not all(piece.isdecimal() for piece in text.split(",")):
        raise argparse.ArgumentTypeError(f"must be whole numbers, got {text!r}")
    return list(dict.fromkeys(map(int, text.split(","))))


@contextlib.contextmanager
def mistakes_told(*further: type[Exception], extras: str) -> Iterator[None]:
    """Leave the program with one line where somebody has to do something and start again.

    Args:
        further: errors of that kind.
        extras: of this package, that bring what may be missing.
    """
    try:
        yield
    except (DataError, records.RecordsError, *further) as error:
        sys.exit(f"error: {error}")
    except ModuleNotFoundError as error:
        sys.exit(f"error: {error}; pip install '.[{extras}]' brings it")
    except BrokenProcessPool:
        sys.exit("error: a run was killed, for lack of memory perhaps; start again to go on")
    except KeyboardInterrupt:
        sys.exit("interrupted; what has ended is recorded, start again to go on")


def run_missing(
    options: argparse.Namespace,
    path: Path,
    missing: Callable[[], Sequence[Any]],
    run: Callable[[Any, Sources], records.Record],
    told: Callable[[records.Record], str],
) -> None:
    """Make the runs that have no record; again and again, as results tell which come next.

    Args:
        options: of the command line.
        path: file of the records.
        missing: returns the keys of the runs.
        run: makes one, in a process of its own.
        told: says in a line what came of it.
    """
    sources = Sources(options.data_dir, options.text, options.cache)
    os.environ["OMP_NUM_THREADS"] = "1"  # read when a process imports torch
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        while keys := missing():
            pending = [pool.submit(run, key, sources) for key in keys]
            try:
                for number, ended in enumerate(as_completed(pending), start=1):
                    record = ended.result()
                    records.append(path, record)
                    print(f"{number} of {len(keys)}: {told(record)}", flush=True)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def fill(path: Path, tables: str) -> None:
    """Put tables between the marks of a text, if there is one."""
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8")
    before, mark, rest = text.partition(FIRST)
    _, end, after = rest.partition(LAST)
    filled = f"{before}{FIRST}\n{tables}\n{LAST}{after}"
    if mark and end and filled != text:
        path.write_text(filled, encoding="utf-8")
