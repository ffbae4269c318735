"""Flipped bytes and cut files: noticed before training goes on or a result is shown, and named."""

import json
import random
import shutil
import tomllib
from pathlib import Path

import pytest

import annealtune
from annealtune.errors import ConfigError, RunError, RunStoppedError
from annealtune.studies.records import read_lone_run
from annealtune.training.config import from_values
from annealtune.training.describe import describe_run
from annealtune.training.runs import run, score
from annealtune.training.stopping import StopRequest
from annealtune.training.storage.directory import RunDirectory

SAMPLE, ALL = 10, 1000
FINISHED = (
    "config.toml",
    "task.json",
    "metrics.jsonl",
    "moves.jsonl",
    "best.json",
    "best.safetensors",
    "result.json",
    "SHA256SUMS",
)
TINY = {
    "method": "sgd-sa",
    "model": "mlp-w8",
    "train_size": 200,
    "batch_size": 30,
    "epochs": 6,
    "threads": 1,
}


def made(path, stop_after=None, **changes):
    config = from_values({**TINY, **changes})
    try:
        run(config, path, stop=StopRequest(stop_after))
    except RunStoppedError:
        assert stop_after is not None
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run and one that was left after four of six epochs, which nobody may change."""
    place = tmp_path_factory.mktemp("runs")
    return {"finished": made(place / "finished"), "unfinished": made(place / "unfinished", 4)}


@pytest.fixture
def copied(runs, place):
    def copied(state: str) -> Path:
        shutil.rmtree(place / state, ignore_errors=True)
        return Path(shutil.copytree(runs[state], place / state))

    return copied


def damages(content: bytes, count: int, name: str):
    """Yield a content with one byte changed, again and again, then without its end."""
    chance = random.Random(f"{name} {count}")
    for _ in range(count):
        changed = bytearray(content)
        changed[chance.randrange(len(content))] ^= chance.randrange(1, 256)
        yield bytes(changed)
    lengths = {0, 1, len(content) // 2, len(content) - 1, content[:-1].rfind(b"\n") + 1}
    yield from (content[:length] for length in sorted(lengths))


def both(names):
    """A sample of each file, and many as a slow test."""
    many = [pytest.param(name, ALL, id=f"{name}, all", marks=pytest.mark.slow) for name in names]
    return [pytest.param(name, SAMPLE, id=name) for name in names] + many


@pytest.mark.parametrize(("name", "count"), both(FINISHED))
def test_a_finished_run_is_shown_whole_or_not_at_all(copied, name, count):
    path = copied("finished") / name
    whole = path.read_bytes()
    for damaged in damages(whole, count, name):
        path.write_bytes(damaged)
        for look in (describe_run, read_lone_run):
            with pytest.raises((RunError, ConfigError), match=path.name):
                look(path.parent)
    path.write_bytes(whole)
    describe_run(path.parent)


@pytest.mark.parametrize("name", ["config.toml", "task.json", "best.json", "best.safetensors"])
def test_no_model_comes_out_of_a_damaged_run(copied, name):
    path = copied("finished") / name
    for damaged in damages(path.read_bytes(), 5, name):
        path.write_bytes(damaged)
        for look in (annealtune.load, score):
            with pytest.raises((RunError, ConfigError), match=path.name):
                look(path.parent)


def test_the_checkpoints_of_a_finished_run_may_be_removed(copied):
    directory = copied("finished")
    shutil.rmtree(directory / "checkpoints")
    assert dict(describe_run(directory))["state"] == "finished"


@pytest.mark.parametrize(
    ("name", "count"), both(["metrics.jsonl", "moves.jsonl", "newest", "older"])
)
def test_an_unfinished_run_goes_on_from_what_is_whole_or_not_at_all(copied, newest, name, count):
    directory = copied("unfinished")
    path = directory / name
    if name in ("newest", "older"):
        path = newest(directory, age=name == "older")
    whole = path.read_bytes()
    for damaged in damages(whole, count, name):
        path.write_bytes(damaged)
        told = []
        try:
            RunDirectory(directory).load(told.append)
        except RunError as error:
            told.append(str(error))
        assert any(path.name in words for words in told) or name == "older"
        assert path.read_bytes() == damaged, "nothing may be changed yet"


class TestWhatIsMadeGood:
    @pytest.fixture
    def ends_as_undisturbed(self, outcome, runs, tiny):
        expected = outcome(runs["finished"])

        def ends_as_undisturbed(directory):
            run(tiny(**TINY), directory)
            describe_run(directory)
            return outcome(directory) == expected

        return ends_as_undisturbed

    @pytest.mark.parametrize("age", [0, 1])
    def test_a_damaged_checkpoint(self, copied, newest, ends_as_undisturbed, age):
        directory = copied("unfinished")
        path = newest(directory, age)
        path.write_bytes(path.read_bytes()[:-3])
        assert ends_as_undisturbed(directory)

    def test_the_last_line_of_the_records(self, copied, ends_as_undisturbed):
        directory = copied("unfinished")
        path = directory / "metrics.jsonl"
        path.write_bytes(path.read_bytes().replace(b'"epoch": 4', b'"epoch": 7'))
        assert ends_as_undisturbed(directory)

    @pytest.mark.parametrize("content", [b"damaged", None])
    def test_best_weights(self, copied, ends_as_undisturbed, content):
        """Every checkpoint holds them too."""
        path = copied("unfinished") / "best.safetensors"
        path.unlink() if content is None else path.write_bytes(content)
        assert ends_as_undisturbed(path.parent)

    @pytest.mark.parametrize("name", ["best.json", "task.json"])
    def test_a_file_that_can_be_written_again(self, copied, ends_as_undisturbed, name):
        directory = copied("unfinished")
        (directory / name).unlink()
        assert ends_as_undisturbed(directory)

    def test_a_result_that_was_removed(self, copied, ends_as_undisturbed):
        directory = copied("finished")
        (directory / "result.json").unlink()
        assert ends_as_undisturbed(directory)


def test_checkpoints_that_are_gone(copied, contents, tiny):
    directory = copied("unfinished")
    shutil.rmtree(directory / "checkpoints")
    before = contents(directory)
    for look in (lambda path: run(tiny(**TINY), path), describe_run):
        with pytest.raises(RunError, match="checkpoints"):
            look(directory)
    assert contents(directory) == before


class TestAnEditedConfig:
    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("epochs = 6", "epochs = 5"),
            ("validation_fraction = 0.1", "validation_fraction = 0.2"),
        ],
    )
    def test_is_refused_with_what_was_there(self, copied, contents, program, old, new):
        directory = copied("unfinished")
        config = directory / "config.toml"
        assert old in config.read_text()
        config.write_text(config.read_text().replace(old, new, 1))
        before = contents(directory)
        refused = program("train", "--out", directory, "--resume")
        assert refused.code == 2
        assert new.partition(" = ")[0] in refused.err
        assert contents(directory) == before

    def test_a_key_that_changes_no_result_is_accepted(self, copied, program, outcome, runs):
        directory = copied("unfinished")
        config = directory / "config.toml"
        config.write_text(config.read_text().replace('every = "epoch"', 'every = "2"'))
        assert program("train", "--out", directory, "--resume").code == 0
        stored = tomllib.loads(config.read_text())
        assert stored["checkpoint_every"] == "2"
        assert outcome(directory) == outcome(runs["finished"])


def test_best_weights_that_do_not_fit_their_facts(copied):
    """As a kill between the two leaves them, until the run is continued."""
    directory = copied("unfinished")
    facts = json.loads((directory / "best.json").read_text())
    (directory / "best.json").write_text(json.dumps({**facts, "sha256": "0" * 64}))
    with pytest.raises(RunError, match="--resume"):
        annealtune.load(directory)
