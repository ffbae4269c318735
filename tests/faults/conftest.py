"""Runs of a fraction of a second and the program warmed up, as the tests of training have them."""

from tests.training.conftest import (  # noqa: F401
    _known_outcomes,
    at_call,
    cold_environment,
    complete,
    contents,
    default_setup,
    lines_of,
    newest,
    outcome,
    seal_again,
    tiny,
    tiny_flags,
    undisturbed,
)
from tests.training.data.conftest import server  # noqa: F401
