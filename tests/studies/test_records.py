"""A study read back: every state of a run has a name, no damage is a traceback."""

import json
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from annealtune.errors import ConfigError
from annealtune.studies.records import read_run, read_study, run_path

FACTS = {
    "format": 1,
    "name": "study",
    "command": "annealtune study x.toml",
    "vary": "seed",
    "seeds": [0, 1],
    "methods": [{"label": "sgd", "config": {"method": "sgd", "epochs": 2}}],
    "experiment": {"epochs": 2},
    "environment": {"torch": "2"},
}
METRICS = '{"epoch": 1}\n{"epoch": 2}\n'


@pytest.fixture
def study(tmp_path):
    """Writes a study.toml and, for seed 0, the given files."""

    def study(files=None, **facts):
        (tmp_path / "study.toml").write_text(tomli_w.dumps({**FACTS, **facts}))
        if files is not None:
            run = run_path(tmp_path, "sgd", 0)
            run.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                data = content.encode() if isinstance(content, str) else content
                (run / name).write_bytes(data)
        return tmp_path

    return study


def run_of(files):
    return {"config.toml": "epochs = 2\n", "metrics.jsonl": METRICS, **files}


def test_a_study_has_one_record_a_method_and_seed(study):
    methods = [{"label": label, "config": {"method": "sgd"}} for label in ("b", "a")]
    read = read_study(study(methods=methods, seeds=[4, 2]))
    assert read.methods == ("b", "a")
    assert read.seeds == (4, 2)
    assert [(run.method, run.seed) for run in read.runs] == [("b", 4), ("b", 2), ("a", 4), ("a", 2)]
    assert [run.seed for run in read.of("a")] == [4, 2]
    assert (read.name, read.command, read.vary) == ("study", "annealtune study x.toml", "seed")
    assert read.configs == {"b": {"method": "sgd"}, "a": {"method": "sgd"}}
    assert (read.experiment, read.environment) == ({"epochs": 2}, {"torch": "2"})
    assert read.search is None


@pytest.mark.parametrize(
    ("files", "status", "reason"),
    [
        (None, "missing", None),
        ({}, "unfinished", "begun, nothing saved yet"),
        ({"log.txt": "x"}, "unfinished", "begun, nothing saved yet"),
        ({"config.toml": "epochs = 9\n"}, "unfinished", "begun, 0 of 9 epochs"),
        (run_of({}), "unfinished", "begun, 2 of 2 epochs"),
        (run_of({"result.json": '{"a": 1}'}), "finished", None),
        (run_of({"failure.json": '{"reason": "x", "attempts": 2}'}), "failed", "x"),
        (run_of({"failure.json": "{}"}), "failed", "no reason was recorded"),
        (run_of({"result.json": "{}", "failure.json": '{"reason": "x"}'}), "finished", None),
    ],
)
def test_every_state_has_a_name(files, status, reason, study):
    run = read_study(study(files)).runs[0]
    assert (run.status, run.reason) == (status, reason)
    assert (run.result is not None) == (status == "finished")


def test_a_line_that_is_still_being_written_is_none(study):
    run = read_study(study(run_of({"metrics.jsonl": METRICS + '{"epo'}))).runs[0]
    assert [record["epoch"] for record in run.metrics] == [1, 2]
    assert run.status == "unfinished"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("result.json", '{"test', "result.json is damaged: "),
        ("result.json", "", "result.json is damaged: "),
        ("result.json", "[1]", "result.json is damaged: it must hold a JSON object"),
        ("failure.json", "\0", "failure.json is damaged: "),
        ("config.toml", "epochs = ", "config.toml is damaged: "),
        ("config.toml", b"\xff\xfe", "config.toml is damaged: "),
        (
            "metrics.jsonl",
            '{"epoch": 1}\n{"ep\n{"epoch": 3}\n',
            "metrics.jsonl is damaged: line 2",
        ),
        ("metrics.jsonl", b"\xff\n", "metrics.jsonl is damaged: line 1"),
        ("metrics.jsonl", "3\n", "metrics.jsonl is damaged: line 1"),
        ("moves.jsonl", "x\n", "moves.jsonl is damaged: line 1"),
    ],
)
def test_damage_is_a_failed_run_that_says_so(name, content, reason, study):
    files = run_of({"result.json": '{"test_accuracy": 1}', name: content})
    read = read_study(study(files))
    assert read.runs[0].status == "failed"
    assert read.runs[0].reason.startswith(reason)
    assert read.runs[0].result is None
    assert read.runs[1].status == "missing"


def test_a_directory_in_place_of_a_file(study):
    path = study({})
    (run_path(path, "sgd", 0) / "result.json").mkdir()
    run = read_study(path).runs[0]
    assert run.status == "failed"
    assert "result.json cannot be read" in run.reason


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(
        ["result.json", "failure.json", "config.toml", "metrics.jsonl", "moves.jsonl"]
    ),
    content=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)),
)
def test_no_content_of_a_run_is_a_traceback(name, content, tmp_path_factory):
    path = tmp_path_factory.mktemp("study")
    run = run_path(path, "sgd", 0)
    run.mkdir(parents=True)
    (run / name).write_bytes(content)
    assert read_run(path, "sgd", 0).status in ("finished", "failed", "unfinished")


# --- Not a study ---


def test_neither_a_missing_nor_an_empty_directory_is_a_study(tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(ConfigError, match=r"is not a study directory: it has no study\.toml"):
            read_study(path)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"format": 3}, "format = 3"),
        ({"name": 3}, "name"),
        ({"seeds": "0-9"}, "seeds"),
        ({"seeds": [-1]}, "seeds"),
        ({"seeds": [True]}, "seeds"),
        ({"methods": ["sgd"]}, "methods"),
        ({"methods": [{"label": "sgd"}]}, "methods"),
        ({"experiment": []}, "experiment"),
        ({"vary": 1}, "vary"),
    ],
)
def test_a_study_of_another_form_is_refused(change, word, study):
    with pytest.raises(ConfigError, match=word) as refused:
        read_study(study(**change))
    assert "study.toml" in str(refused.value)


@pytest.mark.parametrize("content", [b"format = ", b"\xff", b""])
def test_a_damaged_study_file_is_refused(content, tmp_path):
    (tmp_path / "study.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"study\.toml"):
        read_study(tmp_path)


# --- Names ---


@pytest.mark.parametrize("label", ["../../evil", "/etc", "..", "<script>", "a\\b", "a/../..", ""])
def test_no_label_leads_out_of_the_study(label, tmp_path):
    runs = tmp_path / "runs"
    path = run_path(tmp_path, label, 0)
    assert path.parent == runs
    assert path.resolve().parent == runs.resolve()
    assert Path(path.name).name == path.name
    assert "<" not in path.name


# --- A search ---


def test_a_seed_that_was_pruned_is_not_merely_interrupted(study):
    path = study(run_of({}))
    rungs = [{"epochs": 1, "pruned": [1]}, {"epochs": 2, "pruned": [0]}]
    (path / "search.json").write_text(json.dumps({"rungs": rungs}))
    read = read_study(path)
    assert read.runs[0].reason == "pruned after epoch 2"
    assert read.runs[1].reason is None
    assert read.search == {"rungs": rungs}


@pytest.mark.parametrize("content", ["{", "[]", '{"rungs": 3}', '{"rungs": [3]}'])
def test_a_damaged_log_of_a_search_is_refused(content, study):
    path = study(run_of({}))
    (path / "search.json").write_text(content)
    with pytest.raises(ConfigError, match=r"search\.json"):
        read_study(path)
