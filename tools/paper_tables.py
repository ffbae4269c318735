"""The tables of ``docs/results/paper.md``: what the paper claims, and what the records show."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal, NamedTuple

from annealtune.studies.records import RunRecord, Study
from annealtune.studies.report.table_1 import result_rows, value_cell, winners
from annealtune.studies.reproduction import net_of
from annealtune.studies.statistics import Measure, study_statistics

# What tells how a run was made, besides its experiment.
ORIGIN = ("annealtune", "commit", "torch", "python", "machine", "cpu", "threads")
BASELINE, ALWAYS = "scheduled-sgd", "random-rate"
METHODS = {
    "the text's method": "sgd-sa-paper-text",
    "the script's method": "sgd-sa-paper-code",
    "always accept": ALWAYS,
    "self-tuned over SGD": "self-tuned-sgd",
    "self-tuned over AdamW": "self-tuned",
}
# Table 1 of the paper: final validation loss, in millionths, and accuracy, in hundredths of a per
# cent, of seeds 0 to 9.
_PRINTED = {
    "vgg16": {
        BASELINE: (
            (1640, 1564, 1642, 1662, 1628, 1677, 1505, 1480, 1623, 1680),
            (8527, 8494, 8484, 8493, 8492, 8537, 8491, 8528, 8526, 8541),
        ),
        "sgd-sa": (
            (1127, 1206, 1121, 1133, 1278, 1112, 1233, 1130, 1167, 1084),
            (8644, 8618, 8604, 8676, 8517, 8630, 8571, 8659, 8614, 8628),
        ),
    },
    "resnet34": {
        BASELINE: (
            (1519, 1472, 1467, 1468, 1602, 1558, 1480, 1532, 1574, 1499),
            (8218, 8258, 8227, 8237, 8169, 8180, 8224, 8207, 8152, 8241),
        ),
        "sgd-sa": (
            (1306, 1231, 1238, 1457, 1585, 1276, 1405, 1261, 1407, 1240),
            (8255, 8411, 8332, 8139, 7631, 8374, 8207, 8257, 8312, 8319),
        ),
    },
}
NO_RECORD = "no record yet"
_LOSS, _ACCURACY, _TRAINING = "validation_paper_loss", "validation_accuracy", "train_eval_accuracy"
# The first and the last epochs that are looked at together.
_SOME = 10
# By seed, the numbers of a run's epochs.
_Curves = dict[int, list[float]]
_BUILT = re.compile(r"(<!-- built: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(text: str, studies: Sequence[Study]) -> str:
    """Return a page with the tables between its marks built from studies."""
    tables: dict[str, Callable[[], list[Sequence[str]]]] = {
        "table-1": lambda: _table_1(studies, "last", is_paper=False),
        "table-1-best": lambda: _table_1(studies, "best", is_paper=False),
        "table-1-paper": lambda: _table_1(studies, "last", is_paper=True),
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


def _nets(studies: Sequence[Study]) -> dict[str, Study | None]:
    """Return the study of each net of the paper's Table 1, None where there is no record."""
    return {net: next((s for s in studies if net_of(s.name) == net), None) for net in _PRINTED}


def paper_study(net: str) -> Study:
    """Return the paper's own runs as if they had been read from disk."""
    runs = []
    for method, columns in _PRINTED[net].items():
        for seed, (loss, accuracy) in enumerate(zip(*columns, strict=True)):
            line = {"epoch": 1, _LOSS: loss / 1e6, _ACCURACY: accuracy / 1e4}
            result = {"epochs": 1, "last_validation_accuracy": accuracy / 1e4}
            runs.append(RunRecord(method, seed, Path(), "finished", metrics=(line,), result=result))
    return Study(Path(), net, "", tuple(_PRINTED[net]), tuple(range(10)), {}, tuple(runs), {})


def _table_1(
    studies: Sequence[Study], epoch: Literal["last", "best"], *, is_paper: bool
) -> list[Sequence[str]]:
    """Return Table 1 with the numbers of one epoch, both nets: of the paper, or of our runs.

    Below the last epochs of our runs stand mean and best of the paper too.
    """
    found = _nets(studies)
    if not any(found.values()):
        return []
    theirs = {net: _cells(paper_study(net), epoch, ", the paper") for net in found}
    ours = {net: _cells(study, epoch) if study else {} for net, study in found.items()}
    shown = theirs if is_paper else ours
    beside = theirs if not is_paper and epoch == "last" else {}
    lines: list[Sequence[str]] = []
    for kind in ("run", "mean", "best"):
        for each in (shown, {} if kind == "run" else beside):
            places = dict.fromkeys(p for cells in each.values() for p in cells if p[0] == kind)
            for place in places:
                texts = (cells.get(place, ("", "")) for cells in each.values())
                lines.append((*place[1:], *itertools.chain(*texts)))
    models = [
        net if study is None or is_paper else study.experiment["model"]
        for net, study in found.items()
    ]
    named = [f"{model}: {title}" for model in models for title in ("loss", "accuracy")]
    return [("method", "seed", *named), *lines]


def _cells(
    study: Study, epoch: Literal["last", "best"], after: str = ""
) -> dict[tuple[str, str, str], list[str]]:
    """Return loss and accuracy of every line, by its kind, its method and its seed."""
    rows = result_rows(study, study_statistics(study))
    won = winners(rows)
    texts: dict[tuple[str, str, str], list[str]] = {}
    for index, row in enumerate(rows):
        line = []
        for quantity in ("paper_loss", "accuracy"):
            measure = Measure(epoch, "validation", quantity)
            text = value_cell(row, measure, is_best=False).text
            line.append(f"**{text}**" if (index, measure) in won else text)
        seed = row.kind if row.run is None else str(row.run.seed)
        texts[row.kind, row.method + after, seed] = line
    return texts


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


class Claim(NamedTuple):
    """What is measured for one claim.

    Attributes:
        text: what a method of a study gives.
        is_printed: whether the paper's Table 1 has the numbers for it.
        is_of_steps: whether it is about the accept test of steps, which not all methods have.
    """

    text: Callable[[Study, str], str]
    is_printed: bool = False
    is_of_steps: bool = False


def _claim(claim: Claim, studies: Sequence[Study]) -> list[Sequence[str]]:
    """Return what the paper has for a claim on both nets, and what each method gives."""
    found = _nets(studies)
    titles = [study.experiment["model"] if study else net for net, study in found.items()]
    rows: list[Sequence[str]] = [("", *titles)]
    if claim.is_printed:
        rows.append(("the paper", *(claim.text(paper_study(net), "sgd-sa") for net in found)))
    for name, method in METHODS.items():
        if claim.is_of_steps and method.startswith("self-tuned"):
            continue
        cells = [
            NO_RECORD if study is None or not _curves(study, method, _LOSS)
            else claim.text(study, method)
            for study in found.values()
        ]  # fmt: skip
        rows.append((name, *cells))
    return rows


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
    seeds = "seed" if len(pairs) == 1 else "seeds"
    return f"{won} of {len(pairs)} {seeds}; {texts[0]} against {texts[1]}"


def _ended(summarise: Callable[[list[float]], float]) -> Callable[[_Curves, _Curves], str]:
    """Return what compares a summary of the ends of the common seeds."""

    def text(ours: _Curves, base: _Curves) -> str:
        both = _common(ours, base)
        if not both[0]:
            return NO_RECORD
        if len(both[0]) < 2 and summarise is stdev:
            return "too few seeds"
        return " against ".join(_per_cent(summarise([c[-1] for c in each])) for each in both)

    return text


def _dropped(ours: _Curves, base: _Curves) -> str:
    """Return the largest drop from an epoch to the next one, and when it was."""
    both, texts = _common(ours, base), []
    if not both[0]:
        return NO_RECORD
    for each in both:
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
    for title, low, high in (("0.5 and more", 0.5, float("inf")), ("0.1 and less", 0.0, 0.1)):
        shares = []
        for part in (slice(None, _SOME), slice(-_SOME, None)):
            moves = [
                move
                for run in study.of(method)
                for line in run.moves[part]
                for move in line["settings"]
                if low <= move["setting"]["lr"] <= high
            ]
            tried, accepted = (sum(move[key] for move in moves) for key in ("tried", "accepted"))
            shares.append(_per_cent(accepted / tried) if tried else "never tried")
        texts.append(f"{title}: {shares[0]}, then {shares[1]}")
    return "; ".join(texts)


def _refused(study: Study, method: str) -> str:
    """Return what the accept test refused, and where that led compared with no such test."""
    curves = _curves(study, method, "acceptance_rate").values()
    shares = [1 - fmean(curve) for curve in curves]
    late = [1 - fmean(curve[len(curve) // 2 :]) for curve in curves]
    text = f"{_per_cent(fmean(shares))} of all moves refused"
    text += f" ({_per_cent(fmean(late))} in the second half)"
    if method == ALWAYS:
        return text
    found = _compared(_ACCURACY, _won, ALWAYS)(study, method)
    return text if found == NO_RECORD else f"{text}; more accurate on {found}"


CLAIMS = {
    "loss": Claim(_compared(_LOSS, partial(_won, is_loss=True)), is_printed=True),
    "accuracy": Claim(_compared(_ACCURACY, _won), is_printed=True),
    "best-seed": Claim(_compared(_ACCURACY, _ended(max)), is_printed=True),
    "probability": Claim(_probability, is_of_steps=True),
    "large-rates": Claim(_by_rate, is_of_steps=True),
    "training": Claim(_compared(_TRAINING, _ended(fmean))),
    "drops": Claim(_compared(_ACCURACY, _dropped)),
    "seed": Claim(_compared(_ACCURACY, _ended(stdev)), is_printed=True),
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
            best = fmean(map(max, _curves(study, method, _ACCURACY).values()))
            moves = _curves(study, method, "acceptance_rate").values()
            shares = [_per_cent(fmean(curve[at] for curve in moves)) for at in (0, -1) if moves]
            texts = (*map(_per_cent, (accuracy, best, training)), f"{loss:.4f}")
            rows.append((method, str(len(study.of(method))), *texts, ", ".join(shares)))
    columns = ("method", "seeds", "validation accuracy", "best epoch", "training accuracy")
    return [(*columns, "validation loss", "moves accepted, first and last epoch"), *rows]


def _per_cent(share: float) -> str:
    return f"{100 * share:.2f} %"
