"""``annealtune study`` and ``reproduce`` with real runs: killed, stopped, crashed, extended."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from annealtune import cli
from annealtune.studies.records import read_study
from annealtune.studies.reproduction import FORWARDS, REPRODUCTIONS

SOURCE = Path(__file__).parents[2] / "src"
TWO_METHODS = ["--methods", "sgd-sa,scheduled-sgd"]


@pytest.fixture
def arguments(tiny):
    """A study of six runs, two at a time."""
    return ["study", tiny, *TWO_METHODS, "--seeds", "0-2", "--jobs", "2"]


@pytest.fixture(scope="module")
def known():
    return {}


@pytest.fixture
def undisturbed(known, program, arguments, place, outcome):
    """What those runs give when nobody touches them; made once."""
    if not known:
        began = time.monotonic()
        finished = program(*arguments, "--out", "undisturbed")
        assert finished.code == 0, finished.err
        known["seconds"] = time.monotonic() - began
        known["outcome"] = outcome(place / "undisturbed")
    return known["outcome"]


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


# --- The same seeds, the same bits ---


def test_two_studies_with_the_same_seeds_are_identical(
    undisturbed, program, arguments, place, outcome
):
    words = [*arguments[:-1], "1", "--out", "again"]
    again = program(*words)
    assert again.code == 0, again.err
    assert again.out == "again: 6 finished\nnext: annealtune report again\n"
    assert outcome(place / "again") == undisturbed
    assert program(*words).err == "0 of 6 runs to do\n"
    assert len(undisturbed) == 6
    weights = {run["weights"] for run in undisturbed.values()}
    assert len(weights) == 6


def test_more_seeds_and_methods_leave_the_others_alone(
    undisturbed, program, arguments, tiny, place, outcome
):
    few = ["study", tiny, "--methods", "sgd-sa", "--seeds", "0", "--out", "study"]
    assert program(*few).code == 0
    assert program(*arguments, "--out", "study").code == 0
    assert outcome(place / "study") == undisturbed
    assert read_study(place / "study").command.endswith("--out study")


# --- Kills ---


@pytest.mark.slow
def test_killed_several_times_it_ends_the_same(
    undisturbed, known, start, program, arguments, place, outcome
):
    chance, interrupted, times = random.Random(0), 0, 6
    for _ in range(times):
        running = start(*arguments, "--out", "study")
        time.sleep(chance.uniform(0, known["seconds"] / 4))
        running.kill_all()
        assert running.wait().code in (-signal.SIGKILL, 0)
        runs = list(place.glob("study/runs/*"))
        interrupted += any(not (run / "result.json").exists() for run in runs)
    assert interrupted >= times // 3
    finished = program(*arguments, "--out", "study")
    assert finished.code == 0, finished.err
    assert outcome(place / "study") == undisturbed


def test_runs_that_outlive_a_killed_study_are_waited_for(
    undisturbed, start, program, arguments, place, outcome
):
    for _ in range(3):
        running = start(*arguments, "--out", "study")
        wait_for(psutil.Process(running.pid).children)
        running.send(signal.SIGKILL)
        assert running.wait().code == -signal.SIGKILL
    finished = program(*arguments, "--out", "study")
    assert finished.code == 0, finished.err
    assert outcome(place / "study") == undisturbed


def test_a_cold_process_runs_a_cold_process(tiny, place):
    command = [sys.executable, "-m", "annealtune", "study", tiny, "--method", "sgd", "--seeds", "7"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (
        0,
        "studies/tiny: 1 finished\nnext: annealtune report studies/tiny\n",
    ), done.stderr
    study = read_study(place / "studies" / "tiny")
    assert study.command == f"annealtune study {tiny} --method sgd --seeds 7"
    assert study.runs[0].config["seed"] == 7
    assert study.runs[0].result["steps"] == 18


# --- Stops ---


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_all_runs_and_the_same_command_goes_on(
    number, undisturbed, start, program, arguments, place, outcome
):
    running = start(*arguments, "--out", "study")
    wait_for(lambda: list(place.glob("study/runs/*/metrics.jsonl")))
    running.send(number)
    stopped = running.wait()
    assert stopped.code == 128 + number
    assert stopped.err.splitlines()[-1].startswith(f"annealtune: {number.name}: saved, ")
    assert "Traceback" not in stopped.err
    assert not list(place.glob("study/runs/*/failure.json"))
    finished = program(*arguments, "--out", "study")
    assert finished.code == 0, finished.err
    assert outcome(place / "study") == undisturbed


# --- Crashes ---


def test_a_crash_is_a_row_with_its_reason_and_the_study_goes_on(program, tiny, place):
    with tiny.open("a") as file:
        file.write('[methods.wild]\nmethod = "sgd"\nlr = 1e30\n')
    crashed = program("study", tiny, "--methods", "wild,adamw", "--seeds", "0", "--out", "study")
    assert crashed.code == 1
    assert crashed.out.startswith("study: 1 failed, 1 finished\n")
    wild, adamw = read_study(place / "study").runs
    assert adamw.status == "finished"
    assert wild.status == "failed"
    assert "the training loss must be finite" in wild.reason
    assert json.loads((wild.path / "failure.json").read_text())["attempts"] == 2
    assert f"wild seed 0: {wild.reason}" in crashed.err
    assert "--retry-failed" in crashed.err
    again = program("study", tiny, "--methods", "wild,adamw", "--seeds", "0", "--out", "study")
    assert (again.code, again.err.count("started")) == (1, 0)


def test_missing_data_is_found_before_the_first_run(program, place):
    missing = program("study", "--data", "cifar10", "--data-dir", "nowhere", "--out", "study")
    assert missing.code == 1
    assert "not found" in missing.err
    assert not (place / "study" / "runs").exists()


# --- Nonsense ---


@pytest.fixture
def usage(monkeypatch, capsys, place, tiny):
    """Runs the program in this process, for words that never get as far as a run."""
    monkeypatch.chdir(place)

    def usage(*words):
        monkeypatch.setattr(sys, "argv", ["annealtune", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return left.value.code or 0, capsys.readouterr()

    return usage


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seeds", "0-x"], "seeds = '0-x'"),
        (["--methods", "sgd,skeduled-sgd"], "did you mean 'scheduled-sgd'"),
        (["--seed", "3"], "seed = 3: a study varies it"),
        (["--engine", "loacl"], "did you mean 'local'"),
        (["--gpus", "0"], "belong to --engine ray"),
        (["--engine", "ray", "--gpus", "2"], "--gpus"),
        (["--engine", "ray", "--device", "cuda:3"], "device = 'cuda:3': "),
        (["--model", "mpl"], "did you mean 'mlp'"),
    ],
)
def test_nonsense_is_answered_before_anything_is_written(words, told, usage, tiny, place):
    code, printed = usage("study", tiny, *words)
    assert code == 2
    assert told in printed.err
    assert "Traceback" not in printed.err
    assert not (place / "studies").exists()


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept") / "study"


@pytest.fixture
def finished(kept, program, tiny, place):
    """A study of two runs, made once."""
    if not kept.exists():
        done = program("study", tiny, "--methods", "sgd", "--seeds", "0-1", "--out", "study")
        assert done.code == 0, done.err
        shutil.copytree(place / "study", kept)
    else:
        shutil.copytree(kept, place / "study")
    return place / "study"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--out", "study/runs/sgd-seed0"], " and is not a study"),
        (["--out", "."], " and is not a study"),
        (["--out", "tiny.toml"], "tiny.toml: is not a directory"),
        (["--out", "study", "--epochs", "4"], "epochs = 4 (was 3)"),
        (["--out", "study", "--seeds", "1-2"], "seeds: 0 of the study missing"),
        (["--out", "study", "--methods", "adamw"], "methods: sgd of the study missing"),
        (["--out", "study", "--set", "sgd.lr=0.5"], "sgd: sgd.lr = 0.5 (was 0.1)"),
        (["--out", "study", "--vary", "init_seed"], "vary = 'init_seed' (the study has 'seed')"),
    ],
)
def test_a_directory_of_something_else_is_refused(words, told, finished, usage, tiny):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    standard = ["study", tiny, "--methods", "sgd", "--seeds", "0-1"]
    code, printed = usage(*standard, *words)
    assert code == 2
    assert told in printed.err
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def test_the_thread_count_of_a_study_stays(program, tiny, place):
    text = tiny.read_text().replace("threads = 1", "")
    tiny.write_text(text)
    words = ["study", tiny, "--methods", "sgd", "--epochs", "1", "--out", "study"]
    assert program(*words, "--seeds", "0", "--jobs", "1").code == 0
    first = read_study(place / "study")
    cores = len(os.sched_getaffinity(0))
    assert first.experiment["threads"] == first.runs[0].config["threads"] == cores
    assert program(*words, "--seeds", "0-1", "--jobs", str(cores)).code == 0
    assert {run.config["threads"] for run in read_study(place / "study").runs} == {cores}


# --- Reproduce ---


TINIER = {"data": "digits", "model": "mlp-w8", "train_size": 100, "epochs": 1, "batch_size": 30}


def test_reproduce_runs_the_studies_of_a_figure_and_finds_them_again(program, place):
    assignments = [word for key, value in TINIER.items() for word in ("--set", f"{key}={value}")]
    words = ["reproduce", "seed-remark", *assignments, "--seeds", "0-1", "--out", "here"]
    done = program(*words)
    assert done.code == 0, done.err
    names = ["small-cifar10-vgg16-decision-seed", "small-cifar10-vgg16-init-seed"]
    assert sorted(path.name for path in (place / "here").iterdir()) == names
    decisions, weights = (read_study(place / "here" / name) for name in names)
    assert {run.status for run in (*decisions.runs, *weights.runs)} == {"finished"}
    assert [run.config["decision_seed"] for run in decisions.runs] == [0, 1]
    assert [run.config["init_seed"] for run in weights.of("scheduled-sgd")] == [0, 1]
    again = program(*words)
    assert (again.code, again.err) == (0, "0 of 4 runs to do\n0 of 2 runs to do\n")


def test_the_estimates_count_what_a_step_really_does(program, tiny, place):
    own = {"ssa-paper-text": ("ssa", "paper-text"), "ssa-paper-code": ("ssa", "paper-code")}
    with (place / tiny).open("a") as file:
        for label, (method, preset) in own.items():
            file.write(f'[methods.{label}]\nmethod = "{method}"\npreset = "{preset}"\n')
    exact = [method for method in FORWARDS if not method.startswith("self-tuned")]  # no races
    words = ["study", tiny, "--methods", ",".join(exact), "--seeds", "0", "--epochs", "1"]
    done = program(*words, "--out", "study")
    assert done.code == 0, done.err
    for run in read_study(place / "study").runs:
        counted = run.result["forwards"] + 2 * run.result["backwards"]
        assert counted == FORWARDS[run.method] * run.result["steps"], run.method


def test_without_a_name_all_are_listed(usage):
    code, printed = usage("reproduce", "--jobs", "2")
    assert code == 0
    for name in REPRODUCTIONS:
        assert f"{name}: " in printed.out
    assert "2 cores" in printed.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["table-1", "--size", "huge"], "size = 'huge'"),
        (["tabel-1"], "did you mean 'table-1'"),
    ],
)
def test_nonsense_is_answered_at_once(words, told, usage, place):
    code, printed = usage("reproduce", *words)
    assert code == 2
    assert told in printed.err
    assert not (place / "studies").exists()
