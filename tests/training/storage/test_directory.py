"""The run directory: one process at a time, one config, begun once."""

import json
import signal
import time

import pytest
import torch

from annealtune.errors import ConfigError, RunError, RunStoppedError
from annealtune.training import run
from annealtune.training.config import from_values, read_toml
from annealtune.training.progress import Progress
from annealtune.training.stopping import StopRequest


@pytest.fixture
def stopped_after_a_step():
    stop = StopRequest()
    stop.signal_number = int(signal.SIGTERM)

    def begin(config, directory):
        with pytest.raises(RunStoppedError):
            run(config, directory, stop=stop)
        return directory

    return begin


class TestLock:
    @pytest.fixture
    def holder(self, start, tiny_flags, place):
        """A process that works in ``run`` for as long as the test lasts."""
        command = start("train", *tiny_flags, "--epochs", 100_000, "--out", "run")
        while not (place / "run" / "config.toml").exists():
            time.sleep(0.01)
        yield command
        command.send(signal.SIGKILL)
        command.wait()

    @pytest.mark.parametrize("resume", [[], ["--resume"]])
    def test_a_second_process_is_refused_at_once(self, holder, program, tiny_flags, resume):
        started = time.monotonic()
        second = program("train", *tiny_flags, "--epochs", 100_000, "--out", "run", *resume)
        assert time.monotonic() - started < 3  # a fraction of a second where the machine is free
        assert second.code == 1
        assert "run: another process is working in this directory" in second.err

    def test_it_can_be_looked_at(self, holder, program):
        looked = program("inspect", "run")
        assert looked.code == 0
        assert "continue with --resume" in looked.out

    def test_a_second_run_in_the_same_process_too(self, tiny, place):
        class Meddling(Progress):
            refusals: list[str] = []  # noqa: RUF012 - one test, one run

            def epoch(self, record):
                with pytest.raises(RunError) as refused:
                    run(tiny(), place / "run")
                self.refusals.append(str(refused.value))

        run(tiny(epochs=1), place / "run", progress=Meddling())
        assert len(Meddling.refusals) == 1
        assert "another process is working" in Meddling.refusals[0]

    def test_free_again_after_an_error(self, tiny, place):
        with pytest.raises(ConfigError):
            run(tiny(train_size=1), place / "run")
        run(tiny(epochs=1), place / "run")


class TestResume:
    def test_refuses_what_has_not_begun(self, program, tiny_flags, place):
        refused = program("train", *tiny_flags, "--out", "run", "--resume")
        assert refused.code == 2
        assert "--resume: there is no run in run" in refused.err
        assert not (place / "run").exists()

    def test_ends_at_once_where_all_is_done(self, program, tiny_flags, place, contents):
        flags = ["train", *tiny_flags, "--out", "run"]
        first = program(*flags)
        before = contents(place / "run")
        explode = (
            "import annealtune.training.runs as entry\n"
            "def session(*_): raise AssertionError('the run is finished')\n"
            "entry.make_session = session\n"
        )
        second = program(*flags, "--resume", setup=explode)
        assert (second.code, second.out) == (0, first.out)
        assert "test accuracy" in second.out
        assert contents(place / "run") == before

    def test_without_it_a_run_is_refused(self, program, tiny_flags, place, contents):
        flags = ["train", *tiny_flags, "--epochs", 1, "--out", "run"]
        assert program(*flags).code == 0
        before = contents(place / "run")
        refused = program(*flags)
        assert refused.code == 2
        assert "run: holds a run already" in refused.err
        assert contents(place / "run") == before

    def test_from_the_stored_config_alone(self, tiny, place, stopped_after_a_step, program):
        stopped_after_a_step(tiny(method="adamw"), place / "run")
        finished = program("train", "--out", "run", "--resume")
        assert finished.code == 0, finished.err
        assert "continuing at step 1: adamw, small-cnn-w8 on digits, 3 epochs" in finished.err

    @pytest.mark.parametrize("free", [["--checkpoint-every", 3], ["--data-dir", "elsewhere"]])
    def test_free_keys_may_differ(
        self, tiny, place, stopped_after_a_step, program, free, outcome, undisturbed
    ):
        stopped_after_a_step(tiny(), place / "run")
        assert program("train", "--out", "run", "--resume", *free).code == 0
        assert outcome(place / "run") == undisturbed()

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            (["--epochs", 4], "epochs = 4 (was 3)"),
            (["--seed", 1], "seed = 1 (was 0)"),
            (["--set", "sgd-sa.lr=[0.5]"], "sgd-sa.lr = [0.5] (was [0.9, 0.8,"),
            (["--set", "sgd-sa.temperature=0.5"], "sgd-sa.temperature = 0.5 (was 'unset')"),
            (["--method", "sgd"], "method = 'sgd' (was 'sgd-sa'). Choose"),
        ],
    )
    def test_a_run_of_another_config_is_refused(
        self, tiny, place, stopped_after_a_step, program, contents, changes, words
    ):
        stopped_after_a_step(tiny(), place / "run")
        before = contents(place / "run")
        refused = program("train", "--out", "run", "--resume", *changes)
        assert refused.code == 2
        assert f"holds a run of another config: {words}" in refused.err
        assert len(refused.err.splitlines()) == 1
        assert contents(place / "run") == before

    def test_a_finished_run_of_another_config_is_refused_too(self, complete, tiny):
        directory = complete(epochs=1)
        with pytest.raises(ConfigError, match=r"batch_size = 20 \(was 30\)"):
            run(tiny(epochs=1, batch_size=20), directory)

    def test_threads_are_those_of_the_run(self, tiny, place, stopped_after_a_step):
        used = []

        class Counting(Progress):
            def step(self, session, loss):
                used.append(torch.get_num_threads())

        try:
            stopped_after_a_step(tiny(threads=2, epochs=1), place)
            torch.set_num_threads(1)
            values = {k: v for k, v in tiny(epochs=1).to_dict().items() if k != "threads"}
            run(from_values(values), place, progress=Counting())
        finally:
            torch.set_num_threads(1)
        assert set(used) == {2}
        assert read_toml(place / "config.toml")["threads"] == 2


class TestOtherFiles:
    @pytest.mark.parametrize("name", ["result.json", "metrics.jsonl", "checkpoints"])
    @pytest.mark.parametrize("resume", [False, True])
    def test_what_is_left_of_a_run_is_not_taken_for_one(self, complete, tiny, name, resume):
        directory = complete(epochs=1)
        for path in directory.iterdir():
            if path.name != name and path.is_file():
                path.unlink()
        with pytest.raises(ConfigError, match=f"holds .*{name}"):
            run(tiny(), directory, resume=resume)

    def test_files_of_others_stay(self, complete, place):
        for name in ("notes.tmp", "notes.txt", "config.toml.bak"):
            (place / name).write_text("mine")
        complete(place, epochs=1)
        for name in ("notes.tmp", "notes.txt", "config.toml.bak"):
            assert (place / name).read_text() == "mine"

    def test_scratch_of_a_killed_process_goes(self, tiny, place):
        with pytest.raises(RunStoppedError):
            run(tiny(epochs=2), place, stop=StopRequest(1))
        names = ("config.toml.tmp", "best.safetensors.tmp", "best.json.tmp", "result.json.tmp")
        for name in (*names, ".tmphGi26c"):  # the last one as safetensors leaves it
            (place / name).write_text("half")
        run(tiny(epochs=2), place)
        assert not [path for path in place.rglob("*") if "tmp" in path.name]

    @pytest.mark.parametrize("name", ["config.toml", "result.json"])
    def test_a_damaged_file_is_named(self, complete, tiny, name):
        directory = complete(epochs=1)
        (directory / name).write_text("{")
        with pytest.raises(RunError, match=name):
            run(tiny(epochs=1), directory)


def test_the_default_directory_is_free_until_a_run_has_begun(program, tiny_flags, place):
    """A failed start does not use a name up, a begun run does."""
    flags = ["train", *tiny_flags, "--epochs", 1]
    assert program(*flags, "--train-size", 1).code == 2
    names = []
    for _ in range(2):
        finished = program(*flags)
        assert finished.code == 0
        names.append(finished.out.splitlines()[1])
    base = "weights: runs/digits-small-cnn-w8-sgd-sa-seed0"
    assert names == [f"{base}/best.safetensors", f"{base}-2/best.safetensors"]
    again = program(*flags, "--resume")
    assert again.out.splitlines()[1] == names[1]  # the last one


def test_result_agrees_with_the_records(complete, lines_of):
    directory = complete()
    result = json.loads((directory / "result.json").read_text())
    best = json.loads((directory / "best.json").read_text())
    records = lines_of(directory / "metrics.jsonl")
    last = records[-1]
    chosen = records[best["epoch"] - 1]
    for name in ("validation_loss", "validation_accuracy"):
        assert result[f"last_{name}"] == last[name]
        assert result[f"best_{name}"] == best[name] == chosen[name]
    assert result["best_epoch"] == best["epoch"]
    assert (result["epochs"], result["steps"]) == (3, 18)
    assert (result["forwards"], result["backwards"]) == (last["forwards"], last["backwards"])
    assert chosen["validation_accuracy"] == max(r["validation_accuracy"] for r in records)
