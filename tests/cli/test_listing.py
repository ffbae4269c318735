"""``annealtune list`` with real runs and a real study."""

import json

import pytest

TINY = ("--model", "mlp-w16", "--train-size", "100", "--threads", "1", "--batch-size", "30")


@pytest.fixture
def listed(program, place, tiny, monkeypatch):
    """Two runs, one of them unfinished, and a study with a run that has not begun."""
    assert program("train", *TINY, "--epochs", 2, "--out", "runs/whole").code == 0
    words = ["train", *TINY, "--epochs", 3, "--method", "adamw", "--stop-after", 1]
    assert program(*words, "--out", "runs/part").code == 0
    words = ["study", tiny, "--methods", "sgd,ssa", "--seeds", "0", "--epochs", "1", "--jobs", 2]
    assert program(*words, "--out", "studies/small").code == 0
    return place


def test_the_table_fits_80_columns_and_has_the_numbers_on_disk(listed, program):
    done = program("list")
    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.splitlines())) <= 80
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["run", "or", "study", "epochs", "state", "rate", "valid.", "test"]
    rows = {line[0]: line for line in lines[1:]}
    best = json.loads((listed / "runs" / "whole" / "best.json").read_text())
    result = json.loads((listed / "runs" / "whole" / "result.json").read_text())
    scores = [f"{best['validation_accuracy']:.1%}", f"{result['test_accuracy']:.1%}"]
    assert rows["runs/whole"] == ["runs/whole", "2/2", "finished", "3e-3", *scores]
    assert rows["runs/part"][:4] == ["runs/part", "1/3", "unfinished", "1e-3"]
    assert rows["studies/small"] == ["studies/small", "2/2", "finished"]
    assert "self-tuned, mlp-w16 on digits" in done.out
    assert "study of sgd, ssa, mlp-w8 on digits" in done.out


def test_of_a_study_the_runs(listed, program):
    (listed / "studies" / "small" / "runs" / "ssa-seed0" / "result.json").write_text("{")
    done = program("list", "studies/small", "--json")
    found = {entry["method"]: entry for entry in json.loads(done.out)}
    assert (found["sgd"]["state"], found["ssa"]["state"]) == ("finished", "damaged")
    assert "result.json is damaged" in found["ssa"]["reason"]
    result = json.loads((listed / "studies/small/runs/sgd-seed0/result.json").read_text())
    assert found["sgd"]["test_accuracy"] == result["test_accuracy"]
    assert found["sgd"]["path"] == "studies/small/runs/sgd-seed0"


def test_where_there_is_nothing(annealtune):
    code, out, err = annealtune("list")
    assert (code, err) == (0, "")
    assert (
        out
        == "no runs or studies in runs and studies; list DIR looks elsewhere, train starts a run\n"
    )
    assert annealtune("list", "--json") == (0, "[]\n", "")


def test_other_directories_get_a_word(annealtune, tmp_path):
    (tmp_path / "notes").mkdir()
    code, out, err = annealtune("list", ".")
    assert code == 0
    assert out == "no runs or studies in .; list DIR looks elsewhere, train starts a run\n"
    assert err == "skipped, no run or study in them: notes\n"


def test_in_a_pipe_a_line_a_run(annealtune, tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    name = "a-run-with-a-very-long-name-" * 4
    (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / name / "config.toml").write_text("method = 'sgd'\nepochs = 1\n")
    _, out, _ = annealtune("list")
    assert out.splitlines()[1].split() == [f"runs/{name}", "sgd", "0/1", "unfinished"]


def test_a_place_that_is_none(refused):
    assert refused("list", "nowhere") == "nowhere: is not a directory\n"
