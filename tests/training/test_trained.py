"""The best model of a run, without the run's data."""

import sys
from pathlib import Path

import pytest
import torch

import annealtune
from annealtune.errors import ConfigError, RunError
from annealtune.training.config import from_values
from annealtune.training.runs import run

PIXELS = torch.arange(2 * 64, dtype=torch.uint8).view(2, 1, 8, 8) % 17


def test_the_public_name_gives_the_same_model(complete):
    directory = complete(epochs=1)
    model, again = annealtune.load(directory), annealtune.load(str(directory))
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    assert not any(module.training for module in model.modules())


def test_raw_takes_what_the_data_holds(complete):
    """Digits have pixels 0..16, a mean of 0.3054 and a deviation of 0.3761."""
    directory = complete(epochs=1)
    with torch.no_grad():
        expected = annealtune.load(directory)((PIXELS / 16 - 0.3054) / 0.3761)
        found = annealtune.load(directory, raw=True)(PIXELS)
    assert torch.allclose(found, expected, atol=1e-5)


def test_loading_draws_no_random_number(complete):
    directory = complete(epochs=1)
    before = torch.random.get_rng_state()
    annealtune.load(directory)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.fixture
def moved_away(place, monkeypatch):
    """A run whose data is gone: its factory fails."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    (place / "vanishing.py").write_text("from own_factories import table, line\n")
    monkeypatch.syspath_prepend(place)
    values = {"data": "vanishing:table", "model": "vanishing:line", "epochs": 1, "threads": 1}
    run(from_values(values), place / "run")
    module = sys.modules["vanishing"]

    def gone():
        raise FileNotFoundError("no such data")

    monkeypatch.setattr(module, "table", gone)
    return place / "run"


def test_the_data_is_not_needed(moved_away):
    assert annealtune.load(moved_away)(torch.zeros(3, 4)).shape == (3, 1)


@pytest.mark.parametrize("content", ["{", "[]", '{"kind": "tokens"}', '{"kind": 3}'])
def test_a_damaged_description_is_refused(complete, content):
    directory = complete(epochs=1)
    (directory / "task.json").write_text(content)
    with pytest.raises(RunError, match=r"task.json"):
        annealtune.load(directory)


def test_what_is_no_run(place):
    with pytest.raises(ConfigError, match="is not a run directory"):
        annealtune.load(place / "nothing")
