"""What lies below a directory: runs, studies, their scores; broken ones too."""

import json
from pathlib import Path

import filelock
import pytest

from annealtune.errors import ConfigError
from annealtune.studies.listing import list_directory


@pytest.fixture
def make_run(tmp_path):
    """Writes the files of a run as they lie on disk."""

    def make_run(name, *, config="method = 'sgd'\nepochs = 3\ndata = 'd'\nmodel = 'm'\n", **files):
        path = tmp_path / name
        path.mkdir(parents=True)
        if config is not None:
            (path / "config.toml").write_text(config)
        for stem, content in files.items():
            if stem == "metrics":
                lines = "".join(json.dumps(line) + "\n" for line in content)
                (path / "metrics.jsonl").write_text(lines)
            else:
                (path / f"{stem}.json").write_text(json.dumps(content))
        return path

    return make_run


def only(path):
    (entry,) = list_directory(path).entries
    return entry


class TestARun:
    def test_finished(self, make_run):
        path = make_run(
            "a",
            config="method = 'self-tuned'\nepochs = 2\ndata = 'digits'\nmodel = 'mlp'\n",
            metrics=[
                {"epoch": 1, "rate": 0.3, "races": [{"rate": 0.1}]},
                {"epoch": 2, "rate": 1e-9},
            ],
            best={"epoch": 2, "validation_accuracy": 0.5, "validation_loss": 1.5},
            result={
                "test_accuracy": 0.25,
                "test_loss": 2.5,
                "races": [{"rate": 0.1}, {"rate": 0.02}],
            },
        )
        assert only(path).to_dict() == {
            "path": str(path),
            "kind": "run",
            "state": "finished",
            "reason": None,
            "method": "self-tuned",
            "data": "digits",
            "model": "mlp",
            "done": 2,
            "planned": 2,
            "rate": 0.02,
            "validation_accuracy": 0.5,
            "validation_loss": 1.5,
            "test_accuracy": 0.25,
            "test_loss": 2.5,
        }

    def test_regression_has_losses_alone(self, make_run):
        path = make_run("a", best={"epoch": 1, "validation_loss": 0.5}, result={"test_loss": 0.25})
        assert only(path).scores == {"validation_loss": 0.5, "test_loss": 0.25}

    def test_unfinished_with_half_a_line(self, make_run):
        path = make_run("a", metrics=[{"epoch": 1}], best={"validation_loss": None})
        with (path / "metrics.jsonl").open("a") as file:
            file.write('{"epoch": 2, "va')
        entry = only(path)
        assert (entry.state, entry.done, entry.planned, entry.scores) == ("unfinished", 1, 3, {})

    @pytest.mark.parametrize(
        ("block", "records", "rate"),
        [
            ("[sgd]\nlr = 0.1", [{"rate": 0.1}], 0.1),
            ("[sgd]\nlr = [0.5]", [], 0.5),
            ("[sgd]\nlr = [0.5, 0.1]", [{"temperature": 1.0}], None),
            ("", [{"rate": 3e-3}, {"rate": 1e-5}], 3e-3),
            ("", [{"races": []}, {"rate": None}], None),
            ("[sgd]\nlr = 'x'", [], None),
        ],
    )
    def test_the_rate(self, make_run, block, records, rate):
        path = make_run("a", config=f"method = 'sgd'\nepochs = 3\n{block}", metrics=records)
        assert only(path).rate == rate


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux tells who holds a lock")
class TestRunning:
    def test_while_a_process_holds_the_directory(self, make_run):
        path = make_run("a", metrics=[])
        with filelock.FileLock(path / ".lock"):
            assert only(path).state == "running"
        assert only(path).state == "unfinished"

    def test_a_finished_run_is_finished_whoever_looks_at_it(self, make_run):
        path = make_run("a", result={"test_loss": 1.0})
        with filelock.FileLock(path / ".lock"):
            assert only(path).state == "finished"


class TestDamage:
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("config.toml", b"epochs ="),
            ("config.toml", b"\xff\xfe"),
            ("result.json", b"{"),
            ("result.json", b"[1]"),
            ("best.json", b"["),
            ("metrics.jsonl", b"{}\nnonsense\n"),
            ("metrics.jsonl", b"3\n"),
        ],
    )
    def test_is_an_entry_that_says_so(self, make_run, name, content):
        path = make_run("a", metrics=[])
        (path / name).write_bytes(content)
        entry = only(path)
        assert (entry.state, entry.reason) == ("damaged", f"{name} cannot be read")

    def test_what_is_left_of_a_run(self, make_run, tmp_path):
        make_run("a", config=None, metrics=[{"epoch": 1}], result={})
        assert only(tmp_path).reason == "it has no config.toml"

    def test_a_study_of_nonsense(self, tmp_path):
        (tmp_path / "s").mkdir()
        (tmp_path / "s" / "study.toml").write_text("format = 'x'")
        entry = only(tmp_path)
        assert (entry.kind, entry.state) == ("study", "damaged")
        assert "this version reads format" in entry.reason

    def test_foreign_directories_are_skipped_and_named(self, make_run, tmp_path):
        make_run("deep/er/a", metrics=[])
        make_run("theirs", config="theme = 'dark'")
        (tmp_path / ".hidden" / "x").mkdir(parents=True)
        (tmp_path / "file").touch()
        listing = list_directory(tmp_path)
        assert [entry.path for entry in listing.entries] == [tmp_path / "deep" / "er" / "a"]
        assert listing.skipped == (tmp_path / "theirs",)

    @pytest.mark.parametrize("name", ["nowhere", "file"])
    def test_no_directory(self, tmp_path, name):
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError, match="is not a directory"):
            list_directory(tmp_path / name)

    def test_a_link_in_a_circle(self, make_run, tmp_path):
        make_run("a", metrics=[])
        (tmp_path / "loop").symlink_to(tmp_path)
        assert [entry.path.name for entry in list_directory(tmp_path).entries] == ["a"]


def test_sorted_as_people_count(make_run, tmp_path):
    for name in ("b-seed10", "b-seed9", "a", "b-seed1"):
        make_run(name, metrics=[])
    names = [entry.path.name for entry in list_directory(tmp_path).entries]
    assert names == ["a", "b-seed1", "b-seed9", "b-seed10"]
