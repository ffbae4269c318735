"""The Ray engine: the same runs as the local one, and clear words where a cluster will not do."""

import contextlib
import itertools
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import psutil
import pytest

from annealtune.errors import ConfigError, RunError, RunStoppedError
from annealtune.studies.best_seed import Halving, hunt
from annealtune.studies.engines import remote
from annealtune.studies.engines.local import LocalEngine
from annealtune.studies.engines.ray import RayEngine
from annealtune.studies.engines.remote import Site, problem_of
from annealtune.studies.plan import make_plan
from annealtune.studies.records import read_study
from annealtune.studies.run import run_study, tasks_of
from annealtune.training.stopping import StopRequest
from annealtune.training.storage.files import describe_provenance

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
    go(plan(methods=["sgd", "adamw", "sgd-momentum"]), jobs=1)
    assert recorder.names("started") == ["sgd-momentum seed 0", "sgd-momentum seed 1"]
    assert not list(place.glob("study/runs/.*"))


@pytest.mark.slow
def test_a_hunt_comes_to_the_same_choices(place, plan, engine, recorder):
    planned = plan(methods=["sgd"], seeds=range(4), epochs=8)
    for name, each in (("ray", engine()), ("local", LocalEngine(2, FAKE_PROGRAM))):
        hunt(planned, place / name, each, recorder, StopRequest(), halving=Halving())
    logs = [(place / name / "search.json").read_bytes() for name in ("ray", "local")]
    assert logs[0] == logs[1]
    assert len(json.loads(logs[0])["rungs"]) == 3


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, None])
def test_as_many_at_a_time_as_there_is_room_for_or_fewer(jobs, go, plan, place):
    go(plan(seeds=range(3), epochs=20), jobs=jobs)
    spans = [tuple(map(float, path.read_text().split())) for path in place.glob("*/runs/*/spans")]
    assert len(spans) == 6
    together = max(sum(a <= start < b for a, b in spans) for start, _ in spans)
    assert together <= (jobs or 2)


@pytest.mark.slow
def test_a_run_has_its_own_group_its_threads_and_no_input(go, plan, place):
    go(plan("environment", methods=["sgd"], seeds=[4], threads=2))
    log = (place / "study/runs/sgd-seed4/log.txt").read_text()
    assert log == "--- attempt 1 ---\n2 True True\n"


# --- What goes wrong ---


def test_a_failing_run_is_a_row_and_the_others_go_on(go, plan, recorder):
    finished = go(plan("crash_seed_1", methods=["sgd"]))
    assert list(statuses(finished).values()) == ["finished", "failed"]
    assert finished.runs[1].reason == "[bold]the model <b>broke</b>"
    assert recorder.names("retried") == ["sgd seed 1"]


@pytest.mark.slow
def test_a_stop_saves_everything_and_the_next_call_goes_on(go, plan, recorder, place):
    stop = StopRequest()

    def ask_in_the_middle_of_a_run():
        counts = [p.read_bytes().count(b"\n") for p in place.glob("study/runs/*/metrics.jsonl")]
        if recorder.names("finished") and any(0 < count < 20 for count in counts):
            stop.signal_number = signal.SIGTERM

    recorder.on_refresh = ask_in_the_middle_of_a_run
    planned = plan(seeds=range(6), methods=["sgd"], epochs=40)
    with pytest.raises(RunStoppedError, match="the same command goes on"):
        go(planned, stop=stop)
    assert {run.status for run in read_study(place / "study").runs} > {"finished"}
    assert any("SIGTERM: saved" in log.read_text() for log in place.glob("*/runs/*/log.txt"))
    assert not list(place.glob("study/runs/*/failure.json"))
    recorder.on_refresh = lambda: None
    assert {run.status for run in go(planned).runs} == {"finished"}
    for metrics in place.glob("study/runs/*/metrics.jsonl"):
        epochs = [json.loads(line)["epoch"] for line in metrics.read_text().splitlines()]
        assert epochs == list(range(1, 41))


@pytest.mark.slow
def test_waits_for_a_process_that_holds_the_run_and_takes_its_result(place, plan, engine, recorder):
    (task,) = tasks_of(plan(methods=["sgd"], seeds=[0], epochs=600), place / "study")
    task.path.mkdir(parents=True)
    experiment = task.path / "experiment.toml"
    experiment.write_text(task.config.to_toml())
    command = [*FAKE_PROGRAM, "train", experiment, "--out", task.path, "--resume-or-start"]
    with subprocess.Popen(command):
        while not (task.path / "spans").exists():
            time.sleep(0.01)
        engine().run([task], recorder, StopRequest())
    assert [kind for kind, _, _ in recorder.events] == ["waiting", "finished"]
    assert task.epochs_done() == 600


@pytest.mark.slow
def test_a_worker_that_is_killed_lets_its_run_save_and_it_goes_on(head, go, plan, recorder):
    def kill_once():
        for process in head[0].children(recursive=True):
            if process.name().startswith("ray::train"):
                process.kill()
                recorder.on_refresh = lambda: None

    recorder.on_refresh = kill_once
    finished = go(plan(methods=["sgd"], seeds=[0], epochs=400))
    assert statuses(finished) == {"sgd seed 0": "finished"}
    ((_, _, reason),) = [event for event in recorder.events if event[0] == "retried"]
    assert reason.startswith("Ray: The worker died")
    assert len(finished.runs[0].metrics) == 400


@pytest.mark.slow
def test_thirty_runs_on_eight_gpus_of_which_none_is_given_twice(place, plan, recorder, head):
    """The GPUs exist in name only: what is tested is which one a run is told to use."""
    write = (
        "import os, sys, time; run = sys.argv[4]; start = time.monotonic(); time.sleep(0.3); "
        "print(os.environ['CUDA_VISIBLE_DEVICES'], start, time.monotonic(), "
        "file=open(run + '/gpu', 'w')); open(run + '/result.json', 'w').write('{}')"
    )
    cluster = CLUSTER.replace("num_cpus=2, num_gpus=0", "num_cpus=8, num_gpus=8")
    with subprocess.Popen(
        [sys.executable, "-c", cluster], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        engine = RayEngine(
            process.stdout.readline().strip(), program=(sys.executable, "-S", "-E", "-c", write)
        )
        planned = plan(methods=["sgd", "adamw", "sgd-sa"], seeds=range(10), device="cuda")
        engine.run(tasks_of(planned, place), recorder, StopRequest())
        process.stdin.close()
    used = [path.read_text().split() for path in place.glob("runs/*/gpu")]
    assert len(used) == 30
    assert {gpu for gpu, _, _ in used} == set("01234567")
    for gpu in "01234567":
        spans = sorted((float(a), float(b)) for which, a, b in used if which == gpu)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


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


def wait_until_gone(processes):
    """Wait for all that Ray started; its agents, which notice a kill after a minute, are ended."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() in ("ray::DashboardAgent", "ray::RuntimeEnvAgent"):
                process.kill()
            while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.05)


FLAGS = ["--methods", "sgd-sa,self-tuned", "--seeds", "0-1", "--epochs", "120"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "words"), [("python", ""), ("raylet", "daemon (raylet)"), ("gcs_server", "head")]
)
def test_driver_or_daemon_killed_and_restored_the_same_table(
    victim, words, begin, place, program, tiny, outcome
):
    study, errors = begin()
    while not any(
        path.read_text().count("\n") > 3 for path in place.glob("*/runs/*/metrics.jsonl")
    ):
        assert study.poll() is None, errors.read_text()
        time.sleep(0.05)
    driver = psutil.Process(study.pid)
    others = driver.children(recursive=True)
    daemons = {process.name(): process for process in others}
    daemons.get(victim if words else "", driver).kill()
    assert study.wait(timeout=60) == (1 if words else -signal.SIGKILL)
    if words:
        told = errors.read_text().splitlines()[-1]
        assert told.startswith(f"annealtune: Ray: its {words}")
        assert "the same command goes on" in told
    wait_until_gone(others)
    assert not list(place.glob("study/runs/*/failure.json"))
    again, errors = begin()
    assert again.wait(timeout=240) == 0, errors.read_text()
    assert program("study", tiny, *FLAGS, "--out", "local").code == 0
    assert outcome(place / "study") == outcome(place / "local")


@pytest.mark.slow
def test_a_cluster_of_our_own_for_every_rung_of_a_hunt(begin, place, program, tiny):
    flags = ["--method", "sgd-sa", "--seeds", "0-1", "--epochs", "2", "--search", "best-seed"]
    study, errors = begin(*flags)
    assert study.wait(timeout=240) == 0, errors.read_text()
    assert program("study", tiny, *flags, "--out", "local").code == 0
    logs = [(place / name / "search.json").read_bytes() for name in ("study", "local")]
    assert logs[0] == logs[1]


@pytest.mark.slow
def test_a_cluster_of_our_own_listens_on_loopback_wants_a_token_and_ends(begin, place):
    study, errors = begin()
    while not list(place.glob("study/runs/*/metrics.jsonl")):
        assert study.poll() is None, errors.read_text()
        time.sleep(0.05)
    everyone = [psutil.Process(study.pid), *psutil.Process(study.pid).children(recursive=True)]
    listening = {
        connection.laddr.ip
        for process in everyone
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    (raylet,) = [process for process in everyone if process.name() == "raylet"]
    environment = raylet.environ()
    assert environment["RAY_AUTH_MODE"] == "token"
    assert len(environment["RAY_AUTH_TOKEN"]) == 64
    assert environment["RAY_USAGE_STATS_ENABLED"] == "0"
    study.terminate()
    assert study.wait(timeout=60) == 128 + signal.SIGTERM, errors.read_text()
    assert "SIGTERM: saved" in errors.read_text()
    wait_until_gone(everyone)


# --- A cluster that will not do ---


def test_too_few_resources(go, plan, recorder):
    with pytest.raises(RunError, match=r"needs 3 CPUs and 0 GPUs.* the largest of 1 has 2 CPUs"):
        go(plan(), cpus=3)
    with pytest.raises(RunError, match=r"needs 1 CPUs and 0\.5 GPUs"):
        go(plan(), gpus=0.5)
    with pytest.raises(RunError, match="needs 1 CPUs and 1 GPUs"):
        go(plan(device="cuda"), name="cuda")
    assert recorder.events == []


def test_a_directory_that_the_workers_do_not_see(engine, plan, recorder, place):
    """The same path is another place, or none, for every process."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        path = Path(f"/proc/self/fd/{descriptor}/study")
        with pytest.raises(RunError, match="does not see the run directories in /proc/self"):
            run_study(plan(), path, engine(), recorder, StopRequest())
    finally:
        os.close(descriptor)
    assert recorder.events == []


def test_the_study_was_started_where_the_workers_do_not_see(place):
    site = Site(str(place / "nowhere"), "probe", describe_provenance(), None)
    assert "does not see" in problem_of(site)


def test_a_lock_that_does_not_reach_the_worker(place):
    (place / "probe").touch()  # nobody holds it
    site = Site(str(place), "probe", describe_provenance(), None)
    assert "does not see the lock that the study holds" in problem_of(site)


def test_other_versions_on_the_workers(go, plan, recorder, monkeypatch):
    other = {**describe_provenance(), "annealtune": "9.9.9", "torch": "1.0"}
    monkeypatch.setattr(remote, "describe_provenance", lambda: other)
    with pytest.raises(
        RunError, match=r"other versions.* annealtune \S+ instead of 9\.9\.9, torch"
    ):
        go(plan())
    assert recorder.events == []


@pytest.mark.parametrize("address", ["ray://10.0.0.1:10001", "10.0.0.1", "head:port", ":6379"])
def test_an_address_of_the_wrong_form(address, plan, place, recorder):
    with pytest.raises(ConfigError, match=r"must be auto or HOST:PORT"):
        run_study(plan(), place / "study", RayEngine(address), recorder, StopRequest())


def test_an_address_at_which_nobody_answers(plan, place, recorder):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(RunError, match=f"{address} cannot be reached: Connection refused"):
            run_study(plan(), place / "study", RayEngine(address), recorder, StopRequest())
    assert recorder.events == []


@pytest.mark.parametrize(
    ("version", "words"),
    [(None, "Ray is not installed"), ("2.40.1", "needs Ray 2.60 or later, got 2.40.1")],
)
def test_no_ray_or_an_old_one(version, words, monkeypatch):
    def answer(_):
        if version is None:
            raise metadata.PackageNotFoundError
        return version

    monkeypatch.setattr(metadata, "version", answer)
    with pytest.raises(ConfigError, match=rf"{words}; pip install 'annealtune\[ray\]'"):
        RayEngine()
