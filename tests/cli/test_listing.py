"""``annealtune list``: what lies below a directory, and how far each got; broken ones too."""

import json

import filelock
import pytest

from annealtune.cli.listing import list_directory

TINY = ("--model", "mlp-w16", "--train-size", "100", "--threads", "1", "--batch-size", "30")
CONFIG = "method = 'sgd'\nepochs = 3\ndata = 'd'\nmodel = 'm'\n"


@pytest.fixture
def make_run(tmp_path):
    """Writes the files of a run as they lie on disk."""

    def make_run(name, *, config=CONFIG, metrics=(), result=None):
        path = tmp_path / name
        path.mkdir(parents=True)
        (path / "config.toml").write_text(config)
        lines = [{"epoch": 1, "validation_loss": None, **line} for line in metrics]
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        if result is not None:
            (path / "result.json").write_text(json.dumps(result))
        return path

    return make_run


def only(path):
    (entry,) = list_directory(path)
    return entry


def test_real_runs_and_a_study_with_the_numbers_on_disk(program, place, tiny):
    assert program("train", *TINY, "--epochs", 2, "--out", "runs/whole").code == 0
    words = ["train", *TINY, "--epochs", 3, "--method", "adamw", "--stop-after", 1]
    assert program(*words, "--out", "runs/part").code == 0
    words = ["study", tiny, "--methods", "sgd,ssa", "--seeds", "0", "--epochs", "1", "--jobs", 2]
    assert program(*words, "--out", "studies/small").code == 0
    done = program("list")
    assert (done.code, done.err) == (0, "")
    head, part, whole, study = map(str.split, done.out.splitlines())
    assert head == ["state", "done", "rate", "valid.", "test", "run", "or", "study"]
    best = json.loads((place / "runs" / "whole" / "best.json").read_text())
    result = json.loads((place / "runs" / "whole" / "result.json").read_text())
    scores = [f"{best['validation_accuracy']:.1%}", f"{result['test_accuracy']:.1%}"]
    assert whole[:6] == ["finished", "2/2", "3e-3", *scores, "runs/whole"]
    assert part[:3] == ["unfinished", "1/3", "1e-3"]
    assert study[:3] == ["finished", "2/2", "studies/small"]
    done = program("list", "studies/small", "--json")
    found = {entry["method"]: entry for entry in json.loads(done.out)}
    assert list(found) == ["sgd", "ssa"]
    result = json.loads((place / "studies/small/runs/sgd-seed0/result.json").read_text())
    assert found["sgd"]["test_accuracy"] == result["test_accuracy"]


def test_where_there_is_nothing(annealtune, refused):
    code, out, err = annealtune("list")
    assert (code, err) == (0, "")
    assert "no runs or studies in runs and studies" in out
    assert annealtune("list", "--json") == (0, "[]\n", "")
    assert "nowhere" in refused("list", "nowhere")


def test_a_finished_run(make_run):
    path = make_run(
        "a",
        config="method = 'self-tuned'\nepochs = 2\ndata = 'digits'\nmodel = 'mlp'\n",
        metrics=[
            {"rate": 0.3, "validation_accuracy": 0.5, "validation_loss": 1.5},
            {"rate": 1e-9, "validation_accuracy": 0.5, "validation_loss": 2.5},
        ],
        result={"test_accuracy": 0.25, "test_loss": 2.5, "races": [{"rate": 0.1}, {"rate": 0.02}]},
    )
    assert only(path) == {
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


@pytest.mark.parametrize(
    ("block", "records", "rate"),
    [
        ("[sgd]\nlr = 0.1", [{"rate": 0.1}], 0.1),
        ("[sgd]\nlr = [0.5]", [], 0.5),
        ("[sgd]\nlr = [0.5, 0.1]", [{"temperature": 1.0}], None),
        ("", [{"rate": 3e-3}, {"rate": 1e-5}], 3e-3),
        ("", [{"races": []}, {"rate": None}], None),
    ],
)
def test_the_rate(make_run, block, records, rate):
    path = make_run("a", config=f"method = 'sgd'\nepochs = 3\n{block}", metrics=records)
    assert only(path)["rate"] == rate


def test_running_while_a_process_holds_the_directory(make_run):
    path, finished = make_run("a"), make_run("b", result={"test_loss": 1.0})
    with filelock.FileLock(path / ".lock"), filelock.FileLock(finished / ".lock"):
        assert only(path)["state"] == "running"
        assert only(finished)["state"] == "finished"
    assert only(path)["state"] == "unfinished"


@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl", "config.toml"])
def test_damage_is_an_entry_that_says_so(make_run, name):
    path = make_run("a")
    (path / name).write_bytes(b"{\n")
    entry = only(path)
    assert entry["state"] == "failed"
    assert name in entry["reason"]


def test_a_study_of_nonsense(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "study.toml").write_text("format = 'x'")
    entry = only(tmp_path)
    assert (entry["kind"], entry["state"]) == ("study", "failed")


def test_other_directories_are_left_out(make_run, tmp_path):
    for name in ("c", "b", "deep/er/a"):
        make_run(name)
    make_run("theirs", config="theme = 'dark'")
    (tmp_path / "theirs" / "metrics.jsonl").unlink()
    (tmp_path / "loop").symlink_to(tmp_path)
    names = [entry["path"].rpartition("/")[2] for entry in list_directory(tmp_path)]
    assert names == ["b", "c", "a"]
