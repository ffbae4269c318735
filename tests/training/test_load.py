"""The best model of a run, without the run's data."""

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import annealtune
from annealtune.errors import ConfigError, RunError
from annealtune.training.config import from_values
from annealtune.training.runs import run

PIXELS = torch.arange(2 * 64, dtype=torch.uint8).view(2, 1, 8, 8) % 17

OWN = """
from own_factories import table, line
"""


@pytest.fixture(autouse=True)
def importable(place, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    (place / "unusual.py").write_text(OWN)
    monkeypatch.syspath_prepend(place)
    yield
    sys.modules.pop("unusual", None)


def trained(place, source, model):
    values = {"data": source, "model": model, "epochs": 1, "threads": 1, "batch_size": 16}
    run(from_values(values), place / "run")
    return place / "run"


class TestLoad:
    def test_raw_takes_what_the_data_holds(self, complete):
        """Digits have pixels 0..16, a mean of 0.3054 and a deviation of 0.3761."""
        directory = complete(epochs=1)
        with torch.no_grad():
            expected = annealtune.load(str(directory))((PIXELS / 16 - 0.3054) / 0.3761)
            found = annealtune.load(directory, raw=True)(PIXELS)
        assert torch.allclose(found, expected, atol=1e-5)

    def test_is_ready_for_use_and_draws_no_random_number(self, complete):
        directory = complete(epochs=1)
        before = torch.random.get_rng_state()
        model = annealtune.load(directory)
        assert torch.equal(torch.random.get_rng_state(), before)
        assert not any(module.training for module in model.modules())
        # Also without annealtune.
        assert load_file(directory / "best.safetensors").keys() == model.state_dict().keys()

    def test_the_data_is_not_needed(self, place, monkeypatch):
        directory = trained(place, "unusual:table", "unusual:line")

        def gone():
            raise FileNotFoundError("no such data")

        monkeypatch.setattr(sys.modules["unusual"], "table", gone)
        assert annealtune.load(directory)(torch.zeros(3, 4)).shape == (3, 1)

    def test_what_is_no_run(self, place):
        with pytest.raises(ConfigError, match="is not a run directory"):
            annealtune.load(place / "nothing")

    def test_a_model_that_has_changed(self, complete, seal_again):
        directory = complete(epochs=1)
        config = directory / "config.toml"
        config.write_text(config.read_text().replace("small-cnn-w8", "small-cnn-w4"))
        with pytest.raises(RunError, match=r"config\.toml"):
            annealtune.load(directory)
        seal_again(directory)
        with pytest.raises(RunError, match="does not fit the model"):
            annealtune.load(directory)
