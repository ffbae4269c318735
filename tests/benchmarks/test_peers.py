"""The peers and bases of benchmarks/quality keep to the budget, train, and say so if they fail."""

import itertools
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.quality import autolrs, peers, version_0_2
from benchmarks.quality.average import Average
from benchmarks.quality.gradients import Gradients
from benchmarks.quality.line_search import StochasticLineSearch
from benchmarks.quality.methods import METHODS, PAPER, PEERS, _method
from benchmarks.quality.tasks.task import Sources
from benchmarks.quality.tuned import with_length
from tests.benchmarks.line import PACKAGES, Breaking, Line, Uneven, skip_without

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", [*PEERS, *PAPER])
def test_every_method_stays_within_the_budget_learns_and_repeats(name, capsys):
    skip_without(name)
    task = Uneven(Sources(), seed=3)
    record = METHODS[name](task, "adamw")
    assert 0 < record["minibatches"] <= record["cost"] <= 120 == record["budget"]
    assert record["cost"] > 118  # what is left does not pay another step
    assert record["test"] < task.score(task.network(), "test")
    assert METHODS[name](Uneven(Sources(), seed=3), "adamw") == record
    broken = METHODS[name](Breaking(Sources()), "adamw")
    assert broken["final_validation"] is broken["final_test"] is None
    assert 49 <= broken["cost"] <= 120
    assert capsys.readouterr().out == ""


class Normalised(Line):
    """Through BatchNorm, whose statistics belong to the weights that are evaluated."""

    def build(self):
        return nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1))


@pytest.mark.parametrize("name", ["schedule-free-adamw", "dog"])
def test_statistics_are_those_of_the_weights_that_are_evaluated(name, monkeypatch):
    skip_without(name)
    task = Normalised(Sources())
    recalibrated = METHODS[name](task, "adamw")
    assert recalibrated["test"] < task.score(task.network(), "test")
    monkeypatch.setattr(peers, "recalibrate", lambda *_: None)
    assert METHODS[name](task, "adamw")["test"] != recalibrated["test"]


@pytest.mark.parametrize(
    ("name", "decays"),
    [
        ("cosine-at-0.03", True),
        ("prodigy", True),
        ("d-adaptation", True),
        ("mechanic", True),
        ("line-search", False),
        ("autolrs", False),
    ],
)
def test_what_has_no_average_is_given_ours_which_ends_with_a_decay(name, decays, monkeypatch):
    skip_without(name)
    scored, taken = [], Average.swapped_in

    def noted(average):
        scored.append(average)
        return taken(average)

    monkeypatch.setattr(Average, "swapped_in", noted)
    task = Line(Sources())
    record = _method(name)(task, "adamw")
    assert len(scored) == 20
    assert (record["final_test"] == task.score(task.trained, "test")) == decays


def test_the_average_takes_every_eighth_step():
    gradients = Gradients(Line(Sources()))
    weight = gradients.network.weight
    average = Average(gradients, torch.optim.SGD([weight]))
    for step in range(1, 31):
        nn.init.constant_(weight, step)
        average.take(step)
    mean = 0.0
    for count, step in ((2, 8), (3, 16), (4, 24)):
        mean += 10 / (count + 9) * (step - mean)
    with average.swapped_in():
        assert weight.item() == pytest.approx(mean)
    average.take(30, 0.0)
    with average.swapped_in():
        assert weight.item() == 30


@pytest.mark.parametrize(
    ("name", "ratio"),
    [("d-adaptation", 0.1), ("schedule-free-adamw", 0.1), ("mechanic", 0.1), ("prodigy", 1.0)],
)
def test_groups_keep_their_ratio_but_for_prodigy(name, ratio):
    skip_without(name)
    task = Uneven(Sources())
    task.steps = 1  # from zero, no weight decay is in it
    METHODS[name](task, "adamw")
    weight, bias = abs(task.trained.weight.item()), abs(task.trained.bias.item())
    assert bias == pytest.approx(ratio * weight, rel=1e-3)


def test_no_peer_is_imported_before_it_is_asked_for():
    code = "import sys, benchmarks.quality.methods; print(*sys.modules)"
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not {name.split(".")[0] for name in PACKAGES.values()} & set(done.stdout.split())


def test_autolrs_spends_half_on_trials_and_forecasts_an_exponential():
    for steps in (60, 1000, 5000):
        lengths = autolrs.trial_lengths(steps)
        assert 0.4 * steps <= 10 * sum(lengths) <= 0.5 * steps
        assert all(b == 2 * a for a, b in itertools.pairwise(lengths))
    losses = [0.5 + 2 * math.exp(-step / 5) for step in range(20)]
    assert autolrs.forecast(losses, 200) == pytest.approx(0.5, abs=1e-2)
    spike = [1.0, 90.0, 50.0, 30.0, 20.0, 16.0, 14.0, 13.0]
    assert autolrs.forecast(spike, 80, highest=5.0) == 13.5
    assert autolrs.forecast([1.0, math.nan], 80) == math.inf


def test_a_try_of_the_line_search_costs_a_third():
    task = Line(Sources())
    record = peers.line_search(task)
    tries = task.losses - 2 * 20 - record["minibatches"]  # two scores a look
    assert tries >= record["minibatches"]
    assert record["cost"] == pytest.approx(record["minibatches"] + tries / 3, abs=1e-2)


def test_a_step_of_the_line_search_goes_down_as_long_as_it_may_try():
    inputs = torch.linspace(-1, 1, 9)[:, None]
    for tries in (100, 0):
        network = Line(Sources()).network()
        groups = [([network.weight, network.bias], 1.0)]
        search = StochasticLineSearch(network, groups, 10, tries_left=lambda tries=tries: tries)
        loss = lambda net=network: F.mse_loss(net(inputs), 2 * inputs - 1)
        losses = [search.step(loss) for _ in range(20)]
        assert losses == sorted(losses, reverse=True)
        assert (losses[-1] < 0.1 * losses[0]) == (tries > 0)


@pytest.mark.parametrize("name", ["adafactor", "adagrad", "lion", "muon", "rmsprop"])
def test_other_bases_can_be_tuned(name):
    skip_without(name)
    task = Line(Sources(), length_factor=5)
    record = with_length(task, name)
    assert record["cost"] <= 600
    assert record["test"] < 0.5 * task.score(task.network(), "test")


@pytest.mark.slow
def test_version_0_2_runs_within_the_budget(tmp_path):
    skip_without("autolrs")  # scikit-learn has the digits
    command = ["git", "cat-file", "-e", version_0_2.COMMIT]
    if subprocess.run(command, cwd=ROOT, capture_output=True).returncode:
        pytest.skip("a shallow clone")
    from benchmarks.quality.tasks.images import Digits

    task = Digits(Sources(cache=tmp_path), 0, 0.2)
    record = version_0_2.default(task)
    assert 200 < record["minibatches"] <= record["cost"] <= 240
    assert record["test"] < 0.5 * task.score(task.network(), "test")
