"""The paper's own figures, with its numbers and letters, from the studies of its experiments."""

from collections.abc import Iterable
from typing import NamedTuple

from annealtune.studies.records import Study
from annealtune.studies.reproduction import net_of

from .curves import accept_panels, curve_panels, of_kind, performance_panels
from .panels import Panel


class PaperFigure(NamedTuple):
    """One figure of the paper: its id on a page, its title, its subfigures and a caption."""

    name: str
    title: str
    panels: list[Panel]
    caption: str


def paper_figures(study: Study) -> list[PaperFigure]:
    """Return the figures of the paper that show a study; none if it is not one of the paper's.

    They show the paper's methods and the control that accepts everything. Runs that tune themselves
    stand in a figure of their own, beside the baseline.
    """
    is_of_ssa = bool(of_kind(study, "ssa") and of_kind(study, "sgd"))
    net = net_of(study.name)
    if not is_of_ssa and net is None:
        return []
    model = study.experiment["model"]
    accept = {panel.name: panel for panel in accept_panels(study)}
    chance, worsening, moves, heat = (
        [accept[f"accept-{name}"]] if f"accept-{name}" in accept else []
        for name in ("probability", "worsening", "worsening-moves", "temperature")
    )
    if is_of_ssa:
        found = [
            PaperFigure(
                "figure-1",
                "Figure 1: SSA without gradients, and SGD at a constant rate",
                performance_panels(study, of_kind(study, "ssa", "sgd"), "figure-1"),
                f"Here {model}.",
            )
        ]
    else:
        number, paper_net = ("4", "VGG16") if net == "vgg16" else ("3", "ResNet34")
        methods = of_kind(study, "scheduled-sgd", "sgd-sa", "random-rate")
        title, training = "training accuracy, on ten minibatches", {"train_eval_accuracy": ""}
        found = [
            PaperFigure(
                "figure-2",
                "Figure 2: optimization efficiency over the training set",
                [*chance, *curve_panels(study, methods, "figure-2-training", title, training)],
                f"Here {model}; in the paper VGG16. A move that lowers the loss has probability "
                "one.",
            ),
            PaperFigure(
                f"figure-{number}",
                f"Figure {number}: {paper_net} on CIFAR-10",
                performance_panels(study, methods, f"figure-{number}"),
                f"Here {model}. Nothing is cut off.",
            ),
        ]
    found.append(
        PaperFigure(
            "figure-long",
            "The long version's figure: acceptance at each epoch",
            [*worsening, *moves],
            "In the paper of SSA.",
        )
    )
    lettered = [each._replace(panels=_lettered(each.panels)) for each in found]
    own = of_kind(study, "self-tuned")
    beside = [*of_kind(study, "scheduled-sgd"), *own] if own else []
    more = [
        PaperFigure("temperature", "Temperature", heat, "Of the accept test; not in the paper."),
        PaperFigure(
            "self-tuned",
            "Self-tuned, and Scheduled-SGD",
            performance_panels(study, beside, "self-tuned"),
            "Not in the paper: runs that find their rate by races.",
        ),
    ]
    return [each for each in (*lettered, *more) if each.panels]


def _lettered(panels: Iterable[Panel]) -> list[Panel]:
    return [
        panel._replace(title=f"({letter}) {panel.title}")
        for letter, panel in zip("abcdef", panels, strict=False)
    ]
