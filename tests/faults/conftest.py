"""Runs of a fraction of a second and the program warmed up, as the tests of training have them."""

import shutil
from pathlib import Path

import pytest

from tests.training.conftest import (  # noqa: F401
    _known_outcomes,
    _warm_program,
    at_call,
    cold_environment,
    complete,
    contents,
    lines_of,
    newest,
    outcome,
    place,
    program,
    start,
    tiny,
    tiny_flags,
    undisturbed,
    unseal,
)
from tests.training.data.conftest import server  # noqa: F401

from .seeds import make_seeds


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Runs and a study, which nobody may change."""
    return make_seeds(tmp_path_factory.mktemp("made"))


@pytest.fixture
def unfinished(made, tmp_path):
    return Path(shutil.copytree(made / "runs" / "unfinished", tmp_path / "left"))


@pytest.fixture
def finished(made, tmp_path):
    return Path(shutil.copytree(made / "runs" / "sgd-sa", tmp_path / "run"))
