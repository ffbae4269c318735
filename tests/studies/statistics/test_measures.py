"""What a run is judged by, how it is shown, and which learning rate it had."""

from collections.abc import Callable
from typing import Any

import pytest

from annealtune.studies.records import Study
from annealtune.studies.statistics.measures import (
    MEASURES,
    Measure,
    main_measure,
    rate_found,
    score,
    sweeps_of,
)
from annealtune.studies.statistics.summaries import statistics_of

ACCURACY = Measure("last", "validation", "accuracy")
LOSS = Measure("last", "validation", "loss")
PAPER_LOSS = Measure("last", "validation", "paper_loss")


def test_every_measure_is_read_from_its_place(three_methods: Study) -> None:
    run = three_methods.of("sgd-sa")[1]
    scores = {measure.key: score(run, measure) for measure in MEASURES}
    assert scores == {
        "last_validation_accuracy": pytest.approx(0.91),
        "last_validation_loss": pytest.approx(0.29),
        "last_validation_paper_loss": pytest.approx(0.029),
        "best_validation_accuracy": pytest.approx(0.92),
        "best_validation_loss": pytest.approx(0.19),
        "best_validation_paper_loss": pytest.approx(0.019),
        "last_test_accuracy": None,
        "last_test_loss": None,
        "best_test_accuracy": pytest.approx(0.89),
        "best_test_loss": pytest.approx(0.34),
    }


def test_the_test_score_of_the_last_epoch_is_known_where_the_test_set_validates(
    make_study: Callable[..., Study],
) -> None:
    study = make_study({"sgd": {0: {"accuracy": 0.5}}}, experiment={"validate_on": "test"})
    assert score(study.runs[0], Measure("last", "test", "accuracy")) == 0.5
    assert main_measure(study) == ACCURACY


def test_the_test_set_ranks_where_it_chose_nothing(three_methods: Study) -> None:
    assert main_measure(three_methods) == Measure("best", "test", "accuracy")


def test_a_missing_metric_is_no_number(make_study: Callable[..., Study]) -> None:
    study = make_study(
        {
            "sgd": {
                0: {"loss": None},
                1: {"loss": 0.5, "result": {"test_accuracy": None, "test_loss": None}},
                2: {"loss": 0.25, "metric": {"validation_paper_loss": None}},
            }
        }
    )
    assert statistics_of(study, LOSS).summaries[0].n == 2
    assert statistics_of(study, LOSS).summaries[0].mean == 0.375
    assert statistics_of(study, PAPER_LOSS).summaries[0].n == 1
    assert statistics_of(study, Measure("best", "test", "accuracy")).summaries[0].n == 2
    assert statistics_of(study, Measure("best", "test", "loss")).summaries[0].n == 1


@pytest.mark.parametrize(
    ("measure", "value", "text", "difference"),
    [
        (ACCURACY, 0.8676, "86.76 %", "+86.76 points"),
        (ACCURACY, -0.00001, "0.00 %", "0.00 points"),
        (ACCURACY, -0.0123, "\N{MINUS SIGN}1.23 %", "\N{MINUS SIGN}1.23 points"),
        (LOSS, 0.56789, "0.5679", "+0.5679"),
        (LOSS, 0.00001234, "1.23e\N{MINUS SIGN}05", "+1.23e\N{MINUS SIGN}05"),
        (LOSS, 3.5e9, "3.50e+09", "+3.50e+09"),
        (LOSS, 0.0, "0.0000", "0.0000"),
        (PAPER_LOSS, 0.001084, "0.001084", "+0.001084"),
        (PAPER_LOSS, None, "n/a", "n/a"),
    ],
)
def test_numbers_as_they_are_shown(
    measure: Measure, value: float | None, text: str, difference: str
) -> None:
    assert measure.text(value) == text
    assert measure.difference(value) == difference


# --- one method at several rates ---


def study_of(make_study: Callable[..., Study], configs: dict[str, dict[str, Any]]) -> Study:
    methods = [{"label": label, "config": config} for label, config in configs.items()]
    return make_study({label: {0: None} for label in configs}, methods=methods)


def config(method: str, lr: Any, **options: Any) -> dict[str, Any]:
    return {"method": method, "epochs": 3, method: {"lr": lr, **options}}


def test_kinds_at_three_or_more_rates(make_study: Callable[..., Study]) -> None:
    study = study_of(
        make_study,
        {
            "b": config("adamw", 0.1),
            "a": config("adamw", 0.001),
            "s1": config("sgd", 1),
            "c": config("adamw", 0.01),
            "s2": config("sgd", 2.0),
            "s3": config("sgd", 3.0),
            "d": config("adamw", 1.0),
            "other": config("adamw", 1.0, weight_decay=0.5),
            "h": config("sgd-sa", [0.1, 0.2, 0.3]),
        },
    )
    first, second = sweeps_of(study)
    assert (first.kind, list(first.labels.items())) == (
        "adamw",
        [(0.001, "a"), (0.01, "c"), (0.1, "b"), (1.0, "d")],
    )
    assert (second.kind, list(second.labels)) == ("sgd", [1.0, 2.0, 3.0])


def test_two_rates_are_no_sweep(make_study: Callable[..., Study]) -> None:
    assert sweeps_of(study_of(make_study, {"a": config("sgd", 0.1), "b": config("sgd", 1.0)})) == []


def test_the_rate_of_the_last_race(make_study: Callable[..., Study]) -> None:
    races = [{"rate": 0.3}, {"rate": 0.1}]
    run = {"metric": {"races": races, "rate": 1e-9}}
    study = make_study({"self-tuned": {0: run}, "sgd": {0: {}}})
    assert [rate_found(run) for run in study.runs] == [pytest.approx(0.1), None]
