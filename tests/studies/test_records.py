"""A study read back: every state of a run has a name, no damage is a traceback."""

import pytest

from annealtune.errors import ConfigError, RunError
from annealtune.studies.records import (
    is_locked,
    read_lone_run,
    read_study,
    run_path,
    sealed_toml,
)
from annealtune.training.storage.files import locked

FACTS = {
    "name": "study",
    "command": "annealtune study x.toml",
    "vary": "seed",
    "seeds": [0, 1],
    "methods": [{"label": "sgd", "config": {"method": "sgd", "epochs": 2}}],
    "environment": {"torch": "2"},
}
METRICS = '{"epoch": 1}\n{"epoch": 2}\n'


@pytest.fixture
def study(tmp_path):
    """Writes a study.toml and, for seed 0, the given files."""

    def study(files=None, **facts):
        (tmp_path / "study.toml").write_bytes(sealed_toml({**FACTS, **facts}))
        if files is not None:
            run = run_path(tmp_path, "sgd", 0)
            run.mkdir(parents=True)
            for name, content in files.items():
                (run / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path

    return study


def run_of(files):
    return {"config.toml": "epochs = 2\n", "metrics.jsonl": METRICS, **files}


def test_a_study_has_one_record_a_method_and_seed(study):
    methods = [{"label": n, "config": {"method": n, "sgd": {"lr": 1.0}}} for n in ("b", "a")]
    read = read_study(study(methods=methods, seeds=[4, 2]))
    assert read.methods == ("b", "a")
    assert read.seeds == (4, 2)
    assert [(run.method, run.seed) for run in read.runs] == [("b", 4), ("b", 2), ("a", 4), ("a", 2)]
    assert [run.seed for run in read.of("a")] == [4, 2]
    assert (read.name, read.command, read.vary) == ("study", "annealtune study x.toml", "seed")
    assert read.configs == {each["label"]: each["config"] for each in methods}
    assert (read.experiment, read.environment) == ({"sgd.lr": 1.0}, {"torch": "2"})


@pytest.mark.parametrize(
    ("files", "status", "reason"),
    [
        (None, "missing", None),
        ({"log.txt": "x"}, "unfinished", "nothing saved yet"),
        (run_of({}), "unfinished", "begun, 2 of 2 epochs"),
        (run_of({"result.json": '{"a": 1}'}), "finished", None),
        (run_of({"failure.json": '{"reason": "x", "attempts": 2}'}), "failed", "x"),
        (run_of({"result.json": '{"a": 1}', "failure.json": '{"reason": "x"}'}), "finished", None),
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
    ("name", "content"),
    [
        ("result.json", '{"test'),
        ("result.json", "3"),
        ("failure.json", "\0"),
        ("config.toml", "epochs = "),
        ("config.toml", b"\xff\xfe"),
        ("metrics.jsonl", '{"epoch": 1}\n{"ep\n{"epoch": 3}\n'),
        ("moves.jsonl", b"\xff\n"),
    ],
)
def test_damage_is_a_failed_run_that_says_so(name, content, study):
    files = run_of({"result.json": '{"test_accuracy": 1}', name: content})
    read = read_study(study(files))
    assert (read.runs[0].status, read.runs[0].result) == ("failed", None)
    assert name in read.runs[0].reason
    assert read.runs[1].status == "missing"
    with pytest.raises((ConfigError, RunError), match=name):
        read_lone_run(read.runs[0].path)


def test_a_lone_run_is_called_by_its_config(study):
    path = study(run_of({"config.toml": "method = 'ssa'\nseed = 3\nepochs = 2\n"}))
    run = read_lone_run(run_path(path, "sgd", 0))
    assert (run.method, run.seed, len(run.metrics)) == ("ssa", 3, 2)
    with pytest.raises(ConfigError, match="is not a run directory"):
        read_lone_run(path)


def test_what_is_no_study_is_refused(study, tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(ConfigError, match="is not a study directory"):
            read_study(path)
    for content in (b"format = ", b"\xff", b"", b"format = 3\n"):
        (tmp_path / "study.toml").write_bytes(content)
        with pytest.raises(ConfigError, match=r"study\.toml"):
            read_study(tmp_path)
    file = study() / "study.toml"
    file.write_bytes(file.read_bytes().replace(b"x.toml", b"y.toml"))
    with pytest.raises(ConfigError, match="digest"):
        read_study(tmp_path)


@pytest.mark.parametrize("label", ["../../evil", "/etc", "<script>", "a\\b", ""])
def test_no_label_leads_out_of_the_study(label, tmp_path):
    path = run_path(tmp_path, label, 0)
    assert path.resolve().parent == (tmp_path / "runs").resolve()
    assert "<" not in path.name


def test_a_directory_is_locked_while_somebody_works_there(tmp_path):
    with locked(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
