"""Looking at a run: inspect, evaluate, load."""

import json
import re
import signal

import pytest
import torch

from annealtune.errors import ConfigError, RunError, RunStoppedError
from annealtune.training import data, load, run
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
    def test_tells_runs_of_one_method_apart(self, complete):
        plain = dict(describe_run(complete(epochs=1)))
        assert not {"strategy", "accept test"} & plain.keys()
        block = {"strategy": "tabu", "strategy_options": {"candidates": 1}, "accept_on": "error"}
        rows = dict(
            describe_run(complete(epochs=1, **{"sgd-sa": {**block, "accept_batch": "held-out"}}))
        )
        assert rows["strategy"] == "tabu, candidates = 1"
        assert rows["accept test"] == "error of held-out images"

    def test_a_finished_run(self, complete, program):
        directory = complete(validate_on="test", decision_seed=7)
        looked = program("inspect", directory)
        assert looked.code == 0
        result = json.loads((directory / "result.json").read_text())
        for line in (
            f"run            {directory}",
            "method         sgd-sa, small-cnn-w8 on digits",
            "seeds          init_seed 0, data_seed 0, decision_seed 7",
            "epochs         3 of 3",
            "state          finished",
            "protocol       the test set chooses the best epoch, as in the paper",
            f"weights        {directory / 'best.safetensors'}",
            f"test           accuracy {result['test_accuracy']:.2%}, "
            f"loss {result['test_loss']:.4f}",
            "deterministic  on the CPU: the same config, versions and threads give the same bits",
        ):
            assert line in looked.out.splitlines()

    def test_an_unfinished_run(self, unfinished, program):
        looked = program("inspect", unfinished).out
        assert "epochs         2 of 3" in looked
        assert "state          unfinished, saved at step 16; continue with --resume" in looked
        assert "best epoch" in looked
        assert "test " not in looked

    def test_a_line_in_half_does_not_matter(self, unfinished, program):
        with (unfinished / "metrics.jsonl").open("a") as metrics:
            metrics.write('{"epoch": 3, "st')
        assert "epochs         2 of 3" in program("inspect", unfinished).out

    def test_a_run_that_has_barely_begun(self, barely_begun, program):
        looked = program("inspect", barely_begun)
        assert looked.code == 0
        assert "epochs         0 of 3" in looked.out
        assert "saved at step 1" in looked.out

    def test_a_run_that_has_saved_nothing(self, program, at_call, tiny_flags):
        setup = at_call("annealtune.training.session:Session.train", 1)
        assert program("train", *tiny_flags, "--out", "run", setup=setup).code == -signal.SIGKILL
        assert "begun, nothing saved yet" in program("inspect", "run").out

    def test_the_best_epoch_is_the_one_that_was_kept(self, complete, seal_again):
        """Also where two epochs have the same accuracy and the later one has the lower loss."""
        directory = complete(epochs=3)
        path = directory / "metrics.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for record, loss in zip(records, (None, 0.7, 0.5), strict=True):
            record |= {"validation_accuracy": 0.5, "validation_loss": loss}
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        seal_again(directory)
        assert dict(describe_run(directory))["best epoch"].startswith("3: ")

    @pytest.mark.parametrize("seed", range(4))
    def test_the_best_epoch_agrees_with_the_file(self, complete, seed):
        directory = complete(method="sgd", seed=seed, epochs=5, sgd={"lr": 2.0})
        best = json.loads((directory / "best.json").read_text())
        assert dict(describe_run(directory))["best epoch"].startswith(f"{best['epoch']}: ")

    def test_brackets_in_a_path_are_text(self, complete, place, program):
        directory = complete(place / "[bold] [/x]", epochs=1)
        assert f"run            {directory}" in program("inspect", directory).out


class TestEvaluate:
    def test_gives_the_scores_of_the_run(self, complete, program):
        directory = complete()
        result = json.loads((directory / "result.json").read_text())
        scored = program("evaluate", directory)
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
        assert scored.code == 1
        assert "has no best weights yet" in scored.err
        assert len(scored.err.splitlines()) == 1

    def test_damaged_weights_are_refused(self, complete, program):
        directory = complete(epochs=1)
        weights = directory / "best.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
        scored = program("evaluate", directory)
        assert scored.code == 1
        assert "best.safetensors is damaged" in scored.err

    def test_data_that_has_moved(self, complete, program):
        scored = program("evaluate", complete(epochs=1), "--data-dir", "elsewhere")
        assert scored.code == 0  # digits need no folder


@pytest.mark.parametrize("command", ["inspect", "evaluate"])
def test_what_is_no_run(program, place, command):
    (place / "empty").mkdir()
    (place / "file").write_text("mine")
    for path in ("empty", "missing", "file"):
        looked = program(command, path)
        assert looked.code == 2
        assert looked.err == (
            f"annealtune: {path}: is not a run directory: it has no config.toml\n"
        )
        assert not (place / "missing").exists()


class TestLoad:
    def test_is_the_best_model_ready_for_use(self, complete):
        directory = complete(epochs=3)
        model = load(directory)
        assert not any(module.training for module in model.modules())
        digits = data.load("digits")
        batches = data.Batches(
            digits.test_inputs,
            digits.test_targets,
            batch_size=360,
            seed=0,
            mean=digits.mean,
            std=digits.std,
            scale=digits.scale,
            shuffle=False,
        )
        ((inputs, labels),) = batches
        with torch.no_grad():
            accuracy = (model(inputs).argmax(1) == labels).sum().item() / 360
        assert accuracy == json.loads((directory / "result.json").read_text())["test_accuracy"]

    def test_takes_a_path_as_text(self, complete):
        assert load(str(complete(epochs=1))) is not None

    def test_what_is_no_run(self, place):
        with pytest.raises(ConfigError, match="is not a run directory"):
            load(place)

    def test_before_the_first_epoch(self, barely_begun):
        with pytest.raises(RunError, match="has no best weights yet"):
            load(barely_begun)

    def test_a_model_that_has_changed(self, complete, seal_again):
        directory = complete(epochs=1)
        config = directory / "config.toml"
        config.write_text(config.read_text().replace("small-cnn-w8", "small-cnn-w4"))
        with pytest.raises(RunError, match=r"config\.toml was changed"):
            load(directory)
        seal_again(directory)
        with pytest.raises(RunError, match=r"does not fit the model of config\.toml"):
            load(directory)


def test_weights_can_be_read_without_annealtune(complete):
    from safetensors.torch import load_file

    directory = complete(epochs=1)
    tensors = load_file(directory / "best.safetensors")
    assert tensors.keys() == load(directory).state_dict().keys()


def test_lines_are_names_and_values(complete):
    rows = describe_run(complete(epochs=1))
    assert all(re.fullmatch(r"[a-z ]{1,14}", name) and value for name, value in rows)
