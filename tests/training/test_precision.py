"""Precision, memory format and device change the speed, not what a run is."""

import signal

import pytest
import torch

from annealtune.errors import ConfigError
from annealtune.training import run


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("method", ["sgd-sa", "ssa", "adamw", "self-tuned"])
def test_runs_and_resumes_the_same(program, at_call, tiny_flags, place, outcome, precision, method):
    flags = ["train", *tiny_flags, "--precision", precision, "--method", method]
    whole = program(*flags, "--out", "whole")
    assert whole.code == 0, whole.err
    setup = at_call("annealtune.training.session:CountedMinibatch.forward", 17)
    killed = program(*flags, "--out", "killed", "--checkpoint-every", 2, setup=setup)
    assert killed.code == -signal.SIGKILL
    assert program(*flags, "--out", "killed", "--resume").code == 0
    assert outcome(place / "killed") == outcome(place / "whole")


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_the_forward_has_the_precision_it_is_given(session, precision):
    session = session(precision=precision)
    found = set()
    session.model.register_forward_hook(lambda *args: found.add(args[2].dtype))
    next(session.train())
    session.score(session.validation_batches)
    expected = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    assert found == {expected[precision]}
    assert {p.dtype for p in session.model.parameters()} == {torch.float32}


def test_images_are_channels_last_where_the_model_convolves(session):
    weight = session().model.features[4].weight
    assert weight.is_contiguous(memory_format=torch.channels_last)


OVERFLOWING = """
import torch
from torch import nn

class Scaled(nn.Module):
    def forward(self, x):
        return 30 * x

def net(*, channels, image_size, classes):
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, classes), Scaled())
"""


def test_a_step_the_scaler_skips_leaves_the_next_ones_dropout_alone(session, place, monkeypatch):
    """At rate 0 nothing can get better or worse, unless the probe draws another dropout mask."""
    (place / "overflowing.py").write_text(OVERFLOWING)
    monkeypatch.syspath_prepend(str(place))
    options = {"sgd-sa": {"lr": [0.0]}}
    session = session(model="overflowing:net", precision="fp16", **options)
    moves = []
    for _ in range(3):
        before = len(moves)
        moves.extend(session.method._optimizer.last_step for _ in session.train())
        assert len(moves) == before + 6
        session.end_epoch(*[session.score(session.validation_batches)] * 2)
    made = [info for info, earlier in zip(moves[1:], moves, strict=False) if info is not earlier]
    assert moves[0] is None, "the test needs a gradient that overflows"
    assert len(made) >= 5
    assert {info.worsening for info in made} == {0.0}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
def test_a_device_that_is_not_here(tiny, place, device):
    with pytest.raises(ConfigError, match=f"device = '{device}': is not available"):
        run(tiny(device=device), place)
    assert not (place / "config.toml").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_run_of_another_machine_can_be_scored_here(complete, program, seal_again):
    directory = complete(epochs=1)
    config = directory / "config.toml"
    config.write_text(config.read_text().replace('device = "cpu"', 'device = "cuda:1"'))
    seal_again(directory)
    scored = program("evaluate", directory)
    assert scored.code == 0, scored.err
