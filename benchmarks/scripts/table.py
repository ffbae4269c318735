"""The table: what every method reached in every script."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from benchmarks.quality.records import Record

from .catalogue import SCRIPTS, Key
from .common import HAND_TUNED, METHODS, SELF_TUNED

LEGEND = (
    "Test loss of the weights with the lowest validation loss, mean ± standard deviation over "
    "seeds; in parentheses its ratio to the hand-tuned one and the rank."
)


def render(known: Mapping[Key, Record]) -> str:
    """Return the table in Markdown, over the seeds that all methods of a script have."""
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
    return "\n".join(["", LEGEND, "", *lines, ""])


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
    rank = 1 + sum(other < mean for other in means.values())
    return f"{text} ({mean / means.get(HAND_TUNED, math.nan):.3f}, {rank})"


def _geometric(ratios: list[float]) -> str:
    if not ratios or not all(map(math.isfinite, ratios)):
        return ""
    return f"{statistics.geometric_mean(ratios):.3f}"
