"""Every example in the docstrings of this room runs as it is printed."""

import doctest
import importlib
import pkgutil

import pytest

import annealtune.training as package

MODULES = [m.name for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run_as_printed(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
