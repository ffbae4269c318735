"""The learning rate over the epochs, by hand."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from annealtune.studies.records import Study, read_study
from annealtune.studies.report.figures import rates
from annealtune.studies.report.figures.style import blank, style


def test_the_rate_that_was_used(make_study: Callable[..., Study]) -> None:
    study = make_study({"adamw": {0: {"metric": {"rate": 0.01}}, 1: {"metric": {"rate": 0.04}}}})
    epochs, found = rates.rate_curve(study.runs[0])
    assert epochs.tolist() == [1, 2, 3, 4]
    assert found.tolist() == [0.01] * 4
    with style():
        axes = rates.draw(blank(), study, ["adamw"])
    mean = axes.lines[-1]
    assert np.asarray(mean.get_ydata()) == pytest.approx([0.02] * 4)  # the geometric one
    assert axes.get_yscale() == "log"


def test_the_rates_of_accepted_steps(make_study: Callable[..., Study]) -> None:
    """Three of 0.1 and one of 0.001 were accepted: 10 ** -(3 * 1 + 1 * 3) / 4."""
    study = make_study({"sgd-sa": {0: {}}})
    settings = [
        {"setting": {"lr": 0.1}, "tried": 9, "accepted": 3},
        {"setting": {"lr": 0.001}, "tried": 1, "accepted": 1},
        {"setting": {"lr": 9.0}, "tried": 5, "accepted": 0},
        {"setting": {"momentum": 0.9}, "tried": 5, "accepted": 5},
    ]
    lines = [{"epoch": 1, "settings": settings}, {"epoch": 2, "settings": []}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (study.runs[0].path / "moves.jsonl").write_text(text)
    epochs, found = rates.rate_curve(read_study(study.path).runs[0])
    assert epochs.tolist() == [1]
    assert found == pytest.approx([10**-1.5])


def test_a_rate_that_decays_to_nothing_leaves_the_axis(make_study: Callable[..., Study]) -> None:
    study = make_study({"adamw": {0: {}}, "self-tuned": {0: {"metric": {"rate": 0.1}}}})
    lines = [json.dumps({"epoch": e, "rate": 10.0 ** (-2 * e)}) for e in range(1, 6)]
    (study.runs[0].path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    study = read_study(study.path)
    assert rates.methods_with_rates(study) == ["adamw", "self-tuned"]
    with style():
        axes = rates.draw(blank(), study, study.methods)
    low, high = axes.get_ylim()
    assert low == pytest.approx(0.01 / 30)
    assert high == pytest.approx(0.15)


def test_one_constant_rate_has_an_axis_around_it(make_study: Callable[..., Study]) -> None:
    study = make_study({"adamw": {0: {"metric": {"rate": 0.003}}}})
    with style():
        low, high = rates.draw(blank(), study, ["adamw"]).get_ylim()
    assert low < 0.003 < high


def test_no_rate_is_known(make_study: Callable[..., Study]) -> None:
    assert rates.methods_with_rates(make_study({"sgd": {0: {}, 1: None}})) == []
