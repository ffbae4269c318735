"""``annealtune reproduce`` with runs cut down to nothing."""

from annealtune.studies.records import read_study
from annealtune.studies.reproduction import FORWARDS

TINY = {"data": "digits", "model": "mlp-w8", "train_size": 100, "epochs": 1, "batch_size": 30}


def test_runs_the_studies_of_a_figure_and_finds_them_again(program, place):
    assignments = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]
    words = ["reproduce", "seed-remark", *assignments, "--seeds", "0-1", "--out", "here"]
    done = program(*words)
    assert done.code == 0, done.err
    names = ["small-cifar10-vgg16-decision-seed", "small-cifar10-vgg16-init-seed"]
    assert sorted(path.name for path in (place / "here").iterdir()) == names
    decisions, weights = (read_study(place / "here" / name) for name in names)
    assert {run.status for run in (*decisions.runs, *weights.runs)} == {"finished"}
    assert decisions.methods == ("sgd-sa-paper-code",)
    assert [run.config["decision_seed"] for run in decisions.runs] == [0, 1]
    assert [run.config["init_seed"] for run in weights.of("scheduled-sgd")] == [0, 1]
    assert done.out.startswith("seed-remark: ")
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
