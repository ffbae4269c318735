"""The answer in words: who won, by how much, how sure, and what to keep in mind."""

from collections.abc import Callable
from typing import Any

import pytest

from annealtune.studies.records import Study
from annealtune.studies.report.findings import Finding, findings
from annealtune.studies.statistics.summaries import study_statistics


def answers(study: Study) -> list[Finding]:
    return findings(study, study_statistics(study))


def text_of(found: list[Finding], kind: str = "answer") -> str:
    return " ".join(finding.text for finding in found if finding.kind == kind)


def test_the_answer_of_the_paper_s_table(paper_study: Study) -> None:
    found = answers(paper_study)
    lead = found[0].text
    if paper_study.experiment["model"] == "vgg16":
        # means 86.161 and 85.113
        assert lead == (
            "sgd-sa came first with 86.16 % validation accuracy on average over 10 seeds, "
            "1.05 points above scheduled-sgd; the difference is significant."
        )
        assert "won 10, lost 0 and tied 0 of 10" in found[1].text
        assert "p = 0.0020" in found[1].text
    else:
        assert lead.endswith("the difference is not significant.")
        assert "won 7, lost 3 and tied 0 of 10" in text_of(found)
    assert "lower validation loss than scheduled-sgd for 10 of 10 seeds" in text_of(found)
    assert "The validation set of this study is the test set" in text_of(found, "note")
    assert text_of(found, "warning") == ""


def test_few_seeds_cannot_show_anything(three_methods: Study) -> None:
    found = answers(three_methods)
    assert found[0].text == (
        "sgd-sa came first with 89.00 % test accuracy on average over 3 seeds, 3.00 points above "
        "scheduled-sgd; the difference is not significant."
    )
    assert "With 3 seeds it could not be less than 0.25" in found[1].text
    assert "No difference between any other two methods is significant." in text_of(found)
    assert "narrower than it should be" in text_of(found, "note")
    assert "test set, as in the paper" not in text_of(found, "note")


def test_other_significant_differences_are_named(make_study: Callable[..., Study]) -> None:
    seeds = range(8)
    study = make_study(
        {
            "a": {s: {"accuracy": 0.90 + 0.001 * s} for s in seeds},
            "b": {s: {"accuracy": 0.90 + 0.001 * (7 - s)} for s in seeds},
            "c": {s: {"accuracy": 0.50} for s in seeds},
        },
        kinds=dict.fromkeys("abc", "sgd"),
    )
    found = answers(study)
    assert found[0].text.startswith("a and b reached the same: 88.35 % test accuracy")
    assert "Other significant differences: a over c; b over c." in text_of(found)


def test_one_method_has_nothing_to_be_compared_with(make_study: Callable[..., Study]) -> None:
    found = answers(make_study({"sgd": {0: {}}}))
    assert found[0].text == (
        "sgd reached 88.00 % test accuracy of its one seed. There is no other method to compare "
        "it with."
    )


def test_different_seeds_are_said(make_study: Callable[..., Study]) -> None:
    study = make_study(
        {
            "sgd": {0: {"accuracy": 0.90}, 1: {"failure": "killed"}},
            "adamw": {0: {"accuracy": 0.95}, 1: {"accuracy": 0.50}},
        }
    )
    found = answers(study)
    assert found[0].text.startswith("adamw came first")
    assert "Not all methods finished the same seeds" in text_of(found, "note")
    assert text_of(found, "warning") == "3 of 4 runs finished: 1 failed."


def test_methods_without_a_common_seed(make_study: Callable[..., Study]) -> None:
    study = make_study({"sgd": {0: {}, 1: None}, "adamw": {0: None, 1: {}}})
    assert "no seed in common" in answers(study)[0].text


@pytest.mark.parametrize(
    ("experiment", "said"),
    [
        ({"data": "fashion-mnist", "model": "vgg16-w16"}, "from 28×28 to 32×32"),
        ({"data": "digits", "model": "mlp", "pad": 16}, "from 8×8 to 16×16"),
        ({"data": "digits", "model": "vgg16", "pad": 0}, None),  # too small: no run could start
        ({"data": "cifar10", "model": "vgg16"}, None),
        ({"data": "fashion-mnist", "model": "small-cnn"}, None),
        ({"data": "image-folder", "model": "vgg16", "image_size": [30, 64]}, "30×64 to 32×64"),
        ({"data": "my.data:make", "model": "vgg16"}, "no multiple of 32"),
        ({"data": "my.data:make", "model": "my.model:make"}, None),
    ],
)
def test_padding_is_said(
    make_study: Callable[..., Study], experiment: dict[str, Any], said: str | None
) -> None:
    notes = text_of(answers(make_study({"sgd": {0: {}}}, experiment=experiment)), "note")
    assert (said in notes) if said else ("padded" not in notes)


def test_the_paper_s_claim_is_about_simulated_annealing_alone(
    make_study: Callable[..., Study],
) -> None:
    study = make_study(
        {"sgd-sa": {0: {}, 1: {}}, "tabu": {0: {}, 1: {}}, "scheduled-sgd": {0: {}, 1: {}}},
        kinds={"tabu": "sgd-sa"},
        name="small-cifar10-vgg16",
    )
    study.configs["tabu"] = {"method": "sgd-sa", "sgd-sa": {"strategy": "tabu"}}
    said = text_of(answers(study))
    assert "sgd-sa had a lower validation loss" in said
    assert "tabu had" not in said


def test_only_the_paper_s_own_studies_speak_of_it(three_methods: Study) -> None:
    assert not any("paper" in finding.text for finding in answers(three_methods))


def test_runs_with_losses_alone(make_study: Callable[..., Study]) -> None:
    """The test loss is 0.05 above that of the last epoch; lower is better."""
    study = make_study(
        {
            "sgd": {s: {"accuracy": None, "loss": 0.5} for s in range(2)},
            "adamw": {s: {"accuracy": None, "loss": 0.2 + 0.1 * s} for s in range(2)},
        }
    )
    assert answers(study)[0].text == (
        "adamw came first with 0.3000 test loss on average over 2 seeds, 0.2500 below sgd; the "
        "difference is not significant."
    )
