"""The paper's own figures, with its numbers and letters, from the studies of its experiments."""

from collections.abc import Iterable
from typing import NamedTuple

from annealtune.studies.records import Study
from annealtune.studies.reproduction import net_of

from .curves import Curve, accept_panels, curve_panels, of_kind, performance_panels
from .panels import Panel


class PaperFigure(NamedTuple):
    """One figure of the paper.

    Attributes:
        name: its id on a page.
        title: what the paper calls it.
        panels: its subfigures, in the paper's order.
        caption: what is the same as in the paper, and what is not.
    """

    name: str
    title: str
    panels: list[Panel]
    caption: str


def paper_figures(study: Study) -> list[PaperFigure]:
    """Return the figures of the paper that show a study; none if it is not one of the paper's.

    They show the paper's methods and the control that accepts everything. Runs that tune themselves
    stand in a figure of their own, beside the baseline.
    """
    net, model = net_of(study.name), str(study.experiment.get("model"))
    accept = {panel.name: panel for panel in accept_panels(study)}
    moves = [accept[f"accept-{name}"] for name in ("worsening", "worsening-moves") if accept]
    found = []
    if of_kind(study, "ssa") and of_kind(study, "sgd"):
        pair = of_kind(study, "ssa", "sgd")
        caption = f"SSA without gradients against SGD at a constant rate, here {model}."
        panels = performance_panels(study, pair, "figure-1")
        found = [PaperFigure("figure-1", "Figure 1: SSA and SGD", panels, caption)]
        told = ""
    elif net is not None:
        methods = of_kind(study, "scheduled-sgd", "sgd-sa", "random-rate")
        training = [Curve("train_eval_accuracy")]
        title = "training accuracy, on ten random minibatches"
        second = [accept["accept-probability"]] if accept else []
        second += curve_panels(study, methods, "figure-2-training-accuracy", title, training)
        name = f"figure-{'4' if net == 'vgg16' else '3'}"
        first = f"Figure {name[-1]}: {'VGG16' if net == 'vgg16' else 'ResNet34'} on CIFAR-10"
        found = [
            PaperFigure(
                "figure-2",
                "Figure 2: the optimization over the training set",
                second,
                f"Here {model}{'' if net == 'vgg16' else '; the paper shows VGG16'}. A move that "
                "lowers the loss has probability one.",
            ),
            PaperFigure(
                name, first, performance_panels(study, methods, name), f"Here {model}. Whole axes."
            ),
        ]
        told = " There it is drawn for SSA."
    if not found:
        return []
    long = "Typical behaviour of the acceptance probability at each epoch."
    found.append(PaperFigure("figure-long", "Figure of the long version", moves, long + told))
    lettered = [each._replace(panels=_lettered(each.panels)) for each in found]
    heat = [accept["accept-temperature"]] if accept else []
    lettered.append(
        PaperFigure("temperature", "Temperature", heat, "Of the accept test; not in the paper.")
    )
    if own := of_kind(study, "self-tuned"):
        panels = performance_panels(study, [*of_kind(study, "scheduled-sgd"), *own], "self-tuned")
        caption = "Not in the paper: runs that find their rate by races, beside its baseline."
        lettered.append(PaperFigure("self-tuned", "Self-tuned", panels, caption))
    return lettered


def _lettered(panels: Iterable[Panel]) -> list[Panel]:
    return [
        panel._replace(title=f"({letter}) {panel.title}")
        for letter, panel in zip("abcdef", panels, strict=False)
    ]
