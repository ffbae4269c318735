"""Which figures a study has, and which figure of the paper each one is."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from annealtune.studies.measures import Measure, kind_of, main_measure
from annealtune.studies.results import Study
from annealtune.studies.statistics import scores_of

from . import annealing, costs, curves, settings, spread
from .panels import Panel, Plate

_LINES = "One thin line a seed, a thick one for their mean; dotted: runs that did not finish."


def plates(study: Study) -> list[Plate]:
    """Return every figure that the records of a study allow, those of the paper first.

    Args:
        study: finished or not; what no run has recorded is left out.
    """
    makers: tuple[Callable[[Study], list[Plate]], ...] = (
        _figure_1,
        _figure_2,
        _figures_3_and_4,
        _long_version,
        _settings,
        _spread,
        _costs,
    )
    return [plate for make in makers for plate in make(study) if plate.panels]


def _figure_1(study: Study) -> list[Plate]:
    pair = _of_kind(study, "ssa", "sgd")
    if not (_of_kind(study, "ssa") and _of_kind(study, "sgd")):
        return []
    return [
        Plate(
            "figure-1",
            "Without gradients: SSA against SGD at a constant rate",
            "Figure 1 of the paper. SSA moves by random displacements and the Metropolis rule "
            f"alone. {_LINES}",
            _performance(study, pair, "figure-1"),
        )
    ]


def _figure_2(study: Study) -> list[Plate]:
    moving = _with_moves(study)
    if not moving:
        return []
    panels = [
        _panel(
            study,
            "accept_probability",
            "figure-2-accept-probability",
            "Mean probability of accepting a move",
            partial(annealing.probability, study=study, methods=moving),
        ),
        _panel(
            study,
            "train_eval_accuracy",
            "figure-2-training-accuracy",
            "Training accuracy",
            _curve(study, study.methods, "train_eval_accuracy", "training accuracy"),
        ),
    ]
    sample = study.experiment.get("train_sample", 10)
    return [
        Plate(
            "figure-2",
            "Optimization on the training set",
            "Figure 2 of the paper. (a) min(1, exp(\N{MINUS SIGN}worsening / T)), averaged over "
            f"the moves of an epoch. (b) Accuracy on {sample} random training minibatches. "
            f"{_LINES}",
            _kept(panels),
        )
    ]


def _figures_3_and_4(study: Study) -> list[Plate]:
    if set(_of_kind(study, "ssa", "sgd")) == set(study.methods) and _figure_1(study):
        return []  # Figure 1 shows all there is
    model, data = (str(study.experiment.get(key, "")) for key in ("model", "data"))
    if data == "cifar10" and model.startswith("resnet34"):
        which = f"Figure 3 of the paper (ResNet34 on CIFAR-10), here {model}"
    elif data == "cifar10" and model.startswith("vgg16"):
        which = f"Figure 4 of the paper (VGG16 on CIFAR-10), here {model}"
    else:
        which = "What Figures 3 and 4 of the paper show for ResNet34 and VGG16 on CIFAR-10"
    return [
        Plate(
            "figure-3-4",
            "Training and validation, epoch by epoch",
            f"{which}. {_LINES}",
            _performance(study, study.methods, "figure-3-4"),
        )
    ]


def _long_version(study: Study) -> list[Plate]:
    moving = _with_moves(study)
    drawing: dict[str, Any] = {"study": study, "methods": moving}
    panels = [
        _panel(
            study,
            "worsening_accept_probability",
            "long-probability-decay",
            "Probability decay: mean probability of accepting a worsening move",
            partial(annealing.probability, key="worsening_accept_probability", **drawing),
        ),
        _panel(
            study,
            "temperature",
            "long-temperature",
            "Temperature of the accept test",
            partial(annealing.temperature, **drawing),
        ),
        _panel(
            study,
            "rejected_worsening",
            "long-worsening-moves",
            "Accepted and rejected worsening moves of an epoch",
            partial(annealing.worsening_moves, **drawing),
        ),
    ]
    return [
        Plate(
            "long-version",
            "The accept test, epoch by epoch",
            "The two figures of the paper's long version (probability decay; accepted and rejected "
            "worsening moves), and the temperature behind them. No temperature is drawn where it "
            f"is infinite and every finite move is accepted. {_LINES}",
            _kept(panels),
        )
    ]


def _settings(study: Study) -> list[Plate]:
    panels = []
    for place, method in enumerate(study.methods, 1):
        found = settings.acceptance_map(study.of(method))
        if found is not None:
            name = f"settings-{place}-{_slug(method)}".rstrip("-")
            draw = partial(settings.draw_acceptance, found=found)
            panels.append(Panel(name, f"Settings accepted: {method}", draw, found.height))
    return [
        Plate(
            "settings",
            "Which settings were accepted when",
            "Beyond the paper. The share of the moves with each setting of H that was accepted, "
            "over all seeds; grey where the setting was not tried.",
            tuple(panels),
        )
    ]


def _spread(study: Study) -> list[Plate]:
    measure = main_measure(study)
    panels = []
    if any(scores_of(study, method, measure) for method in study.methods):
        panels += _score_panels(study, measure)
    if spread.can_draw_deviation(study):
        draw = partial(spread.deviation_over_epochs, study=study, methods=study.methods)
        title = "Deviation between seeds of the validation accuracy"
        panels.append(Panel("spread-deviation", title, draw))
    return [
        Plate(
            "spread",
            "How much the seed matters",
            "Beyond the paper. Boxes span the quartiles, lines the whole range; each point is a "
            "seed. The paper holds that the seed matters little for SGD and much for SGD-SA.",
            tuple(panels),
        )
    ]


def _score_panels(study: Study, measure: Measure) -> list[Panel]:
    title = measure.title.capitalize()
    height = min(6.0, max(2.2, 1.0 + 0.4 * len(study.methods)))
    boxes = partial(spread.boxes, study=study, measure=measure)
    seeds = partial(spread.by_seed, study=study, measure=measure)
    return [
        Panel("spread-boxes", f"{title}, by method", boxes, height),
        Panel("spread-seeds", f"{title}, by seed", seeds),
    ]


def _costs(study: Study) -> list[Plate]:
    drawing: dict[str, Any] = {"study": study, "methods": study.methods}
    currencies: tuple[tuple[costs.Currency, str], ...] = (
        ("passes", "Validation accuracy against forwards and backwards"),
        ("seconds", "Validation accuracy against training time"),
    )
    panels = [
        Panel(
            f"cost-{currency}",
            title,
            partial(costs.accuracy_against_cost, currency=currency, **drawing),
        )
        for currency, title in currencies
        if costs.can_draw_cost(study, currency)
    ]
    return [
        Plate(
            "costs",
            "What accuracy costs",
            "Beyond the paper. The mean over finished runs; a marker where each run ended. A "
            "backward is counted as two forwards, and evaluation not at all. Time depends on the "
            "machine and on what else it was doing.",
            tuple(panels),
        )
    ]


def _performance(study: Study, methods: Sequence[str], prefix: str) -> tuple[Panel, ...]:
    """Return the four panels of Figures 1, 3 and 4."""
    panels = []
    for quantity in ("loss", "accuracy"):
        key, title = f"validation_{quantity}", f"validation {quantity}"
        draw = _curve(study, methods, key, title)
        name = f"{prefix}-{title.replace(' ', '-')}"
        panels.append(_panel(study, key, name, title.capitalize(), draw, methods))
    for quantity in ("loss", "accuracy"):
        draw = partial(
            curves.train_against_validation, study=study, methods=methods, quantity=quantity
        )
        title = f"{quantity.capitalize()}: training against validation"
        key = f"train_eval_{quantity}"
        panels.append(_panel(study, key, f"{prefix}-{quantity}-comparison", title, draw, methods))
    return _kept(panels)


def _panel(
    study: Study,
    key: str,
    name: str,
    title: str,
    draw: Callable[..., Any],
    methods: Sequence[str] | None = None,
) -> Panel | None:
    """Return a panel, None if no run has recorded what it shows."""
    if not curves.has(study, study.methods if methods is None else methods, key):
        return None
    return Panel(name, title, draw)


def _curve(study: Study, methods: Sequence[str], key: str, title: str) -> Callable[..., Any]:
    return partial(curves.over_epochs, study=study, methods=methods, key=key, title=title)


def _kept(panels: Sequence[Panel | None]) -> tuple[Panel, ...]:
    return tuple(panel for panel in panels if panel is not None)


def _of_kind(study: Study, *kinds: str) -> list[str]:
    return [method for method in study.methods if kind_of(study, method) in kinds]


def _with_moves(study: Study) -> list[str]:
    return [
        method
        for method in study.methods
        if curves.has(study, [method], "accept_probability")
        or curves.has(study, [method], "rejected_worsening")
    ]


def _slug(text: str) -> str:
    """Return what is left of a name in a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:40].strip("-")
