"""The benchmark of races: what is counted, what is compared with what."""

import math

import pytest
import torch
from torch import nn

from annealtune.annealing import race as rules
from annealtune.optim import races
from benchmarks.races import __main__ as command
from benchmarks.races import methods, oracle, records, table, variants
from benchmarks.races.catalogue import NOT_FOR_SGD, TASKS
from benchmarks.races.methods import GRIDS, at_rate
from benchmarks.races.records import Key
from benchmarks.races.task import Sources, Task


class Line(Task):
    """A line through noisy points."""

    steps = 200
    batch_size = 8

    def load(self):
        source = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(64, 2, generator=source)
        noise = 0.1 * torch.randn(64, 1, generator=source)
        self.targets = self.inputs.sum(1, keepdim=True) + noise
        self.test_inputs, self.test_targets = self.inputs, self.targets

    def build(self):
        return nn.Linear(2, 1)

    def loss(self, network, minibatch):
        inputs, targets = minibatch
        return nn.functional.mse_loss(network(inputs), targets)


@pytest.fixture
def steps_of_base(monkeypatch):
    """The steps that every base makes, one number a run."""
    counts = []

    def counted(build):
        def built(network):
            base = build(network)
            number = len(counts)
            counts.append(0)

            def count(*_):
                counts[number] += 1

            base.register_step_post_hook(count)
            return base

        return built

    monkeypatch.setitem(methods.BASES, "adamw", counted(methods.BASES["adamw"]))
    return counts


@pytest.mark.parametrize("method", ["self-tuned", "anytime", "random-arm"])
def test_a_run_with_a_race_costs_no_more_than_one_without(method, steps_of_base):
    outcome = methods.run(Line(Sources()), "adamw", method)
    steps = steps_of_base[-1]  # those before only served to find the length
    assert outcome["extra_steps"] > 0
    assert steps == outcome["cost"] == outcome["minibatches"] + outcome["extra_steps"]
    assert 0.95 * 200 < steps <= 200


def test_a_fixed_rate_costs_one_step_a_minibatch(steps_of_base):
    outcome = methods.run(Line(Sources()), "adamw", "rate-0.01")
    assert steps_of_base == [200]
    assert (outcome["cost"], outcome["extra_steps"]) == (200, 0)


def test_a_fixed_rate_trains_as_the_base_would_by_hand():
    task = Line(Sources(), seed=3)
    network = task.network()
    base = torch.optim.AdamW(network.parameters())
    average, count = [p.detach().clone() for p in network.parameters()], 1
    for step in range(200):
        if step % 8 == 7:  # one reading in eight steps, before the step is made
            count += 1
            for mean, weight in zip(average, network.parameters(), strict=True):
                mean += 10 / (count + 9) * (weight.detach() - mean)
        base.zero_grad()
        task.loss(network, task.minibatch(step)).backward()
        base.param_groups[0]["lr"] = 0.01 * min(1, (200 - step) / 50)
        base.step()
    for mean, weight in zip(average, network.parameters(), strict=True):
        weight.data.copy_(mean)
    outcome = methods.run(Line(Sources(), seed=3), "adamw", "rate-0.01")
    assert outcome["test"] == pytest.approx(task.test(network), rel=1e-4)


def test_a_broken_run_has_no_test_loss():
    outcome = methods.run(Line(Sources()), "sgd", "rate-1e+06")
    assert outcome["test"] is None


def test_the_seed_decides_weights_and_minibatches():
    first, second, again = (Line(Sources(), seed) for seed in (0, 1, 0))
    assert not torch.equal(first.minibatch(0)[0], second.minibatch(0)[0])
    assert torch.equal(first.minibatch(7)[0], again.minibatch(7)[0])
    assert torch.equal(first.network().weight, again.network().weight)
    assert not torch.equal(first.network().weight, second.network().weight)


def record(task, method, test, *, seed=0, rate=0.01, extra=0, variant=""):
    return {
        **Key(task, seed, "adamw", method, variant)._asdict(),
        "test": test,
        "rate": rate,
        "cost": 400,
        "budget": 400,
        "extra_steps": extra,
        "seconds": 1.0,
    }


def made_up():
    """Two tasks: on one the best rate is 0.01, on the other a level of 4 ends at 1e-5."""
    grid = [
        record("digits", at_rate(rate), 1 + abs(math.log10(rate) + 2)) for rate in GRIDS["adamw"]
    ]
    grid += [record("digits", at_rate(rate), 1.1) for rate in (5.6e-3, 1.8e-2)]
    grid += [record("graph", at_rate(rate), 4.0 if rate > 1e-5 else 2.0) for rate in GRIDS["adamw"]]
    grid += [record("graph", at_rate(rate), 2.5) for rate in (5.6e-6, 1.8e-5)]
    return [
        *grid,
        record("digits", at_rate(0.01), 2.0, seed=1),
        record("digits", "self-tuned", 1.0, rate=0.012, extra=40),
        record("digits", "self-tuned", 8.0, seed=1, rate=0.003, extra=20),
        record("graph", "self-tuned", None, rate=0.1, extra=48),
    ]


def test_ratios_are_to_the_rate_that_is_best_on_seed_0():
    known = records.by_key(made_up())
    key = Key("digits", 0, "adamw", "self-tuned")
    assert oracle.oracle_rate(known, key) == 0.01
    found = table.cell(known, key, [0, 1, 2])
    assert found.ratios == pytest.approx((1.0, 4.0))
    assert found.ratio == pytest.approx(2.0)
    assert found.rates == (0.012, 0.003)
    assert found.extra == pytest.approx((0.1, 0.05))
    held = table.cell(known, key._replace(method="held-3e-3"), [0])
    assert held.ratios == pytest.approx((1 + abs(math.log10(3e-3) + 2),))


def searched(losses, base="adamw"):
    """Return the rates that a search runs, in its order, and the best of them."""
    known = {}
    key = Key("digits", 0, base, "")
    if base == "sgd":
        known[key._replace(method="held-centre")] = record("digits", "held-centre", 1.0, rate=0.4)
    order = []
    while (run := oracle.next_key(known, key)) is not None:
        assert oracle.oracle_rate(known, key) is None
        order.append(float(run.method.removeprefix("rate-")))
        known[run] = record("digits", run.method, losses(order[-1]))
    return order, oracle.oracle_rate(known, key)


def test_the_search_goes_outwards_until_rates_are_worse():
    # Steep: one rate on each side is enough. The last two are half-way between.
    order, best = searched(lambda rate: 1 + abs(math.log10(rate / 5e-3)))
    assert (order, best) == ([3e-3, 1e-3, 1e-2, 3e-2, 1.7e-3, 5.4e-3], 5.4e-3)
    # Shallow: it takes two.
    order, best = searched(lambda rate: 1 + 0.1 * abs(math.log10(rate / 1e-2)))
    assert (order, best) == ([3e-3, 1e-3, 3e-4, 1e-2, 3e-2, 1e-1, 5.6e-3, 1.8e-2], 1e-2)
    # Broken runs and level ones do not end it.
    order, best = searched(lambda rate: None if rate > 0.03 else 1.0, base="sgd")
    assert order == [0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 1.0, 0.017, 0.054]
    assert best <= 0.03


def test_the_table_shows_means_and_the_worst(tmp_path, capsys):
    path = tmp_path / "races.jsonl"
    for one in made_up():
        records.append(path, one)
    command.main(["--table", "--records", str(path), "--methods", "self-tuned"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| task | oracle's rate | self-tuned | rates | extra |"
    assert lines[2] == "| digits | 0.01 | 2.000 | 0.012, 0.003 | 7.5 % |"
    assert lines[3] == "| graph | 1e-05 | 1000.000 | 0.1 | 12.0 % |"
    # The cube root of 1 * 4 * 1000.
    assert lines[4] == "| **geometric mean** |  | **15.874** |  | 9.8 % |"
    assert lines[5] == "| **worst** |  | **1000.000** |  | 12.0 % |"


def test_a_variant_holds_for_its_context_alone():
    with variants.applied("spacing=2,stay=1"):
        assert races._SPACING == 2.0
        assert rules._STAY == 1
        assert isinstance(rules._STAY, int)
    assert (races._SPACING, rules._STAY) == (4.0, 2)
    with pytest.raises(ValueError, match="unknown constant 'beleif'"):
        variants.parse("beleif=1")


def test_a_variant_changes_what_is_chosen():
    rates = []
    for belief in (0, 1):
        variant = f"most-belief={belief},least-belief={belief},further-races=0"
        with variants.applied(variant):
            rates.append(methods.run(Line(Sources()), "adamw", "self-tuned")["rate"])
    assert rates[0] == 3e-3
    assert rates[1] > 3e-3


def test_a_small_task_is_run_once_and_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(TASKS, "line", Line)
    monkeypatch.setitem(GRIDS, "adamw", (3e-3, 3e-2))
    path = tmp_path / "races.jsonl"
    arguments = ["--tasks", "line", "--records", str(path), "--seeds", "1"]
    arguments += ["--methods", "oracle,self-tuned,held-3e-3,held-centre"]
    command.main(arguments)
    found = records.by_key(records.read(path))
    assert {key.method for key in found} == {
        *(at_rate(rate) for rate in (3e-3, 3e-2, 1.7e-2, 5.4e-2)),
        *("self-tuned", "held-centre"),  # a fixed 3e-3 is one of the grid
    }
    assert all(r["cost"] <= r["budget"] == 200 for r in found.values())
    capsys.readouterr()
    command.main(arguments)
    assert capsys.readouterr().out == ""


def test_every_task_that_sgd_is_spared_exists():
    assert set(NOT_FOR_SGD) < set(TASKS)
    assert len(TASKS) == 17
