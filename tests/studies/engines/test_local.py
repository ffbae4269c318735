"""The local engine: so many at a time, each to its end or to a reason, nothing started twice."""

import fcntl
import io
import json
import signal
import subprocess
import time

import pytest
from rich.console import Console

from annealtune.errors import RunError, RunStoppedError
from annealtune.studies.records import read_study
from annealtune.studies.run import Display, run_study
from annealtune.training.stopping import StopRequest

NAMES = ["sgd seed 0", "adamw seed 0", "sgd seed 1", "adamw seed 1"]


@pytest.fixture
def study(place):
    return place / "study"


@pytest.fixture
def go(study, engine, recorder):
    """Conducts a study with the pretending program and returns it."""

    def go(plan, jobs=2, stop=None, **options):
        return run_study(plan, study, engine(jobs), recorder, stop or StopRequest(), **options)

    return go


def statuses(study):
    return {f"{run.method} seed {run.seed}": run.status for run in study.runs}


# --- All goes well ---


def test_runs_everything_once_seed_by_seed(go, plan, recorder):
    finished = go(plan(), jobs=1)
    assert statuses(finished) == dict.fromkeys(NAMES, "finished")
    assert recorder.names("started") == NAMES
    assert recorder.names("finished") == NAMES
    assert all(len(run.metrics) == 3 for run in finished.runs)


@pytest.mark.parametrize("jobs", [1, 3])
def test_no_more_than_so_many_at_a_time(jobs, go, plan, study):
    go(plan(seeds=tuple(range(4))), jobs=jobs)
    spans = [tuple(map(float, path.read_text().split())) for path in study.glob("runs/*/spans")]
    assert len(spans) == 8
    assert max(sum(a <= start < b for a, b in spans) for start, _ in spans) <= jobs


def test_a_run_has_its_own_group_its_threads_and_no_input(go, plan, study):
    go(plan("environment", methods=["sgd"], seeds=[4]))
    log = (study / "runs/sgd-seed4/log.txt").read_text()
    assert log == "--- attempt 1 ---\n1 True True\n"


def test_a_finished_study_starts_nothing(go, plan, recorder):
    go(plan())
    recorder.events.clear()
    go(plan())
    assert recorder.events == []
    assert recorder.shown[-1] == (4, 4)


def test_only_what_is_missing_or_incomplete_runs(go, plan, recorder, study):
    go(plan())
    (study / "runs/sgd-seed1/result.json").unlink()
    recorder.events.clear()
    go(plan(methods=["sgd", "adamw", "scheduled-sgd"]))
    assert sorted(recorder.names("started")) == [
        "scheduled-sgd seed 0",
        "scheduled-sgd seed 1",
        "sgd seed 1",
    ]


# --- Crashes ---


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("crash", "[bold]the model <b>broke</b>"),
        ("silent", "ended with code 3"),
        ("killed", "killed by SIGKILL; the last line was: working"),
        ("no_result", "ended without a result"),
    ],
)
def test_a_crash_is_tried_again_once_and_then_a_row(behaviour, reason, go, plan, recorder, study):
    finished = go(plan(behaviour, methods=["sgd"], seeds=[0]))
    (run,) = finished.runs
    assert (run.status, run.reason) == ("failed", reason)
    assert [kind for kind, _, _ in recorder.events] == ["started", "retried", "started", "failed"]
    failure = json.loads((run.path / "failure.json").read_text())
    assert failure == {"reason": reason, "attempts": 2}
    assert "--- attempt 2 ---" in (run.path / "log.txt").read_text()


def test_the_others_go_on(go, plan):
    finished = go(plan("crash_seed_1"))
    assert list(statuses(finished).values()) == ["finished", "failed"] * 2


def test_the_second_attempt_may_succeed(go, plan, recorder):
    finished = go(plan("crash_once"))
    assert statuses(finished) == dict.fromkeys(NAMES, "finished")
    assert sorted(recorder.names("retried")) == sorted(NAMES)
    assert not list(finished.path.glob("runs/*/failure.json"))


def test_a_person_is_told_of_all_runs_and_reasons(plan, study, engine):
    text = io.StringIO()
    shown = Display(Console(file=text, width=40))
    run_study(plan("crash_seed_1"), study, engine(1), shown, StopRequest())
    first, *lines = text.getvalue().splitlines()
    assert first.startswith("4 of 4 runs")
    assert len(lines) == 2 * 2 + 2 * 4  # started and finished; started, retried, started, failed
    assert "finished sgd seed 0" in lines[1]
    assert lines[-1] == "[4/4] failed adamw seed 1: [bold]the model <b>broke</b>"


def test_a_failure_is_tried_again_only_if_asked_for(go, plan, recorder, study):
    go(plan("crash", methods=["sgd"], seeds=[0]))
    recorder.events.clear()
    go(plan("crash", methods=["sgd"], seeds=[0]))
    assert recorder.events == []
    go(plan("crash", methods=["sgd"], seeds=[0]), retry_failed=True)
    assert len(recorder.names("started")) == 2
    assert read_study(study).runs[0].status == "failed"


# --- Stopping ---


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_saves_everything_and_the_next_call_goes_on(
    number, go, plan, recorder, study, watcher
):
    stop = watcher(lambda: number if recorder.names("finished") else None)
    slow = plan(seeds=range(8), methods=["sgd"], epochs=20)
    with pytest.raises(RunStoppedError, match="the same command goes on") as stopped:
        go(slow, stop=stop)
    assert stopped.value.signal_number == number
    left = read_study(study)
    assert {run.status for run in left.runs} <= {"finished", "unfinished", "missing"}
    assert any(run.status != "finished" for run in left.runs)
    assert not list(study.glob("runs/*/failure.json"))
    assert {run.status for run in go(slow).runs} == {"finished"}
    for metrics in study.glob("runs/*/metrics.jsonl"):
        epochs = [json.loads(line)["epoch"] for line in metrics.read_text().splitlines()]
        assert epochs == list(range(1, 21))


def test_no_process_outlives_an_error(plan, study, engine, recorder, watcher):
    def fail():
        if (study / "runs/sgd-seed0/spans").exists():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_study(plan("slow"), study, engine(2), recorder, watcher(fail))
    for run in study.glob("runs/*"):
        with (run / ".lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


# --- A process that outlived its study ---


def test_waits_for_a_process_that_holds_the_run_and_takes_its_result(plan, engine, recorder, study):
    planned = plan(methods=["sgd"], seeds=[0], epochs=60)
    (task,) = planned.tasks(study)
    task.path.mkdir(parents=True)
    experiment = task.path / "experiment.toml"
    experiment.write_text(task.config.to_toml())
    command = [*engine()._program, "train", experiment, "--out", task.path, "--resume-or-start"]
    with subprocess.Popen(command) as orphan:
        while not (task.path / "spans").exists():
            time.sleep(0.01)
        engine(1).run([task], recorder.happened, StopRequest())
        orphan.wait()
    assert [kind for kind, _, _ in recorder.events] == ["waiting", "finished"]
    assert task.epochs_done() == 60


def test_two_studies_at_once_are_refused(plan, engine, recorder, study, watcher):
    def second():
        with pytest.raises(RunError, match="another process"):
            run_study(plan(), study, engine(1), recorder, StopRequest())

    run_study(plan(), study, engine(1), recorder, watcher(second))
    assert len(recorder.names("finished")) == 4
