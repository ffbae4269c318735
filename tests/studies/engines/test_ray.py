"""The Ray engine: the same runs as the local one, and clear words where a cluster will not do."""

import importlib.util
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from annealtune.errors import ConfigError, RunError, RunStoppedError
from annealtune.studies.engines import ray as ray_engine
from annealtune.studies.engines.local import LocalEngine
from annealtune.studies.engines.ray import RayEngine, Site, problem_of
from annealtune.studies.plan import make_plan
from annealtune.studies.records import read_study
from annealtune.studies.run import run_study
from annealtune.training.provenance import describe_provenance
from annealtune.training.stopping import StopRequest

SOURCE = Path(__file__).parents[3] / "src"
FAKE_PROGRAM = (sys.executable, "-S", "-E", str(Path(__file__).parents[1] / "fake_program.py"))
# A cluster of this machine alone that ends with its input.
CLUSTER = """
import sys, ray
context = ray.init(address="local", include_dashboard=False, num_cpus=2, num_gpus=0,
                   object_store_memory=80 * 2**20, log_to_driver=False, logging_level="ERROR")
print(context.address_info["gcs_address"], flush=True)
sys.stdin.read()
ray.shutdown()
"""
SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "PYTHONPATH": str(SOURCE),
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture(scope="module")
def head():
    """A cluster with two cores: its process and address."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        with subprocess.Popen(
            [sys.executable, "-c", CLUSTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            yield psutil.Process(process.pid), process.stdout.readline().strip()
            process.stdin.close()


@pytest.fixture
def engine(head):
    """Makes an engine of that cluster, by default with runs that only pretend."""
    return lambda program=FAKE_PROGRAM, **options: RayEngine(head[1], program=program, **options)


@pytest.fixture
def go(place, engine, recorder):
    def go(plan, stop=None, name="study", **options):
        return run_study(plan, place / name, engine(**options), recorder, stop or StopRequest())

    return go


def statuses(study):
    return {f"{run.method} seed {run.seed}": run.status for run in study.runs}


# --- The same as the local engine ---


@pytest.mark.slow
def test_real_runs_are_those_of_the_local_engine_bit_for_bit(
    go, program, place, tiny, outcome, monkeypatch
):
    monkeypatch.chdir(place)  # the runs lie where the study was started
    flags = ["--methods", "sgd-sa,self-tuned", "--seeds", "3", "--epochs", "2", "--out", "local"]
    assert program("study", tiny, *flags).code == 0
    values = {"model": "mlp-w8", "train_size": 200, "batch_size": 30, "epochs": 2, "threads": 1}
    plan = make_plan(values, name="study", methods=["sgd-sa", "self-tuned"], seeds=[3])
    assert set(statuses(go(plan, program=None)).values()) == {"finished"}
    assert outcome(place / "study") == outcome(place / "local")


@pytest.mark.slow
def test_a_study_begun_with_the_local_engine_goes_on_with_ray(go, plan, recorder, place):
    run_study(plan(), place / "study", LocalEngine(2, FAKE_PROGRAM), recorder, StopRequest())
    recorder.events.clear()
    go(plan(methods=["sgd", "adamw", "scheduled-sgd"]), jobs=1)
    assert recorder.names("started") == ["scheduled-sgd seed 0", "scheduled-sgd seed 1"]
    assert not list(place.glob("study/runs/.*"))


# --- What goes wrong ---


def test_a_failing_run_is_a_row_and_the_others_go_on(go, plan, recorder):
    finished = go(plan("crash_seed_1", methods=["sgd"]))
    assert list(statuses(finished).values()) == ["finished", "failed"]
    assert finished.runs[1].reason == "[bold]the model <b>broke</b>"
    assert recorder.names("retried") == ["sgd seed 1"]


@pytest.mark.slow
def test_a_stop_saves_everything_and_the_next_call_goes_on(go, plan, recorder, place, watcher):
    found = []

    def ask_in_the_middle_of_a_run():
        counts = [p.read_bytes().count(b"\n") for p in place.glob("study/runs/*/metrics.jsonl")]
        if recorder.names("finished") and any(0 < count < 20 for count in counts):
            found.append(signal.SIGTERM)
        return found[0] if found else None

    planned = plan(seeds=range(6), methods=["sgd"], epochs=600)
    with pytest.raises(RunStoppedError, match="the same command goes on"):
        go(planned, stop=watcher(ask_in_the_middle_of_a_run))
    assert {run.status for run in read_study(place / "study").runs} > {"finished"}
    assert any("SIGTERM: saved" in log.read_text() for log in place.glob("*/runs/*/log.txt"))
    assert not list(place.glob("study/runs/*/failure.json"))
    assert {run.status for run in go(planned).runs} == {"finished"}
    for metrics in place.glob("study/runs/*/metrics.jsonl"):
        epochs = [json.loads(line)["epoch"] for line in metrics.read_text().splitlines()]
        assert epochs == list(range(1, 601))


@pytest.mark.slow
def test_a_worker_that_is_killed_and_its_run_that_goes_on(head, go, plan, recorder, watcher):
    killed = []

    def kill_once():
        for process in [] if killed else head[0].children(recursive=True):
            if process.name().startswith("ray::train"):
                process.kill()
                killed.append(process)

    finished = go(plan(methods=["sgd"], seeds=[0], epochs=400), stop=watcher(kill_once))
    assert statuses(finished) == {"sgd seed 0": "finished"}
    assert recorder.events[1][0] in ("waiting", "retried")  # the run may outlive its worker
    assert len(finished.runs[0].metrics) == 400


# --- Killed without warning ---


@pytest.fixture
def begin(place, tiny):
    """Starts the program with a cluster of its own, and ends it if the test has not."""
    started = []

    def begin(*flags):
        command = [sys.executable, "-W", "error", "-m", "annealtune", "study", tiny, "--engine"]
        command += ["ray", *(flags or FLAGS), "--out", "study"]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
        with (place / f".err-{len(started)}").open("w") as errors:
            process = subprocess.Popen(command, cwd=place, env=environment, stderr=errors)
        started.append(process)
        return process, place / errors.name

    yield begin
    for process in started:
        process.kill()
        process.wait()


FLAGS = ["--methods", "sgd-sa,self-tuned", "--seeds", "0-1", "--epochs", "120"]


def wait_for_epochs(process, errors, place):
    metrics = "study/runs/*/metrics.jsonl"
    while not any(path.read_text().count("\n") > 3 for path in place.glob(metrics)):
        assert process.poll() is None, errors.read_text()
        time.sleep(0.05)


@pytest.mark.slow
def test_a_killed_study_is_started_again_and_gives_the_same_table(
    begin, place, program, tiny, outcome
):
    study, errors = begin()
    wait_for_epochs(study, errors, place)
    study.kill()
    study.wait()
    assert not list(place.glob("study/runs/*/failure.json"))
    again, errors = begin()
    assert again.wait(timeout=240) == 0, errors.read_text()
    assert program("study", tiny, *FLAGS, "--out", "local").code == 0
    assert outcome(place / "study") == outcome(place / "local")


@pytest.mark.slow
def test_a_cluster_of_our_own_listens_on_loopback_and_ends_with_a_signal(begin, place):
    study, errors = begin()
    wait_for_epochs(study, errors, place)
    everyone = [psutil.Process(study.pid), *psutil.Process(study.pid).children(recursive=True)]
    listening = {
        connection.laddr.ip
        for process in everyone
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    study.terminate()
    assert study.wait(timeout=60) == 128 + signal.SIGTERM, errors.read_text()
    assert "SIGTERM: saved" in errors.read_text()


# --- A cluster that will not do ---


def test_too_few_resources(go, plan, recorder):
    with pytest.raises(RunError, match="needs 3 CPUs and 0 GPUs"):
        go(plan(), cpus=3)
    with pytest.raises(RunError, match=r"needs 1 CPUs and 0\.5 GPUs"):
        go(plan(), gpus=0.5)
    with pytest.raises(RunError, match="needs 1 CPUs and 1 GPUs"):
        go(plan(device="cuda"), name="cuda")
    assert recorder.events == []


@pytest.mark.parametrize(
    ("directory", "probe", "words"),
    [
        ("nowhere", ".", "where the runs are"),
        (".", "nowhere", "where the runs are"),
        (".", ".", "the lock that the study holds"),
    ],
)
def test_a_machine_that_does_not_see_the_study(place, directory, probe, words):
    site = Site(str(place / directory), probe, describe_provenance(), None)
    assert words in problem_of(site)


def test_other_versions_on_the_workers(go, plan, monkeypatch):
    other = {**describe_provenance(), "annealtune": "9.9.9", "torch": "1.0"}
    monkeypatch.setattr(ray_engine, "describe_provenance", lambda: other)
    with pytest.raises(RunError, match=r"annealtune \S+ instead of 9\.9\.9, torch"):
        go(plan())


@pytest.mark.parametrize("address", ["10.0.0.1", "head:port"])
def test_an_address_of_the_wrong_form(address, plan, place, recorder):
    with pytest.raises(ConfigError, match="HOST:PORT"):
        run_study(plan(), place / "study", RayEngine(address), recorder, StopRequest())


def test_an_address_at_which_nobody_answers(plan, place, recorder):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(RunError, match=address):
            run_study(plan(), place / "study", RayEngine(address), recorder, StopRequest())
    assert recorder.events == []


def test_without_ray(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'annealtune\[ray\]'"):
        RayEngine()
