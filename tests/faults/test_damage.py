"""Flipped bytes and cut files: noticed before training goes on or a page is made, and named."""

import hashlib
import json
import random
import shutil
import tomllib
from pathlib import Path

import pytest
import torch
from annealtune.studies.listing import list_directory

import annealtune
from annealtune.errors import ConfigError, RunError
from annealtune.studies.engines import Task
from annealtune.studies.records import read_lone_run, read_study, sealed_toml
from annealtune.training.config import FREE_KEYS
from annealtune.training.describe import describe_run
from annealtune.training.runs import run, score
from annealtune.training.stopping import StopRequest
from annealtune.training.storage import seal, verify
from annealtune.training.storage.changes import config_changes, flat
from annealtune.training.storage.directory import RunDirectory

SAMPLE, ALL = 20, 1000
FINISHED = (
    "config.toml",
    "task.json",
    "metrics.jsonl",
    "moves.jsonl",
    "best.json",
    "best.safetensors",
    "result.json",
    "seal.json",
    "newest manifest",
    "newest state",
    "older manifest",
    "older state",
)
UNFINISHED = tuple(name for name in FINISHED if name not in ("result.json", "seal.json"))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """Nothing goes on in these runs: two looks need no time between them."""
    monkeypatch.setattr(verify, "_BETWEEN_LOOKS", 0)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run and one that was left after four of six epochs, which nobody may change."""
    place = tmp_path_factory.mktemp("runs")
    return {"finished": _made(place / "finished"), "unfinished": _made(place / "unfinished", 4)}


def _made(path, stop_after=None, **changes):
    config = annealtune.training.config.from_values({**TINY, **changes})
    try:
        run(config, path, stop=StopRequest(stop_after))
    except annealtune.errors.RunStoppedError:
        assert stop_after is not None
    return path


TINY = {
    "method": "sgd-sa",
    "model": "mlp-w8",
    "train_size": 200,
    "batch_size": 30,
    "epochs": 6,
    "threads": 1,
}


@pytest.fixture
def copied(runs, place):
    def copied(state: str) -> Path:
        shutil.rmtree(place / state, ignore_errors=True)
        return Path(shutil.copytree(runs[state], place / state))

    return copied


def file_of(directory: Path, name: str) -> Path:
    age, _, part = name.partition(" ")
    if not part:
        return directory / name
    manifests = sorted((directory / "checkpoints").glob("*.json"))
    manifest = manifests[-1 if age == "newest" else -2]
    if part == "manifest":
        return manifest
    return manifest.with_name(json.loads(manifest.read_bytes())["file"])


def flips(content: bytes, count: int, name: str):
    """Yield a content with one byte changed, again and again."""
    chance = random.Random(f"{name} {count}")
    for _ in range(count):
        position = chance.randrange(len(content))
        changed = bytearray(content)
        changed[position] ^= chance.randrange(1, 256)
        yield position, bytes(changed)


def cuts(content: bytes):
    """Yield a content without its end."""
    lengths = {0, 1, len(content) // 2, len(content) - 1, content[:-1].rfind(b"\n") + 1}
    yield from ((length, content[:length]) for length in sorted(lengths))


def expect_refused(look, directory, path):
    with pytest.raises((RunError, ConfigError)) as refused:
        look(directory)
    assert path.name in str(refused.value)


def both(names):
    """A sample of each file, and all as a slow test."""
    few = [pytest.param(name, SAMPLE, id=name) for name in names]
    return few + [
        pytest.param(name, ALL, id=f"{name}, all", marks=pytest.mark.slow) for name in names
    ]


@pytest.mark.parametrize(("name", "count"), both(FINISHED))
def test_a_finished_run_is_shown_whole_or_not_at_all(copied, name, count):
    directory = copied("finished")
    path = file_of(directory, name)
    whole = path.read_bytes()
    for where, damaged in (*flips(whole, count, name), *cuts(whole)):
        path.write_bytes(damaged)
        for look in (describe_run, read_lone_run):
            expect_refused(look, directory, path)
        if "checkpoint" not in str(path) and path.name != "best.safetensors":
            (entry,) = list_directory(directory).entries
            assert entry.state == "damaged", where
    path.write_bytes(whole)
    describe_run(directory)


@pytest.mark.parametrize("name", ["config.toml", "task.json", "best.json", "best.safetensors"])
def test_no_model_comes_out_of_a_damaged_run(copied, name):
    directory = copied("finished")
    path = file_of(directory, name)
    whole = path.read_bytes()
    for _, damaged in (*flips(whole, 5, name), *cuts(whole)):
        path.write_bytes(damaged)
        for look in (annealtune.load, score):
            expect_refused(look, directory, path)


@pytest.mark.parametrize(("name", "count"), both(UNFINISHED))
def test_an_unfinished_run_goes_on_from_what_is_whole_or_not_at_all(copied, place, name, count):
    original = copied("unfinished")
    whole = file_of(original, name).read_bytes()
    for where, damaged in (*flips(whole, count, name), *cuts(whole)):
        directory = copied("unfinished")
        path = file_of(directory, name)
        path.write_bytes(damaged)
        before = {each: each.read_bytes() for each in directory.rglob("*") if each.is_file()}
        if name == "config.toml" and are_free_keys_changed(directory, whole, damaged):
            continue
        expect_refused(read_lone_run, directory, path)
        told = []
        held = RunDirectory(directory)
        try:
            state = held.load(told.append)
        except RunError as error:
            told.append(str(error))
            assert {each: each.read_bytes() for each in before} == before, where
        else:
            held.go_on(state, told.append)
        assert any(path.name in words for words in told), (where, told)


def are_free_keys_changed(directory, whole, damaged):
    """Whether nothing but values that may be changed is different; then the change is noted."""
    try:
        was, now = (flat(tomllib.loads(text.decode())) for text in (whole, damaged))
    except ValueError:
        return False
    differing = {key for key in was.keys() | now.keys() if was.get(key) != now.get(key)}
    if not differing or not differing <= FREE_KEYS:
        return False
    return bool(config_changes(whole.decode(), directory / "config.toml"))


class TestWhatIsMadeGood:
    """The run ends as if nothing had happened."""

    @pytest.fixture
    def ends_as_undisturbed(self, outcome, runs, tiny):
        expected = outcome(runs["finished"])

        def ends_as_undisturbed(directory):
            run(tiny(**TINY), directory)
            describe_run(directory)
            return outcome(directory) == expected

        return ends_as_undisturbed

    @pytest.mark.parametrize("name", ["newest state", "newest manifest", "older state"])
    def test_a_damaged_checkpoint(self, copied, ends_as_undisturbed, name):
        directory = copied("unfinished")
        path = file_of(directory, name)
        path.write_bytes(path.read_bytes()[:-3])
        assert ends_as_undisturbed(directory)

    def test_the_last_line_of_the_records(self, copied, ends_as_undisturbed):
        directory = copied("unfinished")
        path = directory / "metrics.jsonl"
        path.write_bytes(path.read_bytes().replace(b'"epoch": 4', b'"epoch": 7'))
        assert ends_as_undisturbed(directory)

    def test_best_weights_of_the_last_epoch(self, place, ends_as_undisturbed):
        directory = _made(place / "run", 3)
        assert json.loads((directory / "best.json").read_text())["epoch"] == 3
        (directory / "best.safetensors").write_bytes(b"damaged")
        assert ends_as_undisturbed(directory)

    @pytest.mark.parametrize("name", ["best.json", "task.json"])
    def test_a_file_that_can_be_written_again(self, copied, ends_as_undisturbed, name):
        directory = copied("unfinished")
        (directory / name).unlink()
        assert ends_as_undisturbed(directory)

    def test_a_result_that_was_removed(self, copied, ends_as_undisturbed):
        directory = copied("finished")
        (directory / "result.json").unlink()
        assert ends_as_undisturbed(directory)

    def test_a_search_for_a_seed_lets_a_damaged_run_make_it_good(self, copied, tiny):
        directory = copied("unfinished")
        task = Task("sgd-sa", 0, tiny(**TINY), directory, stop_after=4)
        assert task.is_done()
        path = directory / "metrics.jsonl"
        path.write_bytes(path.read_bytes().replace(b'"epoch": 4', b'"epoch": 7'))
        assert not task.is_done()
        with pytest.raises(annealtune.errors.RunStoppedError):
            run(tiny(**TINY), directory, stop=StopRequest(4))
        assert task.is_done()


class TestWhatIsRefused:
    def test_best_weights_that_no_checkpoint_can_make_again(self, copied, contents, tiny):
        directory = copied("unfinished")
        # Older than both checkpoints, which are of epochs 3 and 4.
        assert json.loads((directory / "best.json").read_text())["epoch"] == 3
        (directory / "best.safetensors").write_bytes(b"damaged")
        before = contents(directory)
        with pytest.raises(RunError, match=r"best\.safetensors is damaged.*Nothing was changed"):
            run(tiny(**TINY), directory)
        assert contents(directory) == before

    def test_best_weights_of_another_run(self, copied, place, contents, tiny):
        """Whole, and of a later epoch, but no epoch of this run had their scores."""
        directory, other = copied("unfinished"), _made(place / "other", seed=1)
        assert json.loads((other / "best.json").read_text())["epoch"] > 4
        for name in ("best.json", "best.safetensors"):
            shutil.copy(other / name, directory / name)
        before = contents(directory)
        with pytest.raises(RunError, match=r"best\.safetensors is damaged"):
            run(tiny(**TINY), directory)
        assert contents(directory) == before

    def test_checkpoints_that_are_gone(self, copied, contents, tiny):
        directory = copied("unfinished")
        shutil.rmtree(directory / "checkpoints")
        before = contents(directory)
        with pytest.raises(
            RunError, match=r"checkpoints: has no checkpoint, but the run has begun"
        ):
            run(tiny(**TINY), directory)
        with pytest.raises(RunError, match="checkpoints/ is missing"):
            describe_run(directory)
        assert contents(directory) == before

    def test_those_of_a_finished_run_may_be_removed(self, copied):
        directory = copied("finished")
        shutil.rmtree(directory / "checkpoints")
        assert dict(describe_run(directory))["state"] == "finished"

    def test_a_seal_that_was_removed(self, copied):
        directory = copied("finished")
        (directory / "seal.json").unlink()
        shutil.rmtree(directory / "checkpoints")
        with pytest.raises(RunError, match=r"seal\.json is missing"):
            describe_run(directory)


class TestAnEditedConfig:
    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("train_sample = 10", "train_sample = 11"),
            ("epochs = 6", "epochs = 7"),
            ("epochs = 6", "epochs = 5"),
            ("compile = false", "compile = true"),
            ("validation_fraction = 0.1", "validation_fraction = 0.2"),
            ("0.9,", "0.91,"),
            ('python = "3', 'python = "4'),
            ("seed = 0", "seed = 0 # the first"),
        ],
    )
    def test_is_refused_with_what_was_there(self, copied, contents, program, old, new):
        directory = copied("unfinished")
        config = directory / "config.toml"
        assert old in config.read_text()
        config.write_text(config.read_text().replace(old, new, 1))
        before = contents(directory)
        refused = program("train", "--out", directory, "--resume")
        assert refused.code == 1
        assert "config.toml was changed" in refused.err
        assert new.partition(" = ")[0].strip(",") in refused.err
        assert contents(directory) == before

    def test_a_key_that_changes_no_result_is_accepted_and_noted(
        self, copied, program, outcome, runs
    ):
        directory = copied("unfinished")
        config = directory / "config.toml"
        config.write_text(config.read_text().replace('every = "epoch"', 'every = "2"'))
        describe_run(directory)
        assert program("train", "--out", directory, "--resume").code == 0
        stored = tomllib.loads(config.read_text())
        assert stored["checkpoint_every"] == "2"
        assert stored["environment"]["changes"] == [
            "step 24: checkpoint_every = '2' (the run has 'epoch')"
        ]
        assert outcome(directory) == outcome(runs["finished"])
        describe_run(directory)

    @pytest.mark.parametrize(
        "method",
        [
            {"method": "sgd"},
            {"method": "random-rate"},
            {"method": "sgd-sa", "sgd-sa": {"temperature": 1.0}},
            {"method": "ssa", "ssa": {"temperature": 1.0, "cooling_factor": 0.5}},
        ],
        ids=lambda method: method["method"],
    )
    def test_more_epochs_are_what_the_longer_run_has(self, place, tiny, outcome, method):
        short = _made(place / "short", 2, epochs=3, **method)
        run(tiny(**{**TINY, **method, "epochs": 5}), short)
        whole = _made(place / "whole", epochs=5, **method)
        assert outcome(short) == outcome(whole)
        changes = tomllib.loads((short / "config.toml").read_text())["environment"]["changes"]
        assert changes == ["step 12: epochs = 5 (the run has 3)"]

    @pytest.mark.parametrize("epochs", ['"7"', "[7]", "true", "nan", "1e99", "2"])
    def test_epochs_that_are_no_larger_number_are_not_more(self, place, epochs):
        directory = _made(place / "run", 1, epochs=3, method="sgd")
        config = directory / "config.toml"
        config.write_text(config.read_text().replace("epochs = 3", f"epochs = {epochs}"))
        with pytest.raises(RunError, match=r"config\.toml was changed: epochs = "):
            verify.check_run(directory)

    @pytest.mark.parametrize("method", ["self-tuned", "scheduled-sgd", "adamw", "sgd-momentum"])
    def test_more_epochs_are_refused_where_the_first_ones_would_be_others(
        self, place, tiny, method
    ):
        directory = _made(place / "run", 1, epochs=3, method=method)
        with pytest.raises(ConfigError, match=r"epochs = 5 \(the run has 3\)"):
            run(tiny(**{**TINY, "method": method, "epochs": 5}), directory)


class TestAnEarlierVersion:
    """Runs without a seal can be read and continued; what they recorded cannot be verified."""

    @pytest.fixture
    def older(self, copied):
        def older(state):
            directory = copied(state)
            (directory / "seal.json").unlink(missing_ok=True)
            config = directory / "config.toml"
            config.write_text(config.read_text().replace("\nseal = 2\n", "\n"))
            for manifest in (directory / "checkpoints").glob("*.json"):
                facts = json.loads(manifest.read_bytes())
                path = manifest.with_name(facts["file"])
                content = torch.load(path, weights_only=True)
                content["record_sizes"] = [facts["files"][name][0] for name in seal.RECORDS]
                path.unlink()
                torch.save(content, path)
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                path = path.rename(path.with_name(f"{manifest.stem}-{digest[:12]}.pt"))
                old = {"format": 1, "step": facts["step"], "file": path.name}
                old |= {"bytes": path.stat().st_size, "sha256": digest}
                manifest.write_text(json.dumps(old))
            return directory

        return older

    def test_a_finished_one_is_shown(self, older):
        rows = dict(describe_run(older("finished")))
        assert rows["state"] == "finished"
        assert "earlier version" in rows["seal"]
        assert score(older("finished"))["epoch"] > 0

    def test_an_unfinished_one_goes_on(self, older, tiny, outcome, runs, capsys):
        directory = older("unfinished")
        run(tiny(**TINY), directory)
        assert "begun by an earlier version" in capsys.readouterr().err
        assert outcome(directory) == outcome(runs["finished"])
        assert "seal" not in dict(describe_run(directory))


@pytest.mark.parametrize(("name", "count"), both(["study.toml", "search.json"]))
def test_a_study(place, name, count):
    facts = {"format": 2, "name": "a", "command": "b", "vary": "seed", "seeds": [0, 1]}
    method = {"label": "sgd", "config": {"method": "sgd", "epochs": 3}}
    facts |= {"experiment": {"epochs": 3}, "environment": {"cores": 2}, "methods": [method]}
    (place / "study.toml").write_bytes(sealed_toml(facts))
    rungs = [{"epochs": 1, "pruned": [1], "kept": [0], "scores": []}]
    (place / "search.json").write_bytes(seal.sealed_text({"kind": "best-seed", "rungs": rungs}))
    whole = (place / name).read_bytes()
    assert read_study(place).search["rungs"] == rungs
    for _, damaged in (*flips(whole, count, name), *cuts(whole)):
        (place / name).write_bytes(damaged)
        expect_refused(read_study, place, place / name)
