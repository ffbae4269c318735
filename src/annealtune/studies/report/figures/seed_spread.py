"""How far the seeds of a method lie apart."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter

from annealtune.studies.records import Study
from annealtune.studies.statistics.summaries import Statistics, scores_of

from .curves import stack
from .end_labels import EndLabel, name_ends
from .hover import show_values
from .limits import curve_limits
from .looks import looks_of
from .score_axis import fit_score_axis
from .style import FAINT, THICK, count_epochs

_SEED_LABELS = 20


def by_seed(axes: Axes, study: Study, statistics: Statistics) -> Axes:
    """Draw the scores of all methods, one column for each seed."""
    measure = statistics.measure
    scores = {method: scores_of(study, method, measure) for method in study.methods}
    places = {seed: place for place, seed in enumerate(study.seeds)}
    for seed, place in places.items():
        values = [each[seed] for each in scores.values() if seed in each]
        if len(values) > 1:
            axes.plot([place, place], [min(values), max(values)], color=FAINT, linewidth=2)
    # Equal scores would hide one another: the methods are set apart.
    shifts = np.linspace(-0.25, 0.25, len(scores)) if len(scores) > 1 else [0.0]
    looks = looks_of(study)
    ends = []
    for shift, (method, each) in zip(shifts, scores.items(), strict=True):
        look = looks[method]
        columns = [places[seed] + shift for seed in each]
        values = list(each.values())
        axes.plot(columns, values, look.marker, color=look.colour, markersize=5.5, alpha=0.9)
        texts = [f"{study.vary} {seed}: {measure.text(value)}" for seed, value in each.items()]
        show_values(axes, method, look.colour, columns, values, texts)
        if each:
            ends.append(EndLabel(method, look.colour, float(np.mean(values))))
    fit_score_axis(axes, measure, [s for each in scores.values() for s in each.values()])
    every = -(-len(places) // _SEED_LABELS)
    axes.xaxis.set_major_locator(FixedLocator(list(range(0, len(places), every))))
    names = [str(seed) for seed in study.seeds]
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda place, _: names[round(place)] if 0 <= place < len(names) else "")
    )
    axes.set_xlim(-0.6, len(places) - 0.4)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel(study.vary.replace("_", " "))
    axes.set_ylabel(measure.title if measure.higher_is_better else f"{measure.title}, lower is up")
    name_ends(axes, ends)
    return axes


def deviation_over_epochs(axes: Axes, study: Study, key: str) -> Axes:
    """Draw the deviation of a number between finished seeds, epoch by epoch."""
    looks = looks_of(study)
    found = {}
    for method in study.methods:
        epochs, rows = stack(study.of(method), key)
        if len(rows) > 1:
            found[method] = rows.std(axis=0, ddof=1)
            look = looks[method]
            axes.plot(epochs, found[method], color=look.colour, linestyle=look.dashes, **THICK)
            texts = [
                f"epoch {e:g}: {_deviation(key, value)}"
                for e, value in zip(epochs, found[method], strict=True)
            ]
            columns = epochs.tolist(), found[method].tolist()
            show_values(axes, method, look.colour, *columns, texts, is_line=True)
    count_epochs(axes)
    limits = curve_limits(found.values(), may_be_log=False)
    axes.set_ylim(0, limits.high if limits and limits.high > 0 else None)
    axes.set_ylabel("deviation (points)" if key.endswith("accuracy") else "deviation")
    if key.endswith("accuracy"):
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}"))
    known = {m: each[np.isfinite(each)] for m, each in found.items()}
    name_ends(
        axes,
        [EndLabel(m, looks[m].colour, float(each[-1])) for m, each in known.items() if each.size],
    )
    return axes


def can_draw_deviation(study: Study, key: str) -> bool:
    """Whether any method has two finished runs with this number."""
    stacks = [stack(study.of(method), key)[1] for method in study.methods]
    return any(len(rows) > 1 and np.isfinite(rows).any() for rows in stacks)


def _deviation(key: str, value: float) -> str:
    return f"{100 * value:.2f} points" if key.endswith("accuracy") else f"{value:.3g}"
