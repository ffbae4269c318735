"""Every example in the docstrings of this room runs as it is printed."""

import doctest
import importlib
import pkgutil

import pytest

import annealtune.training as package

# Data sets and nets have their own.
MODULES = [m.name for m in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run_as_printed(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_the_examples_are_found():
    attempted = [doctest.testmod(importlib.import_module(name)).attempted for name in MODULES]
    assert sum(attempted) >= 5
