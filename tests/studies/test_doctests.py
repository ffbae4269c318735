"""The examples in the docstrings are so."""

import doctest
import importlib
import pkgutil

import pytest

from annealtune import studies

NAMES = [each.name for each in pkgutil.walk_packages(studies.__path__, "annealtune.studies.")]


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_the_docstrings(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
