"""Exported models, read back without annealtune."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import annealtune
from annealtune.errors import RunError
from annealtune.training import trained as exporting
from annealtune.training.config import from_values
from annealtune.training.runs import run
from annealtune.training.trained import export

MODELS = """
import torch
from torch import nn

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
    (place / "unusual.py").write_text(MODELS)
    monkeypatch.syspath_prepend(place)
    yield
    sys.modules.pop("unusual", None)


def trained(place, source, model):
    values = {"data": source, "model": model, "epochs": 1, "threads": 1, "batch_size": 16}
    run(from_values(values), place / "run")
    return place / "run"


CASES = {
    "pixels": ("own_factories:pictures", "small-cnn-w8"),
    "padded": ("own_factories:pictures", "vgg11-w32"),
    "digits": ("digits", "mlp-w16"),
    "numbers": ("own_factories:table", "own_factories:line"),
    "tokens": ("own_factories:text", "own_factories:next_token"),
    "texts": ("own_factories:reviews", "own_factories:bag_of_tokens"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_program_agrees_with_the_model(case, place):
    directory = trained(place, *CASES[case])
    paths = export(directory, place / "out")
    assert [path.name for path in paths] == ["model.pt2", "model.safetensors", "model.json"]
    assert sorted(path.name for path in (place / "out").iterdir()) == sorted(exporting.FILES)
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


def test_the_weights_are_those_of_the_run(place):
    directory = trained(place, *CASES["pixels"])
    export(directory, place / "out")
    ours, theirs = (
        load_file(directory / "best.safetensors"),
        load_file(place / "out/model.safetensors"),
    )
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_what_must_be_known_is_written(place):
    directory = trained(place, *CASES["pixels"])
    export(directory, place / "out")
    facts = json.loads((place / "out" / "model.json").read_text())
    task = json.loads((directory / "task.json").read_text())
    assert facts["classes"] == ["dark", "bright"]
    assert facts["normalisation"]["mean"] == task["mean"]
    assert facts["normalisation"]["scale"] == 255
    assert facts["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert facts["best"]["epoch"] == 1
    assert facts["same bits as the model"] in (True, False)


@pytest.mark.slow
def test_another_program_needs_torch_alone(place):
    directory = trained(place, *CASES["numbers"])
    export(directory, place / "out")
    code = (
        "import sys, torch\n"
        "model = torch.export.load('out/model.pt2').module()\n"
        "print(model(torch.ones(3, 4)).sum().item())\n"
        "assert 'annealtune' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = annealtune.load(directory, raw=True)(torch.ones(3, 4)).sum().item()
    assert float(done.stdout) == pytest.approx(expected, rel=1e-5)


def test_a_model_that_is_no_graph_is_explained(place):
    directory = trained(place, "own_factories:table", "unusual:undecided")
    with pytest.raises(
        RunError, match=r"'unusual:undecided': torch.export cannot turn it into"
    ) as e:
        export(directory, place / "out")
    assert "\n" not in str(e.value)
    assert not (place / "out").exists()


def test_a_program_that_differs_is_never_written(place, monkeypatch):
    """Weights that change between the two calls stand for a graph that is wrong."""
    directory = trained(place, *CASES["numbers"])
    made = exporting._program

    def meddled(trained):
        program = made(trained)
        with torch.no_grad():
            trained.model.weight += 1
        return program

    monkeypatch.setattr(exporting, "_program", meddled)
    with pytest.raises(RunError, match="does not agree with the model"):
        export(directory, place / "out")
    assert not (place / "out").exists()
