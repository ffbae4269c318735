"""The command line: run what is missing, then show what there is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from annealtune.errors import DataError

from . import __doc__ as package_text
from . import plan, records
from .methods import METHODS
from .page import markdown, render
from .plan import Selection
from .run import Spec
from .tasks import TASKS
from .workers import run_all

RECORDS = Path("docs/results/quality.jsonl")


def main(arguments: list[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    try:
        if not (options.page or options.markdown):
            _run_missing(options)
        else:
            _show(options)
    except (DataError, records.RecordsError) as error:
        sys.exit(f"error: {error}")
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
    add("--tasks", type=_names(TASKS), default=list(TASKS), help="comma-separated; default: all")
    add("--methods", type=_names(METHODS), help="comma-separated; default: all, with a factor ours")
    add("--seeds", type=_seeds, default=_seeds("0-4"), help="such as 0-4 or 0,2; default: 0-4")
    add("--jobs", type=int, default=1, help="processes, one thread each")
    add("--records", type=Path, default=RECORDS, help=f"default: {RECORDS}")
    add("--text", type=Path, help="of the language model; default: the path in ANNEALTUNE_TEXT")
    add("--scale", type=float, default=1.0, help="factor of all lengths, for smoke tests")
    add("--again", action="store_true", help="make the runs even if they are recorded")
    for kind, help_text in (
        ("base-lr", "instead: with the given learning rate times each of these"),
        ("loss", "instead: with the loss times each of these"),
        ("length", "instead: with the length times each of these"),
    ):
        add(f"--{kind}-factor", type=_numbers, default=[], metavar="F,...", help=help_text)
    add("--retune", action="store_true", help="references choose their rate anew for long runs")
    add("--page", type=Path, help="write the page of the records there; runs nothing")
    add("--markdown", action="store_true", help="print the table of the records; runs nothing")
    return parser


def _run_missing(options: argparse.Namespace) -> None:
    selection = _selection(options)
    known = [] if options.again else records.read(options.records)
    uninstalled = sorted({METHODS[m].package for m in selection.methods} - _installed())
    if uninstalled:
        sys.exit(
            f"error: {', '.join(uninstalled)} cannot be imported: pip install '.[bench]', or leave "
            "methods out with --methods"
        )
    # First all that depends on nothing, then the references at the rates that were found.
    first = [*plan.searches(selection), *plan.final_runs(selection, [])]
    known += _run(plan.missing(first, known), options)
    known += _run(plan.missing(plan.final_runs(selection, known), known), options)
    for task in selection.tasks:
        for method in (m for m in selection.methods if METHODS[m].rates):
            if plan.chosen_rate(known, task, method, scale=selection.scale) is None:
                print(f"{task}, {method}: no rate can be trained with, so it is not run")


def _installed() -> set[str]:
    return {""} | {method.package for method in METHODS.values() if method.is_installed}


def _selection(options: argparse.Namespace) -> Selection:
    kinds = ("base-lr", "loss", "length")
    variants = [
        f"{kind}={factor:g}"
        for kind in kinds
        for factor in getattr(options, f"{kind.replace('-', '_')}_factor")
    ]
    ours = [name for name, method in METHODS.items() if method.family == "ours"]
    methods = options.methods or (ours if variants else list(METHODS))
    for variant in variants:
        without = [name for name in options.methods or () if not plan.applies(variant, name)]
        if without:
            sys.exit(f"error: --base-lr-factor: {', '.join(without)} is given no learning rate")
    return Selection(
        options.tasks,
        methods,
        options.seeds,
        variants or [""],
        options.scale,
        options.retune,
    )


def _run(specs: list[Spec], options: argparse.Namespace) -> list[dict[str, Any]]:
    done: list[dict[str, Any]] = []
    for record in run_all(specs, jobs=options.jobs, text=options.text) if specs else ():
        records.append(options.records, record)
        done.append(record)
        print(_progress(record, len(done), len(specs)), flush=True)
    return done


def _progress(record: dict[str, Any], number: int, total: int) -> str:
    lr = record["options"].get("lr")
    parts = [record["task"], record["method"], record["variant"], f"seed {record['seed']}"]
    parts.append("" if lr is None else f"rate {lr:.3g}")
    where = ", ".join(part for part in parts if part)
    if record["status"] != "finished":
        return f"[{number}/{total}] {where}: failed, {record['reason']}"
    part = "validation" if record["is_search"] else "test"
    metric = TASKS[record["task"]].metric
    return (
        f"[{number}/{total}] {where}: {part} {metric} {record[part]['metric']:.4g}, "
        f"cost {record['cost']} of {record['budget']}, {record['seconds']:.1f} s"
    )


def _show(options: argparse.Namespace) -> None:
    known = records.read(options.records)
    if not known:
        sys.exit(f"error: {options.records} holds no record; run without --page and --markdown")
    if options.page:
        options.page.write_text(render(known, options.scale), encoding="utf-8")
        print(options.page)
    if options.markdown:
        print(markdown(known, options.scale))


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
    seeds: list[int] = []
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise argparse.ArgumentTypeError(f"must be numbers or ranges such as 0-4, got {text!r}")
        seeds += range(int(first), int(last or first) + 1)
    return list(dict.fromkeys(seeds))


def _numbers(text: str) -> list[float]:
    try:
        return [float(piece) for piece in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers, got {text!r}") from None


if __name__ == "__main__":
    main()
