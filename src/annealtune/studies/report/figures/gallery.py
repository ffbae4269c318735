"""Which figures a study has. On the pages of the paper's own studies, which one of it each is."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from matplotlib.axes import Axes

from annealtune.studies.records import Study
from annealtune.studies.reproduction import PAPER_STUDIES
from annealtune.studies.statistics.measures import (
    Measure,
    has_only_losses,
    kind_of,
    main_measure,
)
from annealtune.studies.statistics.summaries import Statistics

from . import accept_test, curves, rates, score_cost, seed_spread, setting_map
from .panels import Panel, Plate


def plates(study: Study, statistics: Mapping[Measure, Statistics]) -> list[Plate]:
    """Return every figure that the records of a study allow.

    Args:
        study: finished or not; what no run has recorded is left out.
        statistics: by measure, as `study_statistics` returns them.
    """
    spread = partial(_spread, found=statistics.get(main_measure(study)))
    makers: tuple[Callable[[Study], Plate], ...] = (
        _rates,
        _without_gradients,
        _performance_of_all,
        _accept_test,
        _settings,
        spread,
        _costs,
    )
    return [plate for make in makers if (plate := make(study)).panels or plate.caption]


def _rates(study: Study) -> Plate:
    title = "The rate over time"
    methods = rates.methods_with_rates(study)
    if methods and all(rates.is_constant(study, method) for method in methods):
        values = (f"{m} {rates.rate_curve(rates.first_run(study, m))[1][0]:.2g}" for m in methods)
        return _plate(
            "rates", title, [f"Constant from first to last epoch: {_all([*values])}."], []
        )
    draw = partial(rates.draw, study=study, methods=methods)
    panel = Panel("rates", "Learning rate", draw, 3.4, is_wide=True)
    return _plate("rates", title, rates.told(study, methods), [panel] if methods else [])


def _without_gradients(study: Study) -> Plate:
    pair = _of_kind(study, "ssa", "sgd")
    is_there = _is_of_paper(study) and _of_kind(study, "ssa") and _of_kind(study, "sgd")
    return _plate(
        "figure-1",
        "Without gradients: SSA against SGD at a constant rate",
        [
            "Figure 1 of the paper. SSA moves by random displacements and the Metropolis rule "
            "alone.",
            _lines(study, pair),
        ],
        _performance(study, pair, "figure-1") if is_there else [],
    )


def _performance_of_all(study: Study) -> Plate:
    if _without_gradients(study).panels and len(_of_kind(study, "ssa", "sgd")) == len(
        study.methods
    ):
        return _plate("curves", "", [], [])  # Figure 1 shows the same
    return _plate(
        "curves",
        "Training and validation, epoch by epoch",
        [
            _of_paper(study, _which_figure(study)),
            _lines(study, study.methods),
        ],
        _performance(study, study.methods, "curves"),
    )


def _which_figure(study: Study) -> str:
    model = str(study.experiment.get("model", ""))
    if study.experiment.get("data") == "cifar10" and model.startswith("resnet34"):
        return f"Figure 3 of the paper (ResNet34 on CIFAR-10), here {model}."
    if study.experiment.get("data") == "cifar10" and model.startswith("vgg16"):
        return f"Figure 4 of the paper (VGG16 on CIFAR-10), here {model}."
    return "What Figures 3 and 4 of the paper show for ResNet34 and VGG16 on CIFAR-10."


def _accept_test(study: Study) -> Plate:
    moving = _with_moves(study)
    decay = "worsening_accept_probability"
    panels = {
        "accept_probability": Panel(
            "accept-probability",
            "Mean probability of accepting a move",
            partial(accept_test.probability, study=study, methods=moving),
        ),
        decay: Panel(
            "accept-worsening",
            "Mean probability of accepting a worsening move",
            partial(accept_test.probability, study=study, methods=moving, key=decay),
        ),
        "temperature": Panel(
            "accept-temperature",
            "Temperature of the accept test",
            partial(accept_test.temperature, study=study, methods=moving),
        ),
        "rejected_worsening": Panel(
            "accept-worsening-moves",
            "Accepted and rejected worsening moves of an epoch",
            partial(accept_test.worsening_moves, study=study, methods=moving),
        ),
    }
    return _plate(
        "accept-test",
        "The accept test, epoch by epoch",
        [
            _of_paper(
                study,
                "(a) is the left half of the paper's Figure 2, whose right half is the training "
                "accuracy above; (b) and the last are the two figures of its long version.",
            ),
            "A move is accepted with the probability min(1, exp(\N{MINUS SIGN}worsening / T)). "
            "No temperature is drawn where it is infinite and every finite move is accepted.",
            _lines(study, moving),
        ],
        _recorded(study, moving, panels),
    )


def _settings(study: Study) -> Plate:
    panels, level = [], []
    for place, method in enumerate(study.methods, 1):
        found = setting_map.acceptance_map(study.of(method))
        if found is None:
            continue
        if not found.differs:
            share = float(found.rates[found.rates == found.rates].mean())
            level.append(f"{method} ({100 * share:.0f} %)")
            continue
        slug = re.sub(r"[^a-z0-9]+", "-", method.lower())[:40].strip("-")
        name = f"settings-{place}-{slug}".rstrip("-")
        draw = partial(setting_map.draw_acceptance, found=found)
        panels.append(Panel(name, f"Settings accepted: {method}", draw, found.height))
    pieces = [
        "The share of the moves with each setting of H that was accepted, over all seeds; grey "
        "where the setting was not tried."
        if panels
        else "",
        f"Every setting was accepted equally often, in every epoch: {_all(level)}."
        if level
        else "",
    ]
    return _plate("settings", "Which settings were accepted when", pieces, panels)


def _spread(study: Study, found: Statistics | None) -> Plate:
    panels = []
    if found is not None and len(study.seeds) > 1 and len(study.methods) <= curves.FEW_METHODS:
        seeds = partial(seed_spread.by_seed, study=study, statistics=found)
        title = f"{found.measure.title}, by {study.vary.replace('_', ' ')}"
        panels.append(Panel("spread-seeds", title[0].upper() + title[1:], seeds))
    key = f"validation_{_quantity(study)}"
    if seed_spread.can_draw_deviation(study, key):
        title = f"Deviation between seeds of the validation {_quantity(study)}"
        deviation = partial(seed_spread.deviation_over_epochs, study=study, key=key)
        panels.append(Panel("spread-deviation", title, deviation))
    remark = "The paper says that the seed matters little for SGD and much for SGD-SA."
    pieces = ["How far the runs of one method lie apart.", _of_paper(study, remark)]
    return _plate("spread", "How much the seed matters", pieces, panels)


def _costs(study: Study) -> Plate:
    quantity = _quantity(study)
    draw = partial(score_cost.score_against_passes, study=study, quantity=quantity)
    panel = Panel("cost-passes", f"Validation {quantity} against passes", draw)
    return _plate(
        "costs",
        f"What {'accuracy' if quantity == 'accuracy' else 'a low loss'} costs",
        [
            "The mean over finished runs, over the forwards and backwards made so far, those of "
            "probes and races included. A backward is counted as two forwards, and evaluation not "
            "at all."
        ],
        [panel] if score_cost.can_draw(study, quantity) else [],
    )


def _performance(study: Study, methods: Sequence[str], prefix: str) -> list[Panel]:
    """Return loss and accuracy on the validation set, and beside them on the training set."""
    panels = {}
    is_few = len(methods) <= curves.FEW_METHODS
    for quantity in ("loss", "accuracy"):
        key, title = f"validation_{quantity}", f"validation {quantity}"
        draw = _curve(study, methods, key, title)
        panels[key] = Panel(f"{prefix}-validation-{quantity}", title.capitalize(), draw)
    for quantity in ("loss", "accuracy"):
        key = f"train_eval_{quantity}"
        if is_few:
            title = f"{quantity.capitalize()}: training against validation"
            draw = partial(
                curves.train_against_validation, study=study, methods=methods, quantity=quantity
            )
            panels[key] = Panel(f"{prefix}-{quantity}-comparison", title, draw)
        else:
            title = f"training {quantity}"
            draw = _curve(study, methods, key, title)
            panels[key] = Panel(f"{prefix}-training-{quantity}", title.capitalize(), draw)
    return _recorded(study, methods, panels)


def _lines(study: Study, methods: Sequence[str]) -> str:
    """Say what the lines are."""
    is_broken = any(run.status in ("failed", "unfinished") and run.metrics for run in study.runs)
    pieces = [
        "thick, the mean of the seeds; thin, each seed"
        if len(methods) <= curves.FEW_METHODS
        else "the mean of the seeds",
        "dotted, runs that did not finish" if is_broken else "",
    ]
    return f"Lines: {'; '.join(filter(None, pieces))}."


def _plate(name: str, title: str, pieces: Sequence[str], panels: Sequence[Panel]) -> Plate:
    is_there = bool(panels) or name in ("settings", "rates")  # those may be a sentence
    return Plate(name, title, " ".join(filter(None, pieces)) if is_there else "", tuple(panels))


def _recorded(study: Study, methods: Sequence[str], panels: dict[str, Panel]) -> list[Panel]:
    """Return the panels whose key a run of these methods has recorded."""
    return [panel for key, panel in panels.items() if curves.has(study, methods, key)]


def _curve(study: Study, methods: Sequence[str], key: str, title: str) -> Callable[[Axes], Axes]:
    return partial(curves.over_epochs, study=study, methods=methods, key=key, title=title)


def _quantity(study: Study) -> score_cost.Quantity:
    return "loss" if has_only_losses(study) else "accuracy"


def _is_of_paper(study: Study) -> bool:
    return study.name in PAPER_STUDIES


def _of_paper(study: Study, text: str) -> str:
    """Return words about the paper on the pages of its own studies, nothing on others."""
    return text if _is_of_paper(study) else ""


def _of_kind(study: Study, *kinds: str) -> list[str]:
    return [method for method in study.methods if kind_of(study, method) in kinds]


def _with_moves(study: Study) -> list[str]:
    return [
        method
        for method in study.methods
        if curves.has(study, [method], "accept_probability")
        or curves.has(study, [method], "rejected_worsening")
    ]


def _all(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
