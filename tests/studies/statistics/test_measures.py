"""What a run is judged by, and how it is shown."""

from collections.abc import Callable

import pytest

from annealtune.studies.records import Study
from annealtune.studies.statistics.measures import MEASURES, Measure, main_measure, score
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
