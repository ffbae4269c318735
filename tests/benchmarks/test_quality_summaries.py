"""Numbers about the runs, against those worked out by hand or by scipy."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks.quality import targets
from benchmarks.quality.bases import GRIDS
from benchmarks.quality.oracle import oracle_rate
from benchmarks.quality.records import Key
from benchmarks.quality.summaries import ADAMW, LONG, Results, geometric_mean
from benchmarks.quality.tasks.catalogue import OPEN, TASKS
from benchmarks.quality.tasks.task import Task

Runs = Any  # of conftest.py


# The best fixed rate.


def test_the_oracle_is_chosen_by_validation_not_by_test(records: Runs) -> None:
    records.put_grid("task", 1e-3)
    records.put("task", "held-at-0.01", 5.0, validation=0.5)  # best validation, worst test
    records.put("task", "held-at-0.0001", 0.1, validation=3.0)  # the other way round
    assert oracle_rate(records, "task", "adamw") == 1e-2
    assert oracle_rate(records, "task", "adamw", 1.0, "cosine") == 1e-3


def test_the_oracle_is_that_of_seed_0_and_unknown_until_the_grid_is_complete(records: Runs) -> None:
    records.put_grid("task", 1e-3)
    records.put("task", "held-at-0.1", 0.01, seed=1)
    records.put("task", "held-at-0.1", 0.01, variant="decay=0.5")
    assert oracle_rate(records, "task", "adamw") == 1e-3
    assert oracle_rate(records, "task", "adamw", 10.0) is None
    assert oracle_rate(records, "task", "sgd") is None
    del records[Key("task", 0, "adamw", "held-at-1e-05")]
    assert oracle_rate(records, "task", "adamw") is None


def test_a_broken_rate_is_never_the_oracle(records: Runs) -> None:
    records.put_grid("task", 1e-3)
    records.put("task", "held-at-0.001", None)
    records.put("task", "held-at-0.0003", 1.5)
    assert oracle_rate(records, "task", "adamw") == 3e-4
    for rate in GRIDS["adamw"]:
        records.put("task", f"held-at-{rate:g}", None)
    assert oracle_rate(records, "task", "adamw") is None


# Means.


def test_geometric_mean_and_interval_agree_with_scipy() -> None:
    values = [0.9, 1.1, 1.3, 2.0]
    mean = geometric_mean(values)
    assert mean is not None
    logarithms = np.log(values)
    low, high = stats.t.interval(0.95, 3, logarithms.mean(), stats.sem(logarithms))
    assert mean.value == pytest.approx(stats.gmean(values))
    assert (mean.low, mean.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert mean.count == 4
    assert geometric_mean([2.0]) == (pytest.approx(2.0), None, None, 1)
    assert geometric_mean([]) is None


def test_ratios_are_paired_by_seed_and_a_broken_run_counts_as_1000(records: Runs) -> None:
    records.put_grid("task", 1e-3)
    for seed, (own, oracle) in enumerate([(2.0, 1.0), (3.0, 2.0), (None, 4.0), (5.0, None)]):
        records.put("task", "self-tuned", own, seed=seed)
        records.put("task", "held-at-0.001", oracle, seed=seed)
    records.put("task", "self-tuned", 7.0, seed=4)  # the oracle has no such seed
    records.put("task", "dog", None, failure="it raised")
    results = Results(records)
    assert results.ratios("task", "self-tuned") == {0: 2.0, 1: 1.5, 2: 1000.0}
    mean = results.mean("task", "self-tuned")
    assert mean is not None
    assert mean.value == pytest.approx((2 * 1.5 * 1000) ** (1 / 3))
    assert results.ratios("task", "dog") == {0: 1000.0}


def test_how_the_seeds_of_the_best_rate_differ(records: Runs) -> None:
    records.put_grid("task", 1e-3)
    assert Results(records).spread("task") is None  # one seed
    for seed, score in enumerate([0.1, 0.2, 0.4]):
        records.put("task", "held-at-0.001", score, seed=seed)
    assert Results(records).spread("task") == pytest.approx(2.0)
    records.put("task", "held-at-0.001", None, seed=3)
    assert Results(records).spread("task") is None


def test_over_tasks(three: Runs) -> None:
    results = Results(three)
    tasks = ["low", "middle", "high"]
    assert results.tasks(sealed=True) == sorted(tasks)
    own, prodigy = results.overall(tasks, "self-tuned"), results.overall(tasks, "prodigy")
    assert own is not None
    assert prodigy is not None
    assert own.mean.value == pytest.approx(1.1)  # (1 * 1.1 * 1.21) ** (1 / 3)
    assert own.mean.high == pytest.approx(
        math.exp(math.log(1.1) + 4.302653 * math.log(1.1) / 3**0.5)
    )
    assert (own.worst, own.worst_task, own.broken, own.runs) == (1.21, "high", 0, 3)
    assert (prodigy.worst, prodigy.worst_task, prodigy.broken) == (1000.0, "high", 1)
    assert results.overall(tasks, "dog") is None


def test_shares_within_a_factor(three: Runs) -> None:
    results, tasks = Results(three), ["low", "middle", "high"]
    shares = [results.share_within(tasks, "self-tuned", factor) for factor in (0.99, 1, 1.1, 1.3)]
    assert shares == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert results.share_within(tasks, "prodigy", 10) == pytest.approx(2 / 3)
    assert results.share_within(tasks, "dog", 10) is None


def test_mean_ranks_are_of_methods_with_all_tasks_and_ties_share(three: Runs) -> None:
    three.put("low", "dog", 0.5)  # on one task alone
    ranks = Results(three).mean_ranks(
        ["low", "middle", "high"], ["self-tuned", "prodigy", "held-3e-3", "dog"]
    )
    # low: 1.0, 0.9, 2.0; middle: 1.1, 4.0, 1.0; high: 1.21, broken, 2.0
    assert ranks == pytest.approx(
        {"self-tuned": 5 / 3, "prodigy": (1 + 3 + 3) / 3, "held-3e-3": (3 + 1 + 2) / 3}
    )
    three.put("high", "self-tuned", 2.0)
    assert Results(three).mean_ranks(["high"], ["self-tuned", "held-3e-3"]) == {
        "self-tuned": 1.5,
        "held-3e-3": 1.5,
    }


def test_near_is_measured_over_adamw_at_the_usual_length(three: Runs) -> None:
    three.put_grid("below", 1e-3)
    three.put_grid("middle", 1e-1, length_factor=10.0)
    results = Results(three)
    assert results.near(sealed=True) == ["below", "middle"]
    assert results.near(LONG) == ["middle"]
    assert results.is_near("low") is False
    assert results.is_near("unknown") is None


def test_costs_are_those_of_the_records(three: Runs) -> None:
    results, tasks = Results(three), ["low", "middle", "high"]
    time = results.time_ratio(tasks, "self-tuned")
    assert time is not None
    assert time.value == pytest.approx(1.5)
    assert results.mean_of(tasks, "self-tuned", "extra_steps") == pytest.approx(0.08)
    assert results.chosen_rates("low", "self-tuned") == {0: 1e-3}
    assert results.chosen_rates("low", "prodigy") == {}


# What was to be shown.


def holds(records: Runs) -> dict[str, bool | None]:
    return {line.name: line.holds for line in targets.targets(records)}


def test_without_runs_no_line_holds_or_fails() -> None:
    assert set(holds({}).values()) == {None}


def test_bounds_hold_up_to_the_bound_and_no_further(three: Runs) -> None:
    found = holds(three)
    assert found["sealed-mean"] is False  # 1.1
    assert found["sealed-worst"] is False  # 1.21
    assert found["sealed-broken"] is True
    assert found["sealed-ahead-mean"] is True  # Prodigy has 15.3, the fixed rate 1.6
    assert found["near"] is False  # 1.1
    assert found["long-mean"] is None
    for task, ratio in (("low", 1.0), ("middle", 1.03), ("high", 1.12)):
        three.put(task, "self-tuned", ratio)
    assert [holds(three)[name] for name in ("sealed-mean", "sealed-worst", "near")] == [True] * 3


def test_open_tasks_do_not_count_for_the_sealed_half(three: Runs) -> None:
    before = targets.targets(three)
    three.put_grid("digits", 3e-3)
    three.put("digits", "self-tuned", None)
    assert "digits" in OPEN
    assert targets.targets(three) == before
    three.put("low", "self-tuned", None)
    assert holds(three)["sealed-broken"] is False


def test_one_better_rival_is_enough_to_fail(three: Runs) -> None:
    for task in ("low", "middle", "high"):
        three.put(task, "dog", 1.05)
    lines = {line.name: line for line in targets.targets(three)}
    assert lines["sealed-ahead-mean"].holds is False
    assert lines["sealed-ahead-mean"].bound == "< 1.050 (DoG)"
    assert lines["sealed-ahead-worst"].holds is False


def test_long_runs_and_sgd_have_bounds_of_their_own(three: Runs) -> None:
    three.put_grid("middle", 3e-3, length_factor=10.0)
    three.put("middle", "self-tuned", 1.02, length_factor=10.0)
    three.put_grid("middle", 3e-2, base="sgd")
    three.put("middle", "self-tuned", 1.6, base="sgd")
    found = holds(three)
    assert (found["long-mean"], found["long-worst"], found["near-long"]) == (True, True, False)
    assert (found["sgd-mean"], found["sgd-worst"]) == (False, False)


def test_level_within_one_standard_error() -> None:
    # Logarithms 0 and 0.2: mean 0.1, standard error 0.1.
    assert targets.is_level([1.0, math.exp(0.2 - 1e-9)])
    # Logarithms 0.01, 0.2: mean 0.105, standard error 0.095.
    assert not targets.is_level([math.exp(0.01), math.exp(0.2)])
    assert targets.is_level([0.99])
    assert not targets.is_level([1.01])


def test_fine_tuning_and_objectives(monkeypatch: pytest.MonkeyPatch, records: Runs) -> None:
    class Rewarded(Task):
        has_objective = True

    monkeypatch.setitem(TASKS, "rewarded", Rewarded)
    for task, ratio in (("fine-tuned-own", 1.5), ("fine-tuned-shifted", 0.9), ("rewarded", 1.9)):
        records.put_grid(task, 1e-4)
        records.put(task, "self-tuned", ratio)
        records.put(task, "prodigy", 1.2)
    lines = {line.name: line for line in targets.targets(records)}
    assert lines["fine-tuning-level"].measured == "1 of 2 tasks; behind on fine-tuned-own"
    assert lines["fine-tuning-level"].holds is False
    assert lines["fine-tuning-ahead"].holds is True  # 1.16 against 1.2
    assert lines["objective"].measured == "0.950"  # 1.9 over the 2 of a fixed 3e-3
    assert lines["objective"].holds is True


def test_variants_are_left_out(three: Runs) -> None:
    before = Results(three).overall(["low"], "self-tuned", ADAMW)
    three.put("low", "self-tuned", 9.0, variant="decay=0.5")
    assert Results(three).overall(["low"], "self-tuned", ADAMW) == before
