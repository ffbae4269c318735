"""Table 1 as the paper prints it: both nets side by side, its own numbers beside ours."""

from collections.abc import Mapping, Sequence

from annealtune.studies.records import Study
from annealtune.studies.reproduction import net_of
from annealtune.studies.statistics.measures import NOT_AVAILABLE, Measure
from annealtune.studies.statistics.summaries import study_statistics

from .table_1 import Kind, result_rows, value_cell, winners
from .tables import Cell, Table, number_cell, text_cell

NETS = ("vgg16", "resnet34")
# The paper's columns, and the same of the best epoch.
COLUMNS = tuple(
    Measure(epoch, "validation", quantity)
    for epoch in ("last", "best")
    for quantity in ("paper_loss", "accuracy")
)
_LOSS, _ACCURACY = COLUMNS[:2]
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
_PAPER_SEEDS = 10
_OF_PAPER = ", the paper"
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
    cells = {net: {**_paper_cells(net), **ours.get(net, {})} for net in NETS}
    # The methods of the study first, then the paper's.
    places = [
        *dict.fromkeys(place for each in ours.values() for place in each),
        *_paper_cells(NETS[0]),
    ]

    def row(place: _Place) -> tuple[Cell, ...]:
        kind, method, seed = place
        which = Cell(kind, is_number=False) if seed is None else Cell(str(seed), seed)
        values = [cells[net].get(place, _EMPTY) for net in NETS]
        return (text_cell(method), which, *(cell for each in values for cell in each))

    models = {
        net: net if study is None else str(study.experiment.get("model", net))
        for net, study in found.items()
    }
    return Table(
        ("method", "seed", *(_title(measure) for _ in NETS for measure in COLUMNS)),
        tuple(row(place) for place in places if place[0] == "run"),
        (("", 2), *((f"{models[net]}, {e} epoch", 2) for net in NETS for e in ("last", "best"))),
        tuple(row((kind, m, s)) for which in _KINDS for kind, m, s in places if kind == which),
    )


_KINDS: tuple[Kind, ...] = ("mean", "best")
_EMPTY = (Cell("", ""),) * len(COLUMNS)


def _title(measure: Measure) -> str:
    return "loss" if measure.quantity == "paper_loss" else "accuracy"


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


def _paper_cells(net: str) -> dict[_Place, tuple[Cell, ...]]:
    found: dict[_Place, tuple[float, float]] = {}
    for method, (losses, accuracies) in PAPER[net].items():
        label = method + _OF_PAPER
        for seed in range(_PAPER_SEEDS):
            found["run", label, seed] = losses[seed], accuracies[seed]
        found["mean", label, None] = _mean(losses), _mean(accuracies)
        found["best", label, None] = min(losses), max(accuracies)
    return {
        place: (*(_paper_cell(found, place, n) for n in (0, 1)), *(Cell(NOT_AVAILABLE, ""),) * 2)
        for place in found
    }


def _paper_cell(found: Mapping[_Place, tuple[float, float]], place: _Place, column: int) -> Cell:
    kind, _, seed = place
    measure = (_LOSS, _ACCURACY)[column]
    rivals = [values[column] for (k, _, s), values in found.items() if (k, s) == (kind, seed)]
    value = found[place][column]
    return number_cell(measure.text(value), value, value == measure.best(rivals))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
