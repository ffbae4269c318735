"""The public names: each leads somewhere, and torch is not imported before it is needed."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import annealtune

ENVIRONMENT = {"PYTHONPATH": str(Path(annealtune.__file__).parents[1])}


def test_importing_annealtune_does_not_import_torch():
    code = "import sys, annealtune; dir(annealtune); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, check=True)


@pytest.mark.parametrize(
    "module", ["annealtune", "annealtune.strategies", "annealtune.temperatures"]
)
def test_every_public_name_leads_somewhere(module):
    found = import_module(module)
    for name in found.__all__:
        assert getattr(found, name).__name__ == name
        assert name in dir(found)


def test_the_first_room_is_small():
    assert len(annealtune.__all__) <= 14
    wanted = {"SelfTuner", "SGDSA", "EmbeddedTuner", "StochasticSA", "grid", "Annealer", "load"}
    assert wanted <= set(annealtune.__all__)
