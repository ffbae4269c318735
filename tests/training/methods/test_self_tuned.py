"""Method self-tuned: SelfTuner in the program's own loop."""

import json
import signal
import time

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from annealtune import SelfTuner
from annealtune.annealing.race import RaceInfo
from annealtune.errors import ConfigError
from annealtune.training.config import from_values

# 204 steps: hardly longer than the shortest run with a race, of three arms; an epoch is six.
RACING = {"method": "self-tuned", "epochs": 34}
ARMS, LASTING = 4, 11
MOVE = "torch.optim:AdamW.step"  # of every arm


@pytest.fixture
def racing(complete):
    """Makes a run with a race."""
    return lambda **changes: complete(**RACING, **changes)


@pytest.fixture
def racing_flags(tiny_flags):
    return ["train", *tiny_flags, "--method", "self-tuned", "--epochs", 34]


class TestConfig:
    def test_it_is_the_default(self):
        config = from_values({})
        assert (config.method, config.options.optimizer) == ("self-tuned", "adamw")
        assert 'method = "self-tuned"' in config.to_toml()

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({"optimizer": "lbfgs"}, ["self-tuned.optimizer", "adamw", "sgd", "lbfgs"]),
            ({"around": 0.0}, ["self-tuned.around", "0.0"]),
            ({"around": "0.1"}, ["self-tuned.around", "0.1"]),
            ({"weight_decay": -1.0}, ["self-tuned.weight_decay", "-1.0"]),
            ({"average": 1}, ["self-tuned.average", "1"]),
            ({"momentum": 0.5}, ["momentum = 0.5", "optimizer = 'sgd'", "'adamw'"]),
            ({"optimizer": "sgd", "momentum": 1.0}, ["self-tuned.momentum", "1.0"]),
            ({"lr": 0.1}, ["self-tuned.lr"]),
        ],
    )
    def test_what_is_wrong_is_named(self, options, named):
        with pytest.raises(ConfigError) as error:
            from_values({"self-tuned": options})
        assert all(word in str(error.value) for word in named), str(error.value)

    @pytest.mark.parametrize(
        ("options", "cls", "expected"),
        [
            ({}, torch.optim.AdamW, {"weight_decay": 0.01}),
            ({"optimizer": "adam", "weight_decay": 0.1}, torch.optim.Adam, {"weight_decay": 0.1}),
            ({"optimizer": "nadam"}, torch.optim.NAdam, {}),
            ({"optimizer": "radam"}, torch.optim.RAdam, {}),
            ({"optimizer": "rmsprop"}, torch.optim.RMSprop, {"momentum": 0}),
            ({"optimizer": "sgd"}, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0}),
            ({"optimizer": "sgd", "momentum": 0.0}, torch.optim.SGD, {"momentum": 0.0}),
        ],
    )
    def test_the_base_is_what_was_asked_for(self, session, options, cls, expected):
        base = session(**RACING, **{"self-tuned": options}).method._optimizer.base
        assert type(base) is cls
        assert {name: base.param_groups[0][name] for name in expected} == expected


class TestAgainstTheLibrary:
    """The same run, written as a user of the library would write it."""

    @pytest.fixture
    def expected(self, by_hand):
        def expected(base, epochs=34, **arguments):
            model, batches = by_hand()
            opt = SelfTuner(base(model.parameters()), model=model, total_steps=204, **arguments)
            compute_loss = opt.record(lambda x, y: F.cross_entropy(model(x), y))
            for _ in range(epochs):
                for x, y in batches:
                    compute_loss(x, y).backward()
                    opt.step()
                    opt.zero_grad()
            return model, batches, opt

        return expected

    @pytest.mark.parametrize(
        ("options", "base", "arguments"),
        [
            ({}, torch.optim.AdamW, {}),
            (
                {"optimizer": "sgd", "around": 0.1, "weight_decay": 1e-3},
                lambda parameters: torch.optim.SGD(parameters, momentum=0.9, weight_decay=1e-3),
                {"around": 0.1},
            ),
        ],
    )
    def test_the_last_weights(
        self, racing, weights_of, expected, lines_of, options, base, arguments
    ):
        directory = racing(**{"self-tuned": options}, decision_seed=3)
        found = weights_of(directory)
        model, _, opt = expected(base, **arguments)
        assert len(opt.races) == 1
        for name, value in model.state_dict().items():
            assert torch.equal(found[name], value), name
        races = [r for line in lines_of(directory / "metrics.jsonl") for r in line.get("races", ())]
        assert [RaceInfo.from_dict(race) for race in races] == list(opt.races)

    def test_the_average_is_scored_and_saved(self, racing, expected):
        directory = racing()
        best = json.loads((directory / "best.json").read_text())["epoch"]
        saved = load_file(directory / "best.safetensors")
        model, batches, opt = expected(torch.optim.AdamW, epochs=best)
        assert not opt.is_racing
        last = {name: value.clone() for name, value in model.state_dict().items()}
        with opt.averaged(batches.sample(50, epoch=best - 1)):
            for name, value in model.state_dict().items():
                assert torch.equal(saved[name], value), name
        assert any(not torch.equal(saved[name], last[name]) for name in saved)

    def test_the_last_weights_are_scored_beside_their_average(
        self, racing, session, weights_of, lines_of
    ):
        directory = racing()
        record = lines_of(directory / "metrics.jsonl")[-1]
        other = session(**RACING)
        other.model.load_state_dict(weights_of(directory))
        other.model.eval()
        loss, right, count = 0.0, 0, 0
        with torch.no_grad():
            for x, y in other.validation_batches:
                scores = other.model(x)
                loss += F.cross_entropy(scores, y, reduction="sum").item()
                right += int((scores.argmax(1) == y).sum())
                count += len(y)
        assert record["last_weights_validation_loss"] == pytest.approx(loss / count)
        assert record["last_weights_validation_accuracy"] == right / count
        result = json.loads((directory / "result.json").read_text())
        for name in ("last_weights_validation_loss", "last_weights_validation_accuracy"):
            assert result[name] == record[name]
        assert record["last_weights_validation_loss"] != record["validation_loss"]

    def test_without_an_average_the_last_weights_are_saved(self, complete, weights_of):
        options = {"method": "self-tuned", "self-tuned": {"average": False}}
        directory = complete(epochs=1, **options)
        last = weights_of(directory)
        saved = load_file(directory / "best.safetensors")
        assert all(torch.equal(saved[name], last[name]) for name in saved)
        assert "last_weights" not in (directory / "metrics.jsonl").read_text()


class TestRecords:
    @pytest.mark.parametrize("precision", ["fp32", "fp16"])
    def test_forwards_and_backwards_are_the_truth(self, session, counted, precision):
        run = session(**RACING, precision=precision)
        found = counted(run)
        list(run.train())
        assert found == {"forwards": run.forwards, "backwards": run.backwards}
        assert run.backwards == run.forwards > 6
        if precision == "fp32":
            assert run.forwards == 6 * ARMS


class TestWords:
    def test_a_warning_is_one_line_and_no_error(self, program, tiny_flags):
        """The program runs with -W error here."""
        finished = program("train", *tiny_flags, "--method", "self-tuned", "--out", "run")
        assert finished.code == 0, finished.err
        warned = [line for line in finished.err.splitlines() if "too few" in line]
        assert len(warned) == 1
        assert warned[0].startswith("warning: self-tuned: 18 steps are too few for a race")
        assert "UserWarning" not in finished.err
        assert ".py" not in finished.err


BREAKING = """
from torch import nn

class Breaking(nn.Module):
    calls = 0

    def forward(self, x):
        if self.training:
            self.calls += 1
        return x * float("nan") if self.calls == 100 else x

def net(*, channels, image_size, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes), Breaking())
"""


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_run_that_breaks_is_brought_back(program, racing_flags, place, lines_of, precision):
    (place / "breaking.py").write_text(BREAKING)
    flags = [*racing_flags, "--model", "breaking:net", "--precision", precision]
    finished = program(
        *flags, "--out", "run", setup=f"import sys; sys.path.insert(0, {str(place)!r})"
    )
    assert finished.code == 0, finished.err
    warned = [line for line in finished.err.splitlines() if line.startswith("warning: self-tuned")]
    assert len(warned) == 1, finished.err
    records = lines_of(place / "run" / "metrics.jsonl")
    assert records[-1]["train_loss"] < 0.5 < records[0]["train_loss"]
    # One minibatch after many sound ones says nothing of the rate; it is in no mean either.
    assert records[17]["rate"] == records[2]["rate"]


KILLS = [
    (MOVE, 11, 1),
    ("annealtune.training.session:Session.score", 2, 1),  # with the average in the model
]
MORE_KILLS = [
    (MOVE, 2, 1),  # before there is any checkpoint
    (MOVE, 5, 1),  # first arm of the second minibatch
    (MOVE, 29, 3),  # in the second epoch
    (MOVE, 46, 2),  # as the race ends
    ("annealtune.optim:SelfTuner.step", 60, 5),
    ("annealtune.training.session:Session.end_epoch", 1, 100),
]


class TestKilled:
    @pytest.mark.parametrize(
        ("target", "count", "every"),
        [*KILLS, *(pytest.param(*kill, marks=pytest.mark.slow) for kill in MORE_KILLS)],
    )
    def test_one_kill_leaves_no_trace(
        self, undisturbed, program, at_call, racing_flags, place, outcome, target, count, every
    ):
        flags = [*racing_flags, "--checkpoint-every", every, "--out", "killed"]
        killed = program(*flags, setup=at_call(target, count))
        assert killed.code == -signal.SIGKILL, killed.err
        resumed = program(*flags, "--resume")
        assert resumed.code == 0, resumed.err
        assert outcome(place / "killed") == undisturbed(**RACING)

    def test_interrupted_it_saves_within_the_race(
        self, undisturbed, program, at_call, racing_flags, place, outcome
    ):
        flags = [*racing_flags, "--out", "killed"]
        left = program(*flags, setup=at_call(MOVE, 11, signal.SIGTERM))
        assert left.code == 128 + signal.SIGTERM
        assert "at step 3" in left.err
        assert program(*flags, "--resume").code == 0
        assert outcome(place / "killed") == undisturbed(**RACING)

    def test_a_process_killed_from_outside_within_the_race(
        self, undisturbed, racing_flags, place, outcome, start, program
    ):
        flags = [*racing_flags, "--checkpoint-every", "1", "--out", "killed"]
        flags += ["--resume-or-start"]
        process = start(*flags)
        saved = place / "killed" / "checkpoints"
        while len(list(saved.glob("*.pt"))) < 2:  # two are kept
            assert not (place / "killed" / "metrics.jsonl").exists()
            time.sleep(0.001)
        process.send(signal.SIGKILL)
        assert process.wait().code == -signal.SIGKILL
        assert not (place / "killed" / "metrics.jsonl").exists()  # in the first epoch still
        assert program(*flags).code == 0
        assert outcome(place / "killed") == undisturbed(**RACING)
