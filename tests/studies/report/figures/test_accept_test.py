"""Probabilities, temperature and worsening moves, by hand."""

import numpy as np
import pytest

from annealtune.studies.records import Study
from annealtune.studies.report.figures import (
    accept_test,
)
from annealtune.studies.report.figures.style import blank, style


def test_probability_temperature_and_moves(three_methods: Study) -> None:
    drawing = {"study": three_methods, "methods": ["sgd-sa"]}
    with style():
        probability = accept_test.probability(blank(), **drawing)
        temperature = accept_test.temperature(blank(), **drawing)
        moves = accept_test.worsening_moves(blank(), **drawing)
    assert probability.lines[-1].get_ydata() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    warmth = np.asarray(temperature.lines[-1].get_ydata())
    assert np.isnan(warmth[0])  # infinite
    assert warmth[1:] == pytest.approx([1e-2, 1e-3, 1e-4])
    assert temperature.get_yscale() == "log"
    accepted, rejected = moves.lines[1], moves.lines[3]
    assert accepted.get_ydata() == pytest.approx([3, 2, 1, 0])
    assert rejected.get_ydata() == pytest.approx([1, 2, 3, 4])
    assert (accepted.get_linestyle(), rejected.get_linestyle()) == ("-", ":")
