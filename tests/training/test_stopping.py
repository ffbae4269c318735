"""SIGINT and SIGTERM: saved within one step, their own exit code, and no difference in the end."""

import signal
import time

import pytest

from annealtune.errors import RunStoppedError
from annealtune.training import run
from annealtune.training.stopping import StopRequest, stop_on_signals
from annealtune.training.storage.checkpoint import Checkpoints

CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}
STEP = "annealtune.training.session:CountedMinibatch.forward"
# Made 6 times an epoch in training, then 6 times for the sample of the training set and once for
# the validation set.
MINIBATCH = "annealtune.training.data.batches:Batches._minibatch"


@pytest.fixture
def flags(tiny_flags):
    return ["train", *tiny_flags, "--out", "run"]


@pytest.mark.parametrize(
    ("number", "target", "count", "step", "epochs"),
    [
        (signal.SIGTERM, STEP, 1, 1, 0),
        (signal.SIGINT, STEP, 24, 12, 1),  # in the last step of the second epoch
        (signal.SIGTERM, MINIBATCH, 8, 6, 1),  # in the evaluation of the first
        (signal.SIGINT, MINIBATCH, 26, 12, 2),  # in that of the second, on the validation set
        (signal.SIGINT, "annealtune.training.storage.checkpoint:Checkpoints.save", 1, 6, 1),
    ],
)
def test_saves_says_how_to_continue_and_leaves_no_trace(
    number, target, count, step, epochs, flags, program, at_call, place, undisturbed, outcome
):
    stopped = program(*flags, setup=at_call(target, count, number))
    assert stopped.code == CODES[number]
    assert f"saved run at step {step}, {epochs} of 3 epochs" in stopped.err.splitlines()[-1]
    assert "Traceback" not in stopped.err
    assert not (place / "run" / "result.json").exists()
    assert Checkpoints(place / "run" / "checkpoints").steps()[0] == step
    resumed = program("train", "--out", "run", "--resume")
    assert resumed.code == 0, resumed.err
    assert f"continuing at step {step}" in resumed.err
    assert outcome(place / "run") == undisturbed()


def test_after_all_epochs_it_ends_as_it_would(flags, program, at_call, place, undisturbed, outcome):
    """The test set is all that is left to look at."""
    setup = at_call("annealtune.training.session:Session.score", 7, signal.SIGTERM)
    assert program(*flags, setup=setup).code == 0
    assert outcome(place / "run") == undisturbed()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_before_the_run_begins_it_leaves_at_once(number, code, program, at_call, place):
    flags = ["train", "--model", "mlp-w8", "--train-size", 100, "--out", "run"]
    stopped = program(*flags, setup=at_call("annealtune.training.data:load", 1, number))
    assert (stopped.code, stopped.out) == (code, "")
    assert "Traceback" not in stopped.err
    assert [path.name for path in (place / "run").iterdir()] == [".lock"]
    assert program(*flags, "--epochs", 1).code == 0


@pytest.mark.parametrize(("first", "second"), [tuple(CODES), tuple(CODES)[::-1]])
def test_a_second_signal_ends_it_at_once(first, second, flags, program, at_call, place):
    # Both within the first forward of the run: nothing can have been saved in between.
    setup = at_call(STEP, 1, first) + at_call(STEP, 1, second, after=True)
    stopped = program(*flags, setup=setup)
    assert stopped.code == -second
    assert not list((place / "run" / "checkpoints").glob("*.pt"))


def test_a_signal_from_outside(place, start, tiny_flags):
    process = start("train", *tiny_flags, "--epochs", "1000", "--out", "run")
    while not (place / "run" / "metrics.jsonl").exists():
        time.sleep(0.01)
    process.send(signal.SIGINT)
    left = process.wait()
    assert left.code == 130
    assert "SIGINT: saved run at step" in left.err
    assert "Traceback" not in left.err


@pytest.mark.parametrize("at_once", [True, False])
def test_the_first_signal_is_noted_and_the_handlers_come_back(at_once):
    before = [signal.getsignal(number) for number in CODES]
    with stop_on_signals(at_once=at_once) as stop:
        if not at_once:
            assert [signal.getsignal(number) for number in CODES] == before
            stop.begin()
        assert stop.signal_number is None
        signal.raise_signal(signal.SIGTERM)
        assert stop.signal_number == signal.SIGTERM
    assert [signal.getsignal(number) for number in CODES] == before


def test_a_run_begins_right_before_it_writes(tiny, place):
    stop, seen = StopRequest(after_epoch=1), []
    stop.when_begun.append(lambda: seen.append([path.name for path in place.iterdir()]))
    with pytest.raises(RunStoppedError):
        run(tiny(), place, stop=stop)
    assert seen == [[".lock"]]
    assert (place / "config.toml").exists()


def test_after_so_many_epochs(flags, program, place, undisturbed, outcome):
    for epoch in (1, 2):
        stopped = program(*flags, "--stop-after", epoch, "--resume-or-start")
        assert stopped.code == 0
        assert f"far enough: saved run at step {6 * epoch}, {epoch} of 3 epochs" in stopped.err
        assert not (place / "run" / "result.json").exists()
    again = program(*flags, "--stop-after", 2, "--resume")
    assert "far enough" in again.err
    assert program(*flags, "--resume").code == 0
    assert outcome(place / "run") == undisturbed()
