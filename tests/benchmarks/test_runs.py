"""Runs of benchmarks/quality: what they cost, what they train, what becomes of their failures."""

import itertools
import math

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from annealtune.errors import DataError
from benchmarks.quality import bases, fixed
from benchmarks.quality.methods import CONTROLS, METHODS, OURS, run
from benchmarks.records import Key, provenance
from benchmarks.quality.tasks.catalogue import TASKS
from benchmarks.quality.tasks.task import Sources
from tests.benchmarks.line import Breaking, Learnt, Line, Uneven

LENGTH = 600  # of Line with a factor of 5, which leaves room for a race of five arms


class Judged(Line):
    """The same; its arms are judged by rows that are held out."""

    has_objective = True

    def objective(self, network):
        inputs, targets = self.held_out("validation")
        return (network(inputs) - targets).square().flatten().tolist()


class Failing(Line):
    def loss(self, network, minibatch):
        raise RuntimeError("no such operator")


class WithoutNet(Line):
    def network(self):
        raise DataError("the net is not there")


@pytest.fixture
def steps_of_base(monkeypatch):
    """The steps that every base makes, one number a run."""
    counts = []
    build = bases.BASES["adamw"]

    def built(groups):
        base = build(groups)
        number = len(counts)
        counts.append(0)

        def count(*_):
            counts[number] += 1

        base.register_step_post_hook(count)
        return base

    monkeypatch.setitem(bases.BASES, "adamw", built)
    return counts


class TestCosts:
    @pytest.mark.parametrize("method", [*OURS, "random-arm"])
    def test_a_run_with_a_race_costs_no_more_than_one_without(self, method, steps_of_base):
        task = Line(Sources(), length_factor=5)
        record = METHODS[method](task, "adamw")
        steps = steps_of_base[-1]  # those before only served to find the length
        assert record["races"] >= 1
        assert record["extra_steps"] > 0
        assert steps == record["cost"] == record["minibatches"] + record["extra_steps"]
        assert 0.95 * LENGTH < steps <= record["budget"] == LENGTH

    @pytest.mark.parametrize("method", OURS)
    def test_an_objective_costs_a_forward_for_every_arm(self, method, steps_of_base):
        record = METHODS[method](Judged(Sources(), length_factor=5), "adamw")
        steps = record["minibatches"] + record["extra_steps"]
        assert steps == steps_of_base[-1]
        assert record["cost"] == pytest.approx(steps + 4 / 3, abs=1e-3)
        assert 0.95 * LENGTH < record["cost"] <= LENGTH

    @pytest.mark.parametrize("train", [fixed.held, fixed.cosine])
    def test_a_fixed_rate_costs_one_step_a_minibatch(self, train, steps_of_base):
        task = Line(Sources())
        record = train(task, "adamw", 0.01)
        assert steps_of_base == [120]
        assert task.losses == 120 + 20 * 2  # and twenty looks at the held-out rows
        assert (record["cost"], record["minibatches"], record["extra_steps"]) == (120, 120, 0)

    @pytest.mark.parametrize("method", [name for name in CONTROLS if name.startswith("held")])
    def test_a_rate_that_is_looked_for_is_held_at_the_same_cost(self, method):
        record = METHODS[method](Line(Sources()), "adamw")
        assert (record["cost"], record["minibatches"]) == (120, 120)
        held = fixed.held(Line(Sources()), "adamw", record["rate"])
        assert record == held
        assert method == "held-centre" or record["rate"] == 3e-3 / 4


def plain_adamw(task, network):
    """AdamW by torch alone, of the groups at 1, so that a schedule multiplies by the rate."""
    groups = [{"params": ps, "lr": multiple} for ps, multiple in task.groups(network)]
    return torch.optim.AdamW(groups, foreach=False)


def train_plainly(task, network, base, scheduler):
    for step in range(task.steps):
        yield step
        base.zero_grad()
        task.loss(network, task.minibatch(step)).backward()
        base.step()
        scheduler.step()


class TestFixedRates:
    @pytest.mark.parametrize("kind", [Line, Uneven])
    def test_held_trains_as_the_base_would_by_hand(self, kind):
        task = kind(Sources(), seed=3)
        network = task.network()
        base = plain_adamw(task, network)
        # Warmed up for 6 of the 120 steps, held to the 90th, then down to a thirtieth of the rate.
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            base, lambda step: 0.01 * min(1.0, (step + 1) / 6, (120 - step) / 30)
        )
        for _ in train_plainly(task, network, base, scheduler):
            pass  # the average ends with the decay: the last weights count
        record = fixed.held(kind(Sources(), seed=3), "adamw", 0.01)
        for part in ("validation", "test"):
            assert record[f"final_{part}"] == pytest.approx(task.score(network, part), rel=1e-4)
            assert record[part] <= record[f"final_{part}"] or part == "test"  # the best look

    @pytest.mark.parametrize("kind", [Line, Uneven])
    def test_a_cosine_is_warmed_up(self, kind):
        task = kind(Sources(), seed=3)
        network = task.network()
        base = plain_adamw(task, network)
        cosine = [(1 + math.cos(math.pi * step / 120)) / 2 for step in range(121)]
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            base, lambda step: 0.02 * min(1.0, (step + 1) / 6) * cosine[step]
        )
        for _ in train_plainly(task, network, base, scheduler):
            pass
        record = fixed.cosine(kind(Sources(), seed=3), "adamw", 0.02)
        for part in ("validation", "test"):
            assert record[f"final_{part}"] == pytest.approx(task.score(network, part), rel=1e-4)
            assert record[part] <= record[f"final_{part}"] or part == "test"  # the best look

    @pytest.mark.parametrize("train", [fixed.held, fixed.cosine])
    def test_a_broken_run_has_no_final_score(self, train):
        for kind, base, rate in ((Breaking, "adamw", 0.01), (Line, "sgd", 1e6)):
            record = train(kind(Sources()), base, rate)
            assert record["final_validation"] is record["final_test"] is None
            assert record["rate"] == rate
            assert record["cost"] < 120


def test_a_tuned_run_that_breaks_has_no_final_score():
    task = Breaking(Sources(), length_factor=5)
    with pytest.warns(UserWarning, match="the loss broke"):
        record = METHODS["self-tuned"](task, "adamw")
    assert record["final_validation"] is record["final_test"] is None
    assert record["cost"] < record["budget"]


class TestSeeds:
    def test_they_decide_weights_and_minibatches(self):
        tasks = [TASKS["siren-sound"](Sources(), seed) for seed in (0, 1, 0)]
        first, second, again = (task.minibatch(7)[0] for task in tasks)
        assert torch.equal(first, again)
        assert not torch.equal(first, second)
        first, second, again = (parameters_to_vector(task.network().parameters()) for task in tasks)
        assert torch.equal(first, again)
        assert not torch.equal(first, second)

    def test_they_decide_the_noise_of_a_minibatch(self):
        def noise(seed, index):
            Line(Sources(), seed).minibatch(index)
            return torch.rand(3).tolist()

        draws = [noise(seed, index) for seed in (0, 1) for index in (0, 1)]
        assert noise(1, 1) == draws[3]
        assert all(one != other for one, other in itertools.combinations(draws, 2))

    @pytest.mark.parametrize("method", ["self-tuned", "random-arm"])
    def test_the_same_run_twice(self, method):
        first, second = (
            METHODS[method](Line(Sources(), seed=2, length_factor=5), "adamw") for _ in range(2)
        )
        assert first == second

    def test_rates_are_chosen_by_other_rows_than_those_of_the_test(self):
        task = Line(Sources())
        parts = [task.held_out(part)[0].flatten().tolist() for part in ("validation", "test")]
        rows = [row for part in parts for row in part]
        assert sorted(rows) == sorted(task.test_inputs.flatten().tolist())
        assert len(set(rows)) == len(rows) == 100
        assert not set(rows) & set(task.inputs.flatten().tolist())


class TestRecords:
    @pytest.fixture(autouse=True)
    def _tasks(self, monkeypatch):
        kinds = {"line": Line, "failing": Failing, "without-net": WithoutNet}
        for name, kind in kinds.items():
            monkeypatch.setitem(TASKS, name, kind)

    def test_a_run_is_recorded_with_its_key(self):
        key = Key("line", 2, "adamw", "cosine-at-0.03", "", 0.5)
        record = run(key, Sources())
        expected = fixed.cosine(Line(Sources(), 2, 0.5), "adamw", 0.03)
        assert record.pop("seconds") > 0
        assert record == {**key._asdict(), **expected, **provenance()}
        assert record["budget"] == 60

    def test_a_run_that_raises_is_a_record_too(self):
        key = Key("failing", 1, "adamw", "held-at-0.01")
        record = run(key, Sources())
        assert record.pop("seconds") >= 0
        failure = {"failure": "RuntimeError: no such operator"}
        assert record == {**key._asdict(), **failure, **provenance()}

    def test_missing_data_is_no_fault_of_the_run(self, tmp_path):
        sources = Sources(text=tmp_path / "none.txt")
        with pytest.raises(DataError, match=r"none\.txt"):
            run(Key("words", 0, "adamw", "held-at-0.01"), sources)
        with pytest.raises(DataError, match="the net is not there"):
            run(Key("without-net", 0, "adamw", "held-at-0.01"), sources)


class TestRandomArm:
    def test_it_does_not_use_the_losses(self):
        chosen = []
        for seed in (1, 2, 3):
            rates = set()
            for factor, is_learnt in ((1.0, False), (1e3, False), (1.0, True)):
                task = Learnt(Sources(), seed, length_factor=5)
                task.factor, task.is_learnt = factor, is_learnt
                record = METHODS["random-arm"](task, "adamw")
                assert record["reason"] == "drawn blindly"
                rates.add(record["rate"])
            assert len(rates) == 1, seed
            chosen += rates
        assert len(set(chosen)) >= 3

    def test_the_losses_would_have_decided_otherwise(self):
        rates = []
        for is_learnt in (False, True):
            task = Learnt(Sources(), length_factor=5)
            task.is_learnt = is_learnt
            rates.append(METHODS["self-tuned"](task, "adamw")["rate"])
        assert rates[0] > 3e-3 >= rates[1]
