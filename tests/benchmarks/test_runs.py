"""Runs of benchmarks/quality: what they cost, what they train, what becomes of their failures."""

import math

import pytest
import torch

from annealtune.errors import DataError
from benchmarks.quality import bases, fixed
from benchmarks.quality.methods import METHODS, OURS, run
from benchmarks.quality.tasks.catalogue import TASKS
from benchmarks.quality.tasks.task import Sources
from benchmarks.quality.tuned import TunedRun, held_without_race
from benchmarks.records import Key, provenance
from tests.benchmarks.line import Breaking, Learnt, Line, Uneven

LENGTH = 600  # of Line with a factor of 5, which leaves room for a race


class Judged(Line):
    """The same; its arms are judged by rows that are held out."""

    has_objective = True

    def objective(self, network):
        inputs, targets = self.held_out("validation")
        return (network(inputs) - targets).square().flatten().tolist()


class Failing(Line):
    def loss(self, network, minibatch):
        raise RuntimeError("no such operator")


@pytest.fixture
def steps_of_base(monkeypatch):
    """The steps that every base makes, one number a run."""
    counts = []
    build = bases.BASES["adamw"]

    def built(groups):
        base = build(groups)
        number = len(counts)
        counts.append(0)
        base.register_step_post_hook(lambda *_: counts.__setitem__(number, counts[number] + 1))
        return base

    monkeypatch.setitem(bases.BASES, "adamw", built)
    return counts


class TestCosts:
    @pytest.mark.parametrize("method", [*OURS, "random-arm"])
    def test_a_run_with_a_race_costs_no_more_than_one_without(self, method, steps_of_base):
        record = METHODS[method](Line(Sources(), length_factor=5), "adamw")
        steps = steps_of_base[-1]  # those before only served to find the length
        assert record["races"] >= 1
        assert record["extra_steps"] > 0
        assert steps == record["cost"] == record["minibatches"] + record["extra_steps"]
        assert 0.95 * LENGTH < steps <= record["budget"] == LENGTH

    def test_an_objective_costs_a_forward_for_every_arm(self):
        record = METHODS["self-tuned"](Judged(Sources(), length_factor=5), "adamw")
        steps = record["minibatches"] + record["extra_steps"]
        assert record["cost"] == pytest.approx(steps + 4 / 3, abs=1e-3)
        assert 0.95 * LENGTH < record["cost"] <= LENGTH

    @pytest.mark.parametrize("train", [fixed.held, fixed.cosine])
    def test_a_fixed_rate_costs_one_step_a_minibatch(self, train, steps_of_base):
        task = Line(Sources())
        record = train(task, "adamw", 0.01)
        assert steps_of_base == [120]
        assert task.losses == 120 + 20 * 2  # and twenty looks at the held-out rows
        assert (record["cost"], record["minibatches"], record["extra_steps"]) == (120, 120, 0)


# Warmed up for 6 of the 120 steps; held to the 90th, then down to a thirtieth of the rate; or along
# a cosine.
SCHEDULES = {
    fixed.held: lambda step: min(1.0, (step + 1) / 6, (120 - step) / 30),
    fixed.cosine: lambda step: min(1.0, (step + 1) / 6) * (1 + math.cos(math.pi * step / 120)) / 2,
}


class TestFixedRates:
    @pytest.mark.parametrize("train", SCHEDULES)
    def test_they_train_as_the_base_would_by_hand(self, train):
        task = Uneven(Sources(), seed=3)
        network = task.network()
        groups = [{"params": ps, "lr": multiple} for ps, multiple in task.groups(network)]
        base = torch.optim.AdamW(groups, foreach=False)
        share = SCHEDULES[train]
        scheduler = torch.optim.lr_scheduler.LambdaLR(base, lambda step: 0.01 * share(step))
        for step in range(task.steps):
            base.zero_grad()
            task.loss(network, task.minibatch(step)).backward()
            base.step()
            scheduler.step()
        record = train(Uneven(Sources(), seed=3), "adamw", 0.01)
        for part in ("validation", "test"):  # the average ends with the decay
            assert record[f"final_{part}"] == pytest.approx(task.score(network, part), rel=1e-4)
        assert record["validation"] <= record["final_validation"]  # the best look

    def test_held_is_what_selftuner_does_without_a_race(self):
        held = fixed.held(Line(Sources(), length_factor=5), "adamw", 3e-3)
        with held_without_race(3e-3):
            tuned = TunedRun(Line(Sources(), length_factor=5), "adamw", LENGTH).finish(LENGTH)
        wanted = ("validation", "test", "final_validation", "final_test", "look", "cost")
        assert [tuned[name] for name in wanted] == [held[name] for name in wanted]

    @pytest.mark.filterwarnings("ignore:SelfTuner:UserWarning")  # the loss broke
    def test_a_broken_run_has_no_final_score(self):
        runs = [train(Breaking(Sources()), "adamw", 0.01) for train in SCHEDULES]
        runs += [fixed.held(Line(Sources()), "sgd", 1e6)]
        runs += [METHODS["self-tuned"](Breaking(Sources(), length_factor=5), "adamw")]
        for record in runs:
            assert record["final_validation"] is record["final_test"] is None
            assert record["cost"] < record["budget"]


def test_a_run_is_recorded_with_its_key_and_where_it_was_made(monkeypatch):
    monkeypatch.setitem(TASKS, "line", Line)
    key = Key("line", 2, "adamw", "cosine-at-0.03", "", 0.5)
    record = run(key, Sources())
    expected = fixed.cosine(Line(Sources(), 2, 0.5), "adamw", 0.03)
    assert record.pop("seconds") > 0
    assert record == {**key._asdict(), **expected, **provenance()}
    assert record.keys() >= {"commit", "torch", "cpu", "threads"}


def test_a_run_that_raises_is_a_record_and_missing_data_is_not(monkeypatch, tmp_path):
    monkeypatch.setitem(TASKS, "failing", Failing)
    record = run(Key("failing", 1, "adamw", "held-at-0.01"), Sources())
    assert record["failure"] == "RuntimeError: no such operator"
    with pytest.raises(DataError, match=r"none\.txt"):
        run(Key("words", 0, "adamw", "held-at-0.01"), Sources(text=tmp_path / "none.txt"))


def test_a_random_arm_repeats_and_does_not_use_the_losses():
    chosen = []
    for seed in (1, 2, 3):
        rates = set()
        for kind in (Line, Line, Learnt):
            named = type("Drawn", (kind,), {})  # a draw is by the name of the kind
            record = METHODS["random-arm"](named(Sources(), seed, length_factor=5), "adamw")
            assert record["reason"] == "drawn blindly"
            rates.add(record["rate"])
        assert len(rates) == 1, seed
        chosen += rates
    assert len(set(chosen)) >= 2
    tasks = (kind(Sources(), length_factor=5) for kind in (Line, Learnt))
    high, low = (METHODS["self-tuned"](task, "adamw")["rate"] for task in tasks)
    assert high > low  # the losses would have decided otherwise
