"""Numbers about the runs, against those worked out by hand or by scipy."""

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.quality.bases import GRIDS
from benchmarks.quality.methods import at_rate
from benchmarks.quality.oracle import oracle_rate
from benchmarks.quality.summaries import Results, geometric_mean
from benchmarks.records import Key


def put_rate(records, rate, *scores, **other):
    for seed, score in enumerate(scores):
        records.put("task", at_rate("held", rate), score, seed=seed, **other)


class TestOracle:
    def test_it_is_chosen_by_validation_not_by_test(self, records):
        records.put_grid("task", 1e-3)
        put_rate(records, 1e-2, 5.0, 5.0, 5.0, validation=0.5)
        put_rate(records, 3e-4, 0.1, 0.1, 0.1, validation=3.0, final_validation=0.1)
        assert oracle_rate(records, "task", "adamw") == 1e-2
        assert oracle_rate(records, "task", "adamw", 1.0, "cosine") == 1e-3
        assert Results(records, final=True).rate("task") == 3e-4

    def test_it_is_that_of_three_seeds_and_unknown_until_the_grid_is_complete(self, records):
        records.put_grid("task", 1e-3)
        put_rate(records, 1e-2, 0.1, 4.0, 4.0)  # the geometric mean is 1.17, seed 0 the best
        records.put("task", "held-at-0.1", 0.01, seed=0, variant="decay=0.5")
        assert oracle_rate(records, "task", "adamw") == 1e-3
        assert oracle_rate(records, "task", "sgd") is None
        del records[Key("task", 2, "adamw", "held-at-0.0001")]
        assert oracle_rate(records, "task", "adamw") is None

    def test_a_rate_that_broke_once_is_never_it(self, records):
        records.put_grid("task", 1e-3)
        put_rate(records, 1e-3, 1.0, None, 1.0)
        put_rate(records, 3e-4, 1.5, 1.5, 1.5)
        assert oracle_rate(records, "task", "adamw") == 3e-4
        for rate in GRIDS["adamw"]:
            put_rate(records, rate, None, None, None)
        assert oracle_rate(records, "task", "adamw") is None


def test_geometric_mean_and_interval_agree_with_scipy():
    values = [0.9, 1.1, 1.3, 2.0]
    mean = geometric_mean(values)
    logarithms = np.log(values)
    low, high = stats.t.interval(0.95, 3, logarithms.mean(), stats.sem(logarithms))
    assert mean.value == pytest.approx(stats.gmean(values))
    assert (mean.low, mean.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert geometric_mean([2.0]) == (pytest.approx(2.0), None, None, 1)
    assert geometric_mean([]) is None


def test_ratios_are_paired_by_seed_and_a_broken_run_counts_as_1000(records):
    records.put_grid("task", 1e-3)
    for seed, (own, oracle) in enumerate([(2.0, 1.0), (3.0, 2.0), (None, 4.0), (5.0, None)]):
        records.put("task", "self-tuned", own, seed=seed)
        records.put("task", "held-at-0.001", oracle, seed=seed, validation=1.0)  # the best anyway
    records.put("task", "self-tuned", 7.0, seed=4)  # the oracle has no such seed
    records.put("task", "dog", None, failure="it raised")
    results = Results(records)
    assert results.ratios("task", "self-tuned") == {0: 2.0, 1: 1.5, 2: 1000.0}
    mean = results.mean("task", "self-tuned")
    assert mean.value == pytest.approx((2 * 1.5 * 1000) ** (1 / 3))
    assert results.ratios("task", "dog") == {0: 1000.0}


def test_over_tasks(three):
    results = Results(three)
    tasks = ["low", "middle", "high"]
    own, prodigy = results.overall(tasks, "self-tuned"), results.overall(tasks, "prodigy")
    assert own.mean.value == pytest.approx(1.1)  # (1 * 1.1 * 1.21) ** (1 / 3)
    half = 4.302653 * math.log(1.1) / 3**0.5
    assert own.mean.high == pytest.approx(math.exp(math.log(1.1) + half))
    assert (own.worst, own.worst_task, own.broken, own.runs) == (1.21, "high", 0, 3)
    assert (own.within, prodigy.within) == pytest.approx((2 / 3, 1 / 3))
    assert (prodigy.worst, prodigy.worst_task, prodigy.broken) == (1000.0, "high", 1)
    assert results.overall(tasks, "dog") is None
    assert results.extra_steps("low", "self-tuned") == pytest.approx(0.08)
    assert results.chosen_rates("low", "self-tuned") == {0: 1e-3}


def test_a_method_is_compared_with_another_on_the_runs_that_both_have(records):
    ratios = {"a": 0.8, "b": 1.1, "c": 0.95, "d": 0.7, "e": 1.0}
    for task, ratio in ratios.items():
        records.put_grid(task, 1e-3)
        records.put(task, "self-tuned", 1.2 * ratio)
        records.put(task, "prodigy", 1.2)
    records.put("a", "self-tuned", 9.0, seed=1)  # Prodigy has no such seed
    found = Results(records).compared(ratios, "self-tuned", "prodigy")
    assert found.ratio.value == pytest.approx(stats.gmean(list(ratios.values())))
    assert (found.ahead, found.tasks) == (3, 5)
    logarithms = np.log([ratio for ratio in ratios.values() if ratio != 1])
    assert found.p == pytest.approx(stats.wilcoxon(logarithms).pvalue)
    assert Results(records).compared(["a"], "self-tuned", "dog") is None
    assert Results(records).compared(["e"], "prodigy", "prodigy").p is None


def test_final_scores_and_variants_are_scores_of_their_own(three):
    before = Results(three).overall(["low"], "self-tuned")
    three.put("low", "self-tuned", 9.0, variant="decay=0.5")
    assert Results(three).overall(["low"], "self-tuned") == before
    assert Results(three).ratios("low", "decay=0.5") == {0: 9.0}
    three.put("low", "self-tuned", 1.0, final_test=3.0)
    three.put("middle", "self-tuned", 1.0, final_test=None)
    final = Results(three, final=True)
    assert final.ratios("low", "self-tuned") == {0: 3.0}
    assert final.ratios("middle", "self-tuned") == {0: 1000.0}
