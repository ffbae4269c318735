"""The benchmark of final quality: what is counted, kept, chosen, ranked and shown."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.quality import __main__ as command
from benchmarks.quality import records
from benchmarks.quality.methods import METHODS, RETIRED
from benchmarks.quality.own_peers import SAM, StochasticLineSearch
from benchmarks.quality.page import markdown, render
from benchmarks.quality.plan import Selection, chosen_rate, final_runs, missing, searches
from benchmarks.quality.run import Meter, Spec, planned_steps, reserve, run
from benchmarks.quality.summaries import (
    mean_ranks,
    paired_difference,
    ranks,
    reference_of,
    summarize,
    t_interval,
)
from benchmarks.quality.tasks import TASKS

ROOT = Path(__file__).parents[2]


def record(task="digits", method="self-tuned-sgd", seed=0, metric=90.0, **changes):
    """A record as `run` returns it."""
    score = {"metric": metric, "loss": 0.5}
    return {
        "task": task,
        "method": method,
        "seed": seed,
        "variant": "",
        "scale": 1.0,
        "is_search": False,
        "status": "finished",
        "reason": "",
        "options": {},
        "versions": {"torch": "2"},
        "budget": 300,
        "steps_planned": 100,
        "steps": 100,
        "cost": 300,
        "validation": score,
        "test": score,
        "seconds": 1.0,
    } | changes


def failed(method, seed=0, task="digits", reason="the training loss is nan at step 3"):
    kept = record(task, method, seed, status="failed", reason=reason)
    return {name: kept[name] for name in kept if name not in ("validation", "test")}


def search(lr, validation, loss=0.5, method="sgd-cosine", task="digits", **changes):
    score = {"metric": validation, "loss": loss}
    options = {"lr": lr}
    found = record(task, method, validation=score, options=options, is_search=True)
    return found | changes


# --- The budget ---


@pytest.mark.parametrize(
    ("method", "steps"),
    [("sgd-cosine", 100), ("paper-text", 75), ("paper-code", 60), ("sam", 50), ("self-tuned", 89)],
)
def test_a_dearer_step_gives_fewer_steps(method, steps):
    assert planned_steps(METHODS[method], 300) == steps


def test_batch_norm_is_recalibrated_from_the_budget():
    fashion, digits = TASKS["fashion-mnist"], TASKS["digits"]
    averaged, plain = METHODS["schedule-free-sgd"], METHODS["sgd-cosine"]
    assert reserve(fashion, averaged, 3000, 109) == 50
    assert reserve(fashion, averaged, 3000, 31) == 31  # no minibatch twice
    assert reserve(fashion, averaged, 100, 109) == 5
    assert reserve(fashion, plain, 3000, 109) == reserve(digits, averaged, 3000, 35) == 0


def test_the_meter_counts_forwards_backwards_and_probes():
    weight = torch.ones(1, requires_grad=True)
    meter, ablation = Meter(), Meter(probes_are_free=True)
    for each in (meter, ablation):
        closure = each.watch(lambda: weight.square().sum())
        closure().backward()
        closure()
        with torch.no_grad():
            closure()
        assert list(each.watch_loader([1, 2])) == [1, 2]
    assert meter.cost == 2 + 2 * 1 + 1 + 2
    assert ablation.cost == meter.cost - 1


@pytest.mark.parametrize("method", ["sgd-cosine", "line-search", "sam", "paper-text", "paper-code"])
def test_no_run_spends_more_than_the_budget(method):
    done = run(Spec("cancer", method, seed=1, scale=0.05, lr=0.05))
    assert done["status"] == "finished", done["reason"]
    assert done["budget"] == 3 * round(0.05 * 30 * 21)  # 341 rows are 21 minibatches of 16
    per_step = METHODS[method].step_cost
    assert done["budget"] - per_step - 1 < done["cost"] <= done["budget"]
    assert done["test"]["metric"] > 60


def test_one_seed_gives_one_result():
    first, again, other = (run(Spec("cancer", "sgd-cosine", s, "", 0.05, 0.1)) for s in (3, 3, 4))
    assert first["test"] == again["test"] != other["test"]


def test_variants_change_what_they_say():
    plain, faster, longer, louder = (
        run(Spec("cancer", "sgd-cosine", 0, variant, 0.02, 0.01))
        for variant in ("", "base-lr=10", "length=2", "loss=10")
    )
    assert faster["options"] == {"lr": pytest.approx(0.1)}
    assert (plain["steps"], longer["steps"]) == (13, 25)  # 12.6 and 25.2, each rounded
    # For SGD a tenfold loss is a tenfold rate.
    assert louder["test"]["loss"] == pytest.approx(faster["test"]["loss"], rel=1e-4)


# --- Peers of our own making, on functions whose answer is known ---


def test_sam_takes_the_gradient_up_the_slope():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 2.0)
    sam = SAM(model, torch.optim.SGD(model.parameters(), lr=0.1), rho=0.5)
    loss = sam.step(lambda: model.weight.square().sum())
    assert float(loss) == 4.0
    assert model.weight.item() == pytest.approx(2.0 - 0.1 * 2 * (2.0 + 0.5))


def test_the_line_search_shortens_its_step_until_it_is_enough():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    line_search = StochasticLineSearch(model, 10**9, forwards_left=lambda: 100)
    line_search.step(lambda: model.weight.square().sum())
    # (1 - 2 rate)^2 <= 1 - 0.4 rate holds from rate = 0.9 on, the second try.
    assert line_search.rate == pytest.approx(0.9)
    assert model.weight.item() == pytest.approx(1 - 2 * 0.9)


def test_a_line_search_that_cannot_pay_a_try_hardly_moves():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    StochasticLineSearch(model, 10, lambda: 0).step(lambda: model.weight.square().sum())
    assert model.weight.item() == pytest.approx(1 - 2e-6)


# --- The file ---


def test_a_torn_last_line_is_left_out_and_overwritten(tmp_path):
    path = tmp_path / "new" / "runs.jsonl"
    for seed in range(2):
        records.append(path, record(seed=seed))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert [r["seed"] for r in records.read(path)] == [0]
    records.append(path, record(seed=1))
    assert path.read_bytes() == whole


def test_damage_elsewhere_is_said(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"task": "dig\n' + json.dumps(record()) + "\n")
    with pytest.raises(records.RecordsError, match="line 1 is no record"):
        records.read(path)


def test_a_record_of_nan_cannot_be_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        records.append(tmp_path / "runs.jsonl", record(metric=math.nan))
    assert records.read(tmp_path / "runs.jsonl") == []


def test_started_again_only_what_is_missing_runs(tmp_path, monkeypatch, capsys):
    path = tmp_path / "runs.jsonl"
    made = []

    def fake(specs, *, jobs, text):
        for spec in specs:
            made.append(spec)
            score = {"metric": 50 + math.log10(spec.lr or 1), "loss": 0.1}
            parts = {"validation": score} | ({} if spec.is_search else {"test": score})
            options = {} if spec.lr is None else {"lr": spec.lr}
            changes = {"options": options, "is_search": spec.is_search, **parts}
            yield record(spec.task, spec.method, spec.seed, **changes)

    monkeypatch.setattr(command, "run_all", fake)
    arguments = [
        "--tasks",
        "digits",
        "--methods",
        "self-tuned-sgd,sgd-cosine",
        "--records",
        str(path),
    ]
    command.main([*arguments, "--seeds", "0-1"])
    assert len(made) == 7 + 2 + 2
    assert {spec.lr for spec in made if spec.method == "sgd-cosine" and not spec.is_search} == {1.0}
    assert capsys.readouterr().out.count("\n") == 11
    made.clear()
    command.main([*arguments, "--seeds", "0-2"])
    assert [(s.method, s.seed) for s in made] == [("self-tuned-sgd", 2), ("sgd-cosine", 2)]


def test_a_method_that_crashes_or_diverges_is_a_record(monkeypatch):
    def crash(setup):
        raise ZeroDivisionError("no good")

    crashing = dataclasses.replace(METHODS["sgd-cosine"], start=crash)
    monkeypatch.setitem(METHODS, "sgd-cosine", crashing)
    crashed = run(Spec("cancer", "sgd-cosine", 0, scale=0.01, lr=0.1))
    assert (crashed["status"], crashed["reason"]) == ("failed", "ZeroDivisionError: no good")
    diverged = run(Spec("cancer", "adamw-cosine", 0, "loss=1e40", 0.05, lr=0.1))
    assert diverged["status"] == "failed"
    assert "training loss is inf" in diverged["reason"]
    assert "test" not in diverged
    json.dumps([crashed, diverged], allow_nan=False)


# --- The rate of a reference ---


def test_the_rate_is_chosen_on_the_validation_part_alone():
    better_on_test = {"test": {"metric": 99.0, "loss": 0.0}}
    known = [
        search(0.1, 90.0),
        search(0.01, 80.0, **better_on_test),
        search(1.0, 90.0, loss=0.4),  # level, with the lower loss
        search(0.3, 99.0, scale=0.1),
        search(0.3, 99.0, variant="length=10"),
        search(0.3, 99.0, task="cancer"),
        search(0.3, 99.0, method="adamw-cosine"),
        search(0.5, 99.0, status="failed"),
        record(method="sgd-cosine", metric=99.0, options={"lr": 0.7}),
    ]
    assert chosen_rate(known, "digits", "sgd-cosine") == 1.0
    assert chosen_rate(known, "friedman", "sgd-cosine") is None


def test_of_losses_the_lowest_is_chosen():
    known = [search(lr, value, task="shakespeare") for lr, value in ((0.1, 2.0), (1.0, 3.0))]
    assert chosen_rate(known, "shakespeare", "sgd-cosine") == 0.1


def test_a_search_never_sees_the_test_part():
    done = run(Spec("cancer", "sgd-cosine", 0, scale=0.02, lr=0.1, is_search=True))
    assert "validation" in done
    assert "test" not in done


def test_references_wait_for_their_rate():
    selection = Selection(["digits"], ["self-tuned-sgd", "sgd-cosine"], [0, 1])
    assert [spec.lr for spec in searches(selection)] == list(METHODS["sgd-cosine"].rates)
    assert {spec.method for spec in final_runs(selection, [])} == {"self-tuned-sgd"}
    known = [search(0.1, 90.0), record(seed=1)]
    left = missing(final_runs(selection, known), known)
    assert [(s.method, s.seed, s.lr) for s in left] == [
        ("self-tuned-sgd", 0, None),
        ("sgd-cosine", 0, 0.1),
        ("sgd-cosine", 1, 0.1),
    ]


def test_long_runs_keep_the_rate_unless_it_is_chosen_anew():
    long = Selection(["digits"], ["sgd-cosine"], [0], ["length=10"])
    again = dataclasses.replace(long, retunes=True)
    assert {spec.variant for spec in searches(long)} == {""}
    assert {spec.variant for spec in searches(again)} == {"length=10"}
    known = [search(0.1, 90.0), search(0.3, 90.0, variant="length=10")]
    assert [spec.lr for spec in final_runs(long, known)] == [0.1]
    assert [spec.lr for spec in final_runs(again, known)] == [0.3]


# --- Statistics ---


def test_intervals():
    # Student's quantile for four degrees of freedom is 2.776.
    mean, low, high = t_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (mean, low) == (3.0, pytest.approx(3 - 2.776 * math.sqrt(2.5 / 5), abs=1e-3))
    assert high == pytest.approx(6 - low)
    assert t_interval([7.0]) == (7.0, None, None)
    assert t_interval([]) is None
    assert paired_difference({0: 5.0, 1: 6.0, 2: 0.0}, {0: 4.0, 1: 3.0, 9: 1.0}).mean == 2.0


def test_ranks_put_failures_last_and_share_ties():
    known = [
        record(method="self-tuned-sgd", metric=80.0),
        record(method="self-tuned", metric=90.0),
        record(method="prodigy", metric=80.0),
        record(method="dog", metric=99.0, seed=0),
        failed("dog", seed=1),
        failed("sam", seed=0),
        failed("sam", seed=1),
    ]
    by_task = ranks(summarize(known))
    assert {method: places["digits"] for method, places in by_task.items()} == {
        "self-tuned": 1,
        "self-tuned-sgd": 2.5,
        "prodigy": 2.5,
        "dog": 4,
        "sam": 5,
    }


def test_mean_rank_is_over_all_tasks_and_lower_losses_are_better():
    known = [
        record(method="self-tuned-sgd", metric=90.0),
        record(method="self-tuned", metric=80.0),
        record(method="dog", metric=85.0),
        record("shakespeare", "self-tuned-sgd", metric=2.0),
        record("shakespeare", "self-tuned", metric=3.0),
        record(method="self-tuned", metric=99.0, variant="loss=10"),
    ]
    assert mean_ranks(summarize(known)) == {
        "self-tuned-sgd": 1.0,
        "self-tuned": 2.0,
    }  # dog lacks a task


def test_the_reference_is_the_better_one_on_validation():
    known = [
        record(method="sgd-cosine", validation={"metric": 90.0, "loss": 0.1}, metric=70.0),
        record(method="adamw-cosine", validation={"metric": 80.0, "loss": 0.1}, metric=99.0),
    ]
    assert reference_of(summarize(known), "digits").method == "sgd-cosine"


def test_of_a_run_made_again_the_last_counts():
    (summary,) = summarize([record(metric=1.0), record(metric=2.0)])
    assert summary.scores == {0: 2.0}


# --- What is shown ---


@pytest.fixture
def shown():
    return [
        record(method="sgd-cosine", metric=95.0, seed=0, options={"lr": 0.1}),
        record(method="sgd-cosine", metric=96.0, seed=1, options={"lr": 0.1}),
        search(0.1, 95.0, cost=123_456),
        record(metric=96.5, seed=0, probe_share=0.25, variant=""),
        record(metric=97.0, seed=1, probe_share=0.25),
        record(metric=33.25, seed=0, variant="loss=1000"),
        record(metric=44.25, seed=0, variant="length=10"),
        failed("sam", reason="<b>loss</b> is nan"),
        record(method="dog", metric=11.0, scale=0.1),
    ]


def test_the_page_shows_numbers_and_failures(shown):
    page = render(shown)
    for text in ("96.75", "+1.25", "123,456", "25 %", "33.25", "44.25", "--tasks digits"):
        assert text in page, text
    assert "&lt;b&gt;loss&lt;/b&gt; is nan" in page
    assert "<dt>dog</dt>" not in page  # of another scale
    assert len(page) < 1_000_000


def test_the_page_loads_nothing(shown):
    page = render(shown)
    assert "<script" not in page
    assert "url(" not in page
    assert 'href="http' not in page
    assert " src=" not in page


def test_a_page_of_failures_alone_and_of_nothing_can_be_made():
    assert "no good" in render([failed("sam", reason="no good")])
    assert "no finished run" in render([])


def test_the_markdown_table(shown):
    head, _, first, second, last = markdown(shown).splitlines()
    assert head == "| method | digits (accuracy) | mean rank |"
    assert first == "| self-tuned-sgd | 96.75 ± 0.35 | 1.0 |"
    assert second == "| sgd-cosine | 95.50 ± 0.71 | 2.0 |"
    assert last == "| sam | (1 of 1 failed) | 3.0 |"


def test_the_commands_name_the_seeds(shown):
    assert "--seeds 0-1" in render(shown)
    assert "--seeds" not in render([record(seed=seed) for seed in range(5)])


def test_only_what_has_a_rate_can_be_given_another(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(command, "run_all", lambda specs, **_: asked.extend(specs) or [])
    arguments = ["--tasks", "digits", "--seeds", "0", "--records", str(tmp_path / "runs.jsonl")]
    factors = ["--base-lr-factor", "0.1", "--loss-factor", "10"]
    command.main([*arguments, *factors])
    assert {(spec.method, spec.variant) for spec in asked} == {
        ("self-tuned", "base-lr=0.1"),
        ("self-tuned", "loss=10"),
        ("self-tuned-anytime", "base-lr=0.1"),
        ("self-tuned-anytime", "loss=10"),
        ("self-tuned-sgd", "loss=10"),
    }
    with pytest.raises(SystemExit, match="self-tuned-sgd is given no learning rate"):
        command.main([*arguments, *factors, "--methods", "self-tuned-sgd"])


def test_records_of_version_0_1_are_shown_under_their_old_names():
    committed = records.read(ROOT / "docs" / "results" / "quality.jsonl")
    known = {r["method"] for r in committed}
    assert {"adamw-sa", "sgd-sa", "adamw-sa-anytime"} <= known
    assert {s.method for s in summarize(committed)} >= set(RETIRED)
    assert "EmbeddedTuner over AdamW, default (0.1)" in render(committed)
    with pytest.raises(SystemExit):
        command.main(["--methods", "adamw-sa"])  # but cannot be run


def test_a_name_that_is_unknown_is_said(capsys):
    with pytest.raises(SystemExit):
        command.main(["--methods", "adam"])
    assert "unknown adam; there are self-tuned" in capsys.readouterr().err
