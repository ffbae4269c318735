"""The public names: each leads somewhere, and none costs anything before it is used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import annealtune

PACKAGE = Path(annealtune.__file__).parent


def test_importing_annealtune_does_not_import_torch():
    code = "import sys, annealtune; dir(annealtune); sys.exit('torch' in sys.modules)"
    environment = {"PYTHONPATH": str(PACKAGE.parent)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


@pytest.mark.parametrize("name", annealtune.__all__)
def test_every_public_name_leads_somewhere(name):
    value = getattr(annealtune, name)
    assert getattr(value, "__name__", name) == name
    assert name in dir(annealtune)


def test_names_that_everything_relies_on():
    wanted = {"SelfTuner", "SGDSA", "EmbeddedTuner", "StochasticSA", "grid", "Annealer"}
    assert wanted <= set(annealtune.__all__)
    from annealtune.annealing import grid
    from annealtune.optim import SelfTuner

    assert (annealtune.SelfTuner, annealtune.grid) == (SelfTuner, grid)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'annealtune' has no attribute 'SelfTunr'"):
        annealtune.SelfTunr  # noqa: B018


def test_a_type_checker_sees_what_is_exported():
    """In a stub, ``import X as X`` exports X; plain ``import X`` does not."""
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    lines = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    assert {line.module for line in lines} == {"optim", "annealing", "search", "training", "errors"}
    assert all(each.name == each.asname for line in lines for each in line.names)
