"""Which figures a study has, and which figure of the paper each one is."""

import re
from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.axes import Axes

from annealtune.studies.records import Study
from annealtune.studies.statistics.measures import kind_of, main_measure
from annealtune.studies.statistics.summaries import scores_of

from . import accept_test, accuracy_cost, curves, seed_spread, setting_map
from .panels import Panel, Plate

_LINES = "A thin line for each seed, a thick one for their mean; dotted: runs that did not finish."


def plates(study: Study) -> list[Plate]:
    """Return every figure that the records of a study allow, those of the paper first.

    Args:
        study: finished or not; what no run has recorded is left out.
    """
    makers: tuple[Callable[[Study], Plate], ...] = (
        _figure_1,
        _figure_2,
        _figures_3_and_4,
        _long_version,
        _settings,
        _spread,
        _costs,
    )
    return [plate for make in makers if (plate := make(study)).panels]


def _figure_1(study: Study) -> Plate:
    pair = _of_kind(study, "ssa", "sgd")
    is_there = _of_kind(study, "ssa") and _of_kind(study, "sgd")
    return Plate(
        "figure-1",
        "Without gradients: SSA against SGD at a constant rate",
        "Figure 1 of the paper. SSA moves by random displacements and the Metropolis rule "
        f"alone. {_LINES}",
        _performance(study, pair, "figure-1") if is_there else (),
    )


def _figure_2(study: Study) -> Plate:
    moving = _with_moves(study)
    accuracy = "train_eval_accuracy"
    panels = _recorded(
        study,
        study.methods if moving else [],
        {
            "accept_probability": Panel(
                "figure-2-accept-probability",
                "Mean probability of accepting a move",
                partial(accept_test.probability, study=study, methods=moving),
            ),
            accuracy: Panel(
                "figure-2-training-accuracy",
                "Training accuracy",
                _curve(study, study.methods, accuracy, "training accuracy"),
            ),
        },
    )
    sample = study.experiment.get("train_sample", 10)
    return Plate(
        "figure-2",
        "Optimization on the training set",
        "Figure 2 of the paper. (a) min(1, exp(\N{MINUS SIGN}worsening / T)), averaged over "
        f"the moves of an epoch. (b) Accuracy on {sample} random training minibatches. "
        f"{_LINES}",
        panels,
    )


def _figures_3_and_4(study: Study) -> Plate:
    model, data = (str(study.experiment.get(key, "")) for key in ("model", "data"))
    if data == "cifar10" and model.startswith("resnet34"):
        which = f"Figure 3 of the paper (ResNet34 on CIFAR-10), here {model}"
    elif data == "cifar10" and model.startswith("vgg16"):
        which = f"Figure 4 of the paper (VGG16 on CIFAR-10), here {model}"
    else:
        which = "What Figures 3 and 4 of the paper show for ResNet34 and VGG16 on CIFAR-10"
    figure_1_shows_all = (
        len(_of_kind(study, "ssa", "sgd")) == len(study.methods) and _figure_1(study).panels
    )
    return Plate(
        "figure-3-4",
        "Training and validation, epoch by epoch",
        f"{which}. {_LINES}",
        () if figure_1_shows_all else _performance(study, study.methods, "figure-3-4"),
    )


def _long_version(study: Study) -> Plate:
    moving = _with_moves(study)
    decay = "worsening_accept_probability"
    panels = {
        decay: Panel(
            "long-probability-decay",
            "Probability decay: mean probability of accepting a worsening move",
            partial(accept_test.probability, study=study, methods=moving, key=decay),
        ),
        "temperature": Panel(
            "long-temperature",
            "Temperature of the accept test",
            partial(accept_test.temperature, study=study, methods=moving),
        ),
        "rejected_worsening": Panel(
            "long-worsening-moves",
            "Accepted and rejected worsening moves of an epoch",
            partial(accept_test.worsening_moves, study=study, methods=moving),
        ),
    }
    return Plate(
        "long-version",
        "The accept test, epoch by epoch",
        "The two figures of the paper's long version (probability decay; accepted and rejected "
        "worsening moves), and the temperature behind them. No temperature is drawn where it "
        f"is infinite and every finite move is accepted. {_LINES}",
        _recorded(study, study.methods, panels),
    )


def _settings(study: Study) -> Plate:
    panels = []
    for place, method in enumerate(study.methods, 1):
        found = setting_map.acceptance_map(study.of(method))
        if found is not None:
            slug = re.sub(r"[^a-z0-9]+", "-", method.lower())[:40].strip("-")
            name = f"settings-{place}-{slug}".rstrip("-")
            draw = partial(setting_map.draw_acceptance, found=found)
            panels.append(Panel(name, f"Settings accepted: {method}", draw, found.height))
    return Plate(
        "settings",
        "Which settings were accepted when",
        "Beyond the paper. The share of the moves with each setting of H that was accepted, "
        "over all seeds; grey where the setting was not tried.",
        tuple(panels),
    )


def _spread(study: Study) -> Plate:
    measure = main_measure(study)
    panels = []
    if any(scores_of(study, method, measure) for method in study.methods):
        title = measure.title.capitalize()
        height = min(6.0, max(2.2, 1.0 + 0.4 * len(study.methods)))
        boxes = partial(seed_spread.boxes, study=study, measure=measure)
        seeds = partial(seed_spread.by_seed, study=study, measure=measure)
        panels += [
            Panel("spread-boxes", f"{title}, by method", boxes, height),
            Panel("spread-seeds", f"{title}, by seed", seeds),
        ]
    if seed_spread.can_draw_deviation(study):
        title = "Deviation between seeds of the validation accuracy"
        deviation = partial(seed_spread.deviation_over_epochs, study=study)
        panels.append(Panel("spread-deviation", title, deviation))
    return Plate(
        "spread",
        "How much the seed matters",
        "Beyond the paper. Boxes span the quartiles, lines the whole range; each point is a "
        "seed. The paper says that the seed matters little for SGD and much for SGD-SA.",
        tuple(panels),
    )


def _costs(study: Study) -> Plate:
    currencies: dict[accuracy_cost.Currency, str] = {
        "passes": "Validation accuracy against forwards and backwards",
        "seconds": "Validation accuracy against training time",
    }
    panels = [
        Panel(
            f"cost-{currency}",
            title,
            partial(accuracy_cost.accuracy_against_cost, study=study, currency=currency),
        )
        for currency, title in currencies.items()
        if accuracy_cost.can_draw_cost(study, currency)
    ]
    return Plate(
        "costs",
        "What accuracy costs",
        "Beyond the paper. The mean over finished runs; a marker where each run ended. A "
        "backward is counted as two forwards, and evaluation not at all. Time depends on the "
        "machine and on what else it was doing.",
        tuple(panels),
    )


def _performance(study: Study, methods: Sequence[str], prefix: str) -> tuple[Panel, ...]:
    """Return the four panels of Figures 1, 3 and 4."""
    panels = {}
    for quantity in ("loss", "accuracy"):
        key, title = f"validation_{quantity}", f"validation {quantity}"
        draw = _curve(study, methods, key, title)
        panels[key] = Panel(f"{prefix}-validation-{quantity}", title.capitalize(), draw)
    for quantity in ("loss", "accuracy"):
        title = f"{quantity.capitalize()}: training against validation"
        draw = partial(
            curves.train_against_validation, study=study, methods=methods, quantity=quantity
        )
        panels[f"train_eval_{quantity}"] = Panel(f"{prefix}-{quantity}-comparison", title, draw)
    return _recorded(study, methods, panels)


def _recorded(study: Study, methods: Sequence[str], panels: dict[str, Panel]) -> tuple[Panel, ...]:
    """Return the panels whose key a run of these methods has recorded."""
    return tuple(panel for key, panel in panels.items() if curves.has(study, methods, key))


def _curve(study: Study, methods: Sequence[str], key: str, title: str) -> Callable[[Axes], Axes]:
    return partial(curves.over_epochs, study=study, methods=methods, key=key, title=title)


def _of_kind(study: Study, *kinds: str) -> list[str]:
    return [method for method in study.methods if kind_of(study, method) in kinds]


def _with_moves(study: Study) -> list[str]:
    return [
        method
        for method in study.methods
        if curves.has(study, [method], "accept_probability")
        or curves.has(study, [method], "rejected_worsening")
    ]
