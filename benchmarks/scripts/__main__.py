"""The command line: run what is missing, then print the table."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from annealtune.errors import DataError
from benchmarks.quality import records
from benchmarks.quality.__main__ import _names, _seeds
from benchmarks.quality.tasks.task import Sources

from . import __doc__ as package_text
from . import table
from .catalogue import SCRIPTS, Key, run
from .common import METHODS

RESULTS = Path("docs/results/scripts.jsonl")


def main(arguments: list[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    try:
        if not options.table:
            _run_missing(options)
        print(table.render(records.read(options.results, Key)))
    except (DataError, records.RecordsError) as error:
        sys.exit(f"error: {error}")
    except ModuleNotFoundError as error:
        sys.exit(f"error: {error}; pip install '.[train,bench,frameworks]' brings it")
    except KeyboardInterrupt:
        sys.exit("interrupted; what has ended is recorded, start again to go on")


def _parser() -> argparse.ArgumentParser:
    assert package_text is not None
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scripts",
        description=package_text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--scripts", type=_names(SCRIPTS), default=list(SCRIPTS), help="default: all")
    add("--methods", type=_names(METHODS), default=list(METHODS), help="default: all")
    add("--seeds", type=_seeds, default=[0, 1, 2], help="default: 0,1,2")
    add("--jobs", type=int, default=1, help="runs at a time, one thread each; default: 1")
    add("--data-dir", type=Path, help="default: as for annealtune train")
    add("--text", type=Path, help="of the language models")
    add("--results", type=Path, default=RESULTS, help=f"one line a run; default: {RESULTS}")
    add("--table", action="store_true", help="run nothing")
    return parser


def _run_missing(options: argparse.Namespace) -> None:
    known = records.read(options.results, Key)
    wanted = itertools.product(options.seeds, options.scripts, options.methods)
    keys = [Key(script, method, seed) for seed, script, method in wanted]
    keys = [key for key in keys if key not in known]
    sources = Sources(options.data_dir, options.text)
    os.environ["OMP_NUM_THREADS"] = "1"  # read when a process imports torch
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        pending = [pool.submit(run, key, sources) for key in keys]
        try:
            for number, ended in enumerate(as_completed(pending), start=1):
                record = ended.result()
                records.append(options.results, record)
                print(f"{number} of {len(keys)}: {_progress(record)}", flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _progress(record: records.Record) -> str:
    name = f"{record['script']}, {record['method']}, seed {record['seed']}"
    if "failure" in record:
        return f"{name}: failed, {record['failure']}"
    test = "broken" if record["test"] is None else f"test {record['test']:.4g}"
    spent = f"{record['minibatches']} + {record['extra_steps']} of {record['budget']} steps"
    return f"{name}: {test}, rate {record['rate']:.3g}, {spent}, {record['seconds']} s"


if __name__ == "__main__":
    main()
