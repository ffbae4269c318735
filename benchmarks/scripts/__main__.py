"""The command line: run what is missing, then print the table."""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections.abc import Mapping
from pathlib import Path

from benchmarks import command, records
from benchmarks.records import Record

from . import __doc__ as package_text
from .common import CONTROLS, HAND_TUNED, METHODS, RIVALS, SCRIPTS, SELF_TUNED, Key, run

LEGEND = (
    "Test loss of the weights with the lowest validation loss, mean ± standard deviation over "
    "seeds; in parentheses its ratio to the hand-tuned one and the rank among the four that are "
    "no controls."
)


def main(arguments: list[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    path = options.results / "scripts.jsonl"

    def missing() -> list[Key]:
        known = records.read(path, Key)
        wanted = itertools.product(options.seeds, options.scripts, options.methods)
        keys = (Key(script, method, seed) for seed, script, method in wanted)
        return [key for key in keys if key not in known]

    with command.mistakes_told(extras="train,bench,frameworks"):
        command.run_missing(options, path, missing, run, _progress)
        print(f"\n{build(options.results)}")


def build(folder: Path) -> str:
    """Put the table of a folder's records into its text, and return it."""
    table = render(records.read(folder / "scripts.jsonl", Key))
    command.fill(folder / "scripts.md", table)
    return table


def _parser() -> argparse.ArgumentParser:
    parser = command.parser("benchmarks.scripts", package_text, "scripts")
    add = parser.add_argument
    add("--scripts", type=command.names(SCRIPTS), default=list(SCRIPTS), help="default: all")
    add("--methods", type=command.names(METHODS), default=list(METHODS), help="default: all")
    add("--seeds", type=command.seeds, default=[0, 1, 2], help="default: 0,1,2")
    return parser


def _progress(record: Record) -> str:
    name = f"{record['script']}, {record['method']}, seed {record['seed']}"
    if "failure" in record:
        return f"{name}: failed, {record['failure']}"
    test = "broken" if record["test"] is None else f"test {record['test']:.4g}"
    spent = f"{record['minibatches']} + {record['extra_steps']} of {record['budget']} steps"
    return f"{name}: {test}, rate {record['rate']:.3g}, {spent}, {record['seconds']} s"


def render(known: Mapping[Key, Record]) -> str:
    """Return the table as Markdown, over the seeds that all methods of a script have."""
    lines = [
        f"| script | seeds | {' | '.join(METHODS)} | rate of {SELF_TUNED} |",
        "|---" * (len(METHODS) + 3) + "|",
    ]
    ratios: dict[str, list[float]] = {method: [] for method in METHODS}
    for script in SCRIPTS:
        runs = {key: record for key, record in known.items() if key.script == script}
        methods = [m for m in METHODS if any(key.method == m for key in runs)]
        seeds = [
            seed
            for seed in sorted({key.seed for key in runs})
            if all(Key(script, method, seed) in runs for method in methods)
        ]
        if not seeds:
            continue
        tests = {m: [runs[Key(script, m, seed)].get("test") for seed in seeds] for m in methods}
        means = {m: _mean(losses) for m, losses in tests.items()}
        cells = [_cell(method, tests, means) for method in METHODS]
        for method in methods:
            ratios[method].append(means[method] / means.get(HAND_TUNED, math.nan))
        rates = [runs[Key(script, SELF_TUNED, seed)] for seed in seeds if SELF_TUNED in methods]
        found = ", ".join(dict.fromkeys(f"{run['rate']:.2g}" for run in rates if "rate" in run))
        lines.append(f"| {script} | {len(seeds)} | {' | '.join(cells)} | {found} |")
    summary = [_geometric(ratios[method]) for method in METHODS]
    lines.append(f"| mean ratio | | {' | '.join(summary)} | |")
    return "\n".join([LEGEND, "", *lines, ""])


def _mean(losses: list[float | None]) -> float:
    return math.inf if None in losses else statistics.fmean(losses)


def _cell(method: str, tests: Mapping[str, list[float | None]], means: Mapping[str, float]) -> str:
    if method not in tests:
        return ""
    mean = means[method]
    if math.isinf(mean):
        return "failed"
    spread = statistics.stdev(tests[method]) if len(tests[method]) > 1 else 0.0
    digits = max(0, 3 - math.floor(math.log10(mean)))  # four that count
    text = f"{mean:.{digits}f}"
    if spread:
        text += f" ± {spread:.{digits}f}"
    ratio = f"{mean / means.get(HAND_TUNED, math.nan):.3f}"
    if method in CONTROLS:
        return f"{text} ({ratio})"
    rank = 1 + sum(means[rival] < mean for rival in RIVALS if rival in means)
    return f"{text} ({ratio}, {rank})"


def _geometric(ratios: list[float]) -> str:
    if not ratios or not all(map(math.isfinite, ratios)):
        return ""
    return f"{statistics.geometric_mean(ratios):.3f}"


if __name__ == "__main__":
    main()
