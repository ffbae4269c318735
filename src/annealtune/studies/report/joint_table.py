"""Table 1 as the paper prints it: both nets side by side, its own numbers beside ours."""

from collections.abc import Sequence
from pathlib import Path

from annealtune.studies.records import RunRecord, Study
from annealtune.studies.reproduction import net_of
from annealtune.studies.statistics.measures import Measure
from annealtune.studies.statistics.summaries import study_statistics

from .table_1 import Kind, result_rows, value_cell, winners
from .tables import Cell, Table, text_cell

NETS = ("vgg16", "resnet34")
# The paper's columns, and the same of the best epoch.
COLUMNS = tuple(
    Measure(epoch, "validation", quantity)
    for epoch in ("last", "best")
    for quantity in ("paper_loss", "accuracy")
)
# Final validation loss, in millionths, and accuracy, in hundredths of a per cent, of seeds 0 to 9.
_PRINTED = {
    "vgg16": {
        "scheduled-sgd": (
            (1640, 1564, 1642, 1662, 1628, 1677, 1505, 1480, 1623, 1680),
            (8527, 8494, 8484, 8493, 8492, 8537, 8491, 8528, 8526, 8541),
        ),
        "sgd-sa": (
            (1127, 1206, 1121, 1133, 1278, 1112, 1233, 1130, 1167, 1084),
            (8644, 8618, 8604, 8676, 8517, 8630, 8571, 8659, 8614, 8628),
        ),
    },
    "resnet34": {
        "scheduled-sgd": (
            (1519, 1472, 1467, 1468, 1602, 1558, 1480, 1532, 1574, 1499),
            (8218, 8258, 8227, 8237, 8169, 8180, 8224, 8207, 8152, 8241),
        ),
        "sgd-sa": (
            (1306, 1231, 1238, 1457, 1585, 1276, 1405, 1261, 1407, 1240),
            (8255, 8411, 8332, 8139, 7631, 8374, 8207, 8257, 8312, 8319),
        ),
    },
}
PAPER = {
    net: {
        method: ([loss / 1e6 for loss in losses], [each / 1e4 for each in accuracies])
        for method, (losses, accuracies) in methods.items()
    }
    for net, methods in _PRINTED.items()
}
# After the names of its methods.
OF_PAPER = ", the paper"
_KINDS: tuple[Kind, ...] = ("mean", "best")
_Place = tuple[Kind, str, int | None]


def joint_table(studies: Sequence[Study]) -> Table | None:
    """Return Table 1 of the paper: every seed of every method, VGG16 and ResNet34 side by side.

    The paper's own numbers are methods of their own; it has none of the best epoch.

    Args:
        studies: those of the paper's Table 1 are taken, the first of each net.

    Returns:
        None if there is none of them.
    """
    found = {net: next((s for s in studies if net_of(s.name) == net), None) for net in NETS}
    ours = {net: _cells(study) for net, study in found.items() if study is not None}
    if not ours:
        return None
    # The methods of the study first, then the paper's.
    cells = {net: {**ours.get(net, {}), **_cells(_paper_study(net))} for net in NETS}
    places = [
        *dict.fromkeys(place for each in ours.values() for place in each),
        *_cells(_paper_study(NETS[0])),
    ]
    empty = (Cell("", ""),) * len(COLUMNS)

    def row(place: _Place) -> tuple[Cell, ...]:
        kind, method, seed = place
        which = Cell(kind, is_number=False) if seed is None else Cell(str(seed), seed)
        values = [cells[net].get(place, empty) for net in NETS]
        return (text_cell(method), which, *(cell for each in values for cell in each))

    models = {
        net: net if study is None else str(study.experiment.get("model", net))
        for net, study in found.items()
    }
    return Table(
        ("method", "seed", *("loss", "accuracy") * 4),
        tuple(row(place) for place in places if place[0] == "run"),
        (("", 2), *((f"{models[net]}, {e} epoch", 2) for net in NETS for e in ("last", "best"))),
        tuple(row((kind, m, s)) for which in _KINDS for kind, m, s in places if kind == which),
    )


def _cells(study: Study) -> dict[_Place, tuple[Cell, ...]]:
    rows = result_rows(study, study_statistics(study))
    won = winners(rows)
    return {
        (row.kind, row.method, row.run.seed if row.run else None): tuple(
            value_cell(row, measure, (index, measure) in won) for measure in COLUMNS
        )
        for index, row in enumerate(rows)
        if row.kind in ("run", *_KINDS)
    }


def _paper_study(net: str) -> Study:
    """Return the paper's own runs as if they had been read from disk."""
    runs = [
        RunRecord(
            method=method + OF_PAPER,
            seed=seed,
            path=Path(),
            status="finished",
            reason=None,
            config={},
            metrics=({"epoch": 1, "validation_paper_loss": loss},),
            moves=(),
            result={"epochs": 1, "last_validation_accuracy": accuracy},
        )
        for method, columns in PAPER[net].items()
        for seed, (loss, accuracy) in enumerate(zip(*columns, strict=True))
    ]
    methods, seeds = ({getattr(run, name): None for run in runs} for name in ("method", "seed"))
    return Study(Path(), net, "", tuple(methods), tuple(seeds), {}, {}, tuple(runs))
