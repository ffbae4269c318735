"""Every example in the docstrings outside `optim` runs as it is printed."""

import doctest
import importlib
import pkgutil

import pytest

from annealtune import annealing, studies, training

MODULES = ["annealtune.errors", "annealtune.search"] + [
    module.name
    for package in (annealing, training, studies)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run_as_printed(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
