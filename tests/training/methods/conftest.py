"""What the methods leave behind."""

import pytest

from annealtune.training.storage.directory import RunDirectory


@pytest.fixture
def weights_of():
    """The weights at the end of a run, as its last checkpoint has them."""
    return lambda path: RunDirectory(path).load(pytest.fail)["model"]
