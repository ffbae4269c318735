"""The examples in the docstrings are so."""

import doctest
from types import ModuleType

import pytest

from annealtune.studies import plan, records, reproduction
from annealtune.studies.report import method_tables, table_files
from annealtune.studies.report.figures import compact_svg, end_labels, style
from annealtune.studies.statistics import comparisons, measures

MODULES = [
    plan,
    records,
    reproduction,
    comparisons,
    measures,
    method_tables,
    table_files,
    compact_svg,
    end_labels,
    style,
]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_the_docstrings(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
