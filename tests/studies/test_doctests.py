"""The examples in the docstrings are so."""

import doctest
from types import ModuleType

import pytest

from annealtune.studies import best_seed, plan, records
from annealtune.studies.report import table_1, tables
from annealtune.studies.report.figures import curves, style
from annealtune.studies.statistics import measures, summaries

MODULES = [
    best_seed,
    plan,
    records,
    measures,
    summaries,
    tables,
    table_1,
    curves,
    style,
]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_the_docstrings(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
