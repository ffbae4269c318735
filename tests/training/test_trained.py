"""The best model of a run, without the run's data; exported, and read back without annealtune."""

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import annealtune
from annealtune.errors import ConfigError, RunError
from annealtune.training import trained as exporting
from annealtune.training.config import from_values
from annealtune.training.runs import run
from annealtune.training.trained import export

PIXELS = torch.arange(2 * 64, dtype=torch.uint8).view(2, 1, 8, 8) % 17

OWN = """
from torch import nn
from own_factories import table, line

class Undecided(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, inputs):
        if inputs.sum() > 0:
            return self.layer(inputs)
        return -self.layer(inputs)

def undecided():
    return Undecided()
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
        with pytest.raises(RunError, match=r"config\.toml was changed"):
            annealtune.load(directory)
        seal_again(directory)
        with pytest.raises(RunError, match="does not fit the model"):
            annealtune.load(directory)


CASES = {
    "padded": ("own_factories:pictures", "vgg11-w32"),
    "digits": ("digits", "mlp-w16"),
    "numbers": ("own_factories:table", "own_factories:line"),
    "tokens": ("own_factories:text", "own_factories:next_token"),
}


class TestExport:
    @pytest.mark.parametrize("case", CASES)
    def test_the_program_agrees_with_the_model(self, case, place):
        directory = trained(place, *CASES[case])
        paths = export(directory, place / "out")
        assert [path.name for path in paths] == ["model.pt2", "model.safetensors", "model.json"]
        facts = json.loads((place / "out" / "model.json").read_text())
        shape, dtype = facts["input"]["shape"][1:], getattr(torch, facts["input"]["dtype"])
        module = torch.export.load(place / "out" / "model.pt2").module()
        for samples in (1, 3, 64):
            inputs = torch.randint(4, (samples, *shape)).to(dtype)
            with torch.no_grad():
                expected = annealtune.load(directory, raw=True)(inputs)
                found = module(inputs)
            assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)
            assert [*found.shape[1:]] == facts["output"]["shape"][1:]

    def test_weights_and_what_must_be_known(self, place):
        directory = trained(place, "own_factories:pictures", "small-cnn-w8")
        export(directory, place / "out")
        weights = (place / "out" / "model.safetensors").read_bytes()
        assert weights == (directory / "best.safetensors").read_bytes()
        facts = json.loads((place / "out" / "model.json").read_text())
        task = json.loads((directory / "task.json").read_text())
        assert facts["classes"] == ["dark", "bright"]
        assert facts["normalisation"]["mean"] == task["mean"]
        assert facts["normalisation"]["scale"] == 255
        assert facts["best"]["epoch"] == 1

    def test_a_model_that_is_no_graph_is_explained(self, place):
        directory = trained(place, "own_factories:table", "unusual:undecided")
        with pytest.raises(RunError, match="unusual:undecided"):
            export(directory, place / "out")
        assert not (place / "out").exists()

    def test_a_program_that_differs_is_never_written(self, place, monkeypatch):
        """Weights that change between the two calls stand for a graph that is wrong."""
        directory = trained(place, *CASES["numbers"])
        made = exporting._program

        def meddled(trained):
            program = made(trained)
            with torch.no_grad():
                trained.model.weight += 1
            return program

        monkeypatch.setattr(exporting, "_program", meddled)
        with pytest.raises(RunError, match="does not agree"):
            export(directory, place / "out")
        assert not (place / "out").exists()
