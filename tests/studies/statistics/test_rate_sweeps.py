"""Which methods are one method at several rates, and which rate a run found."""

from collections.abc import Callable
from typing import Any

import pytest

from annealtune.studies.records import Study
from annealtune.studies.statistics.rate_sweeps import rate_found, sweeps_of, untuned


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


def test_who_tunes_nothing(make_study: Callable[..., Study]) -> None:
    kinds = {"mine": "sgd-sa", "plain": "scheduled-sgd"}
    study = make_study(
        {m: {0: None} for m in ("mine", "plain", "self-tuned", "adamw")}, kinds=kinds
    )
    assert untuned(study) == ["plain", "adamw"]
