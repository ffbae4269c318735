"""Looking at a run: inspect, evaluate."""

import json
import signal

import pytest

from annealtune.errors import RunError, RunStoppedError
from annealtune.training import load, run
from annealtune.training.describe import describe_run
from annealtune.training.stopping import StopRequest


@pytest.fixture
def unfinished(program, at_call, tiny_flags, place):
    """A run that was killed in its third epoch."""
    setup = at_call("annealtune.training.session:Session.end_epoch", 3)
    flags = ["train", *tiny_flags, "--checkpoint-every", 4, "--out", "run"]
    assert program(*flags, setup=setup).code == -signal.SIGKILL
    return place / "run"


@pytest.fixture
def barely_begun(tiny, place):
    """A run that was stopped after its first step."""
    stop = StopRequest()
    stop.signal_number = int(signal.SIGTERM)
    with pytest.raises(RunStoppedError):
        run(tiny(), place / "begun", stop=stop)
    return place / "begun"


class TestInspect:
    def test_a_finished_run(self, complete, program):
        directory = complete(validate_on="test", decision_seed=7)
        looked = program("inspect", directory)
        assert looked.code == 0
        result = json.loads((directory / "result.json").read_text())
        rows = dict(describe_run(directory))
        assert all(f"{name:<14} {value}" in looked.out for name, value in rows.items())
        assert rows["seeds"] == "init_seed 0, data_seed 0, decision_seed 7"
        assert (rows["epochs"], rows["state"]) == ("3 of 3", "finished")
        assert rows["weights"] == str(directory / "best.safetensors")
        assert rows["best epoch"].startswith(f"{result['best_epoch']}: ")
        assert f"{result['test_accuracy']:.2%}" in rows["test"]
        assert "protocol" in rows

    def test_an_unfinished_run(self, unfinished):
        with (unfinished / "metrics.jsonl").open("a") as metrics:
            metrics.write('{"epoch": 3, "st')  # half a line does not matter
        rows = dict(describe_run(unfinished))
        assert rows["epochs"] == "2 of 3"
        assert "saved at step 16" in rows["state"]
        assert "best epoch" in rows
        assert "test" not in rows

    def test_a_run_that_has_barely_begun(self, barely_begun):
        rows = dict(describe_run(barely_begun))
        assert rows["epochs"] == "0 of 3"
        assert "saved at step 1" in rows["state"]

    def test_a_run_that_has_saved_nothing(self, program, at_call, tiny_flags):
        setup = at_call("annealtune.training.session:Session.train", 1)
        assert program("train", *tiny_flags, "--out", "run", setup=setup).code == -signal.SIGKILL
        assert "begun, nothing saved yet" in program("inspect", "run").out


class TestEvaluate:
    def test_gives_the_scores_of_the_run(self, complete, program):
        directory = complete()
        result = json.loads((directory / "result.json").read_text())
        scored = program("evaluate", directory, "--data-dir", "elsewhere")  # digits need no folder
        assert scored.code == 0
        assert scored.out == (
            f"best epoch {result['best_epoch']}\n"
            f"validation accuracy {result['best_validation_accuracy']:.2%}, "
            f"validation loss {result['best_validation_loss']:.4f}\n"
            f"test accuracy {result['test_accuracy']:.2%}, "
            f"test loss {result['test_loss']:.4f}\n"
        )

    def test_of_an_unfinished_run_the_best_so_far(self, unfinished, program):
        scored = program("evaluate", unfinished)
        assert scored.code == 0
        best = json.loads((unfinished / "best.json").read_text())
        assert scored.out.startswith(f"best epoch {best['epoch']}\n")

    def test_before_the_first_epoch_there_is_nothing(self, barely_begun, program):
        scored = program("evaluate", barely_begun)
        assert (scored.code, len(scored.err.splitlines())) == (1, 1)
        with pytest.raises(RunError, match="no best weights yet"):
            load(barely_begun)


@pytest.mark.parametrize("command", ["inspect", "evaluate"])
def test_what_is_no_run(program, place, command):
    (place / "file").write_text("mine")
    for path in ("missing", "file"):
        looked = program(command, path)
        assert looked.code == 2
        assert f"{path}: is not a run directory" in looked.err
    assert not (place / "missing").exists()
