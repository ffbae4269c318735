"""Precision, memory format and compilation change the speed, not what a run is."""

import functools
import shutil
import signal

import pytest
import torch

from annealtune.errors import ConfigError
from annealtune.training import data, run
from annealtune.training.session import Session

NEEDS_A_COMPILER = pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs g++")


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


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
def test_the_forward_has_the_precision_it_is_given(tiny, digits, precision):
    session = Session(tiny(precision=precision, device="cpu"), digits)
    found = set()
    session.model.register_forward_hook(lambda *args: found.add(args[2].dtype))
    next(session.train())
    session.scores(lambda: None)
    expected = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    assert found == {expected[precision]}
    assert {p.dtype for p in session.model.parameters()} == {torch.float32}


OVERFLOWING = """
import torch
from torch import nn

class Scaled(nn.Module):
    def forward(self, x):
        return 30 * x

def net(*, channels, image_size, classes):
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, classes), Scaled())
"""


def test_a_step_the_scaler_skips_leaves_the_next_ones_dropout_alone(
    tiny, digits, place, monkeypatch
):
    """At rate 0 nothing can get better or worse, unless the probe draws another dropout mask."""
    (place / "overflowing.py").write_text(OVERFLOWING)
    monkeypatch.syspath_prepend(str(place))
    options = {"sgd-sa": {"lr": [0.0]}}
    config = tiny(model="overflowing:net", precision="fp16", device="cpu", **options)
    session = Session(config, digits)
    moves = []
    for _ in range(3):
        before = len(moves)
        moves.extend(session.method._optimizer.last_step for _ in session.train())
        assert len(moves) == before + 6
        session.end_epoch(*session.scores(lambda: None))
    made = [info for info, earlier in zip(moves[1:], moves, strict=False) if info is not earlier]
    assert moves[0] is None, "the test needs a gradient that overflows"
    assert len(made) >= 5
    assert {info.worsening for info in made} == {0.0}


class TestMemoryFormat:
    def test_both_give_the_same_up_to_rounding(self, complete, lines_of):
        found = [
            lines_of(complete(channels_last=last, method="sgd") / "metrics.jsonl")
            for last in (True, False)
        ]
        for one, other in zip(*found, strict=True):
            assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-3)
            assert one["validation_loss"] == pytest.approx(other["validation_loss"], rel=1e-2)

    @pytest.mark.parametrize(
        ("model", "given", "expected"),
        [
            ("small-cnn-w8", None, True),
            ("small-cnn-w8", False, False),
            ("mlp", None, False),
            ("mlp", True, True),
        ],
    )
    def test_where_the_model_convolves_unless_given(self, tiny, digits, model, given, expected):
        session = Session(tiny(model=model, channels_last=given, device="cpu"), digits)
        assert session.channels_last is expected
        if model != "mlp":
            weight = session.model.features[4].weight
            assert weight.is_contiguous(memory_format=torch.channels_last) is expected


class TestCompile:
    @pytest.mark.parametrize(
        ("method", "options"),
        [
            ("sgd-sa", {}),
            ("sgd-sa", {"accept_batch": "held-out", "accept_on": "error"}),
            ("ssa", {}),
            ("sgd", {}),
        ],
    )
    def test_a_compiled_model_is_the_same_model(
        self, complete, outcome, monkeypatch, method, options
    ):
        """With the backend that runs the captured graph as it is."""
        changes = {"method": method, "epochs": 2, method: options}
        expected = outcome(complete(**changes))
        monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
        assert outcome(complete(**changes, compile=True)) == expected

    @pytest.mark.slow
    @NEEDS_A_COMPILER
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, about torch.jit
    def test_with_torchs_own_backend(self, complete, lines_of):
        changes = {"method": "sgd", "model": "mlp-w8", "epochs": 2}
        plain, compiled = (
            lines_of(complete(compile=flag, **changes) / "metrics.jsonl")[-1]
            for flag in (False, True)
        )
        for name in ("train_loss", "validation_loss"):
            assert compiled[name] == pytest.approx(plain[name], rel=1e-4)

    @pytest.mark.slow
    @NEEDS_A_COMPILER
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_the_probe_repeats_the_dropout_of_a_compiled_model(self, tiny, digits):
        options = {"sgd-sa": {"lr": [0.0]}}
        session = Session(tiny(compile=True, device="cpu", **options), digits)
        moves = [session.method._optimizer.last_step for _ in session.train()]
        assert [info.worsening for info in moves] == pytest.approx([0.0] * 6, abs=1e-5)


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
    looked = program("inspect", directory)
    assert "not guaranteed on cuda:1" in looked.out
