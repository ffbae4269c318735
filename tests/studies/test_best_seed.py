"""The hunt for a seed: the same choices every time, made on validation scores alone."""

import dataclasses
import io
import json
import signal

import pytest
from rich.console import Console

from annealtune.errors import ConfigError, RunError, RunStoppedError
from annealtune.studies.best_seed import Halving, Rung, hunt, rungs
from annealtune.studies.display import Display
from annealtune.studies.records import read_study
from annealtune.training.stopping import StopRequest


@pytest.fixture
def search(place, plan, engine, recorder):
    """Hunts with the pretending program."""

    def search(name="study", jobs=2, stop=None, halving=None, behaviour="ok", **options):
        planned = plan(behaviour, ["sgd"], options.pop("seeds", range(10)), epochs=16)
        return hunt(
            planned,
            place / name,
            engine(jobs),
            recorder,
            stop or StopRequest(),
            halving=halving or Halving(),
            **options,
        )

    return search


@pytest.fixture(scope="module")
def searched(tmp_path_factory, plan, engine):
    """A search over ten seeds, made once."""
    path = tmp_path_factory.mktemp("searched") / "study"
    planned = plan("ok", ["sgd"], range(10), epochs=16)
    display = Display(Console(file=io.StringIO()))
    return hunt(planned, path, engine(2), display, StopRequest(), halving=Halving())


# --- The rungs ---


@pytest.mark.parametrize(
    ("epochs", "seeds", "halving", "expected"),
    [
        (40, 10, Halving(), [(5, 10), (10, 5), (20, 3), (40, 2)]),
        (30, 8, Halving(), [(4, 8), (8, 4), (16, 2), (30, 1)]),
        (27, 9, Halving(3), [(3, 9), (9, 3), (27, 1)]),
        (10, 1, Halving(), [(10, 1)]),
        (10, 2, Halving(), [(5, 2), (10, 1)]),
        (10, 3, Halving(), [(5, 3), (10, 2)]),
        (1, 10, Halving(), [(1, 10)]),
        (2, 10, Halving(), [(1, 10), (2, 5)]),
        (40, 10, Halving(2, 20), [(20, 10), (40, 5)]),
        (40, 4, Halving(2, 1), [(1, 4), (2, 2), (40, 1)]),
        (40, 4, Halving(2, 50), [(40, 4)]),
        (100, 1000, Halving(10), [(1, 1000), (10, 100), (100, 10)]),
    ],
)
def test_rungs(epochs, seeds, halving, expected):
    assert rungs(epochs, seeds, halving) == [Rung(*rung) for rung in expected]


@pytest.mark.parametrize("bad", [{"reduction": 1}, {"reduction": 0}, {"first_rung": 0}])
def test_a_halving_that_is_none(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Halving(**bad)


# --- The choices ---


def test_the_best_on_the_validation_set_go_on(searched):
    log = searched.search
    assert [(rung["epochs"], len(rung["scores"])) for rung in log["rungs"]] == [
        (2, 10),
        (4, 5),
        (8, 3),
        (16, 2),
    ]
    records = {run.seed: run.metrics for run in searched.runs}
    candidates = list(range(10))
    for rung in log["rungs"]:
        best = {
            seed: max(line["validation_accuracy"] for line in records[seed][: rung["epochs"]])
            for seed in candidates
        }
        ranked = sorted(candidates, key=lambda seed: -best[seed])
        assert [score["seed"] for score in rung["scores"]] == ranked
        assert rung["kept"] + rung["pruned"] == ranked
        candidates = rung["kept"]
    assert candidates == [log["winner"]["seed"]]


def test_a_pruned_run_has_stopped_at_its_rung_and_kept_its_length(searched):
    study = searched
    lengths = {seed: rung["epochs"] for rung in study.search["rungs"] for seed in rung["pruned"]}
    for run in study.runs:
        assert run.config["epochs"] == 16  # the schedules are those of the full length
        assert len(run.metrics) == lengths.get(run.seed, 16)
        if lengths.get(run.seed, 16) < 16:
            assert run.status == "unfinished"
            assert run.reason == f"pruned after epoch {lengths[run.seed]}"
    assert study.search["epochs_trained"] == sum(len(run.metrics) for run in study.runs)
    assert study.search["epochs_trained"] < study.search["epochs_without_pruning"] == 160


def test_the_winner_has_a_score_on_data_that_chose_nothing(searched):
    study = searched
    winner = study.search["winner"]
    (run,) = [run for run in study.runs if run.seed == winner["seed"]]
    best = max(line["validation_accuracy"] for line in run.metrics)
    assert winner["validation_accuracy"] == best
    assert winner["test_accuracy"] == run.result["test_accuracy"] != best
    assert "test" not in json.dumps(study.search["rungs"])


def test_the_same_log_whatever_the_jobs(search, place):
    search("one", jobs=1, seeds=range(5))
    search("four", jobs=4, seeds=range(5))
    logs = [(place / name / "search.json").read_bytes() for name in ("one", "four")]
    assert logs[0] == logs[1]


def test_interrupted_in_a_rung_it_comes_to_the_same_choices(search, place, recorder):
    search("whole", seeds=range(6))
    stop = StopRequest()

    def ask_in_the_second_rung():
        if len(recorder.shown) == 5 and recorder.names("started"):
            stop.signal_number = signal.SIGTERM

    recorder.on_refresh = ask_in_the_second_rung
    with pytest.raises(RunStoppedError):
        search("parts", stop=stop, seeds=range(6))
    recorder.on_refresh = lambda: None
    search("parts", seeds=range(6))
    logs = [(place / name / "search.json").read_bytes() for name in ("whole", "parts")]
    assert logs[0] == logs[1]


def test_without_an_accuracy_the_lowest_loss_wins(search):
    """As in regression; the losses of the pretending program fall as its accuracies rise."""
    by_loss, by_accuracy = (
        search(name, behaviour=behaviour, seeds=range(6)).search
        for name, behaviour in (("losses", "regression"), ("accuracies", "ok"))
    )
    assert "accuracy" not in json.dumps(by_loss)
    assert by_loss["winner"]["test_loss"] == 2.0
    for one, other in zip(by_loss["rungs"], by_accuracy["rungs"], strict=True):
        assert one["kept"] == other["kept"]


def test_a_seed_whose_run_fails_is_out(search):
    study = search(behaviour="crash_seed_1", seeds=range(4))
    (failed,) = study.search["rungs"][0]["failed"]
    assert failed["seed"] == 1
    assert "broke" in failed["reason"]
    assert study.search["winner"]["seed"] in (0, 2, 3)


def test_every_run_fails(search, place):
    with pytest.raises(RunError, match="every run of the search has failed"):
        search(behaviour="crash", seeds=range(2))
    assert {run.status for run in read_study(place / "study").runs} == {"failed"}


def test_equal_seeds_keep_their_order(search, place):
    study = search("study", seeds=[3, 1])
    assert study.methods == ("sgd",)
    assert [rung["epochs"] for rung in study.search["rungs"]] == [8, 16]


# --- The same images for all ---


@pytest.mark.parametrize(
    ("values", "vary", "split_seed"),
    [
        ({}, "seed", 0),
        ({"data_seed": 5}, "seed", None),
        ({"split_seed": 7}, "seed", 7),
        ({}, "data_seed", 0),
        ({}, "init_seed", None),
    ],
)
def test_no_seed_wins_by_easier_images(values, vary, split_seed, place, plan, engine, recorder):
    planned = dataclasses.replace(plan(methods=["sgd"], seeds=[0, 1], **values), vary=vary)
    study = hunt(planned, place / "study", engine(), recorder, StopRequest(), halving=Halving())
    assert {run.config.get("split_seed") for run in study.runs} == {split_seed}


@pytest.mark.parametrize(("words", "same"), [([], False), (["--split-seed", "0"], True)])
def test_the_split_seed_keeps_the_images_while_the_data_seed_varies(
    words, same, program, tiny, place
):
    still = ["--methods", "sgd", "--set", "sgd.lr=1e-30", "--epochs", "1", "--model", "mlp-w8"]
    varied = ["--vary", "data_seed", "--seeds", "0-1", "--out", "study"]
    done = program("study", tiny, *still, *varied, *words)
    assert done.code == 0, done.err
    runs = read_study(place / "study").runs
    assert len({run.result["test_loss"] for run in runs}) == 1  # the nets have learned nothing
    losses = {run.result["last_validation_loss"] for run in runs}
    assert len(losses) == (1 if same else 2)


# --- Real runs ---


def test_a_real_search_twice_gives_one_log(program, tiny, place):
    words = ["study", tiny, "--method", "sgd-sa", "--seeds", "0-3", "--search", "best-seed"]
    told = []
    for name, jobs in (("one", "2"), ("two", "1")):
        done = program(*words, "--epochs", "2", "--jobs", jobs, "--out", name)
        assert done.code == 0, done.err
        told.append(done.out.replace(name, "DIR"))
    assert told[0] == told[1]
    logs = [(place / name / "search.json").read_bytes() for name in ("one", "two")]
    assert logs[0] == logs[1]
    winner = json.loads(logs[0])["winner"]
    assert f"best seed: {winner['seed']}, chosen by its validation accuracy" in told[0]
    assert f"on the test set, which chose nothing: {winner['test_accuracy']:.2%}" in told[0]
    temperatures = [
        line["temperature"] for run in read_study(place / "one").runs for line in run.metrics[:1]
    ]
    assert len(temperatures) == 4


def test_the_first_epochs_of_a_search_are_those_of_the_full_run(program, tiny, place):
    common = ["study", tiny, "--method", "sgd-sa", "--split-seed", "0", "--epochs", "4"]
    common += ["--set", "sgd-sa.preset=paper-text", "--seeds", "0-1"]
    assert program(*common, "--search", "best-seed", "--out", "search").code == 0
    assert program(*common, "--out", "whole").code == 0
    pruned = json.loads((place / "search/search.json").read_text())["rungs"][0]["pruned"]
    assert len(pruned) == 1
    for part, whole in zip(
        read_study(place / "search").runs, read_study(place / "whole").runs, strict=True
    ):
        assert len(part.metrics) == (2 if part.seed in pruned else 4)
        for one, other in zip(part.metrics, whole.metrics, strict=False):
            seconds = {"training_seconds": 0, "evaluation_seconds": 0}
            assert {**one, **seconds} == {**other, **seconds}
