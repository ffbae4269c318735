"""The methods side by side: what they reached, how they differ, what they cost."""

import re
from collections.abc import Callable

from annealtune.studies.records import Study
from annealtune.studies.report.tables import (
    comparison_table,
    cost_table,
    difference_table,
)
from annealtune.studies.statistics import Measure, statistics_of

ACCURACY = Measure("last", "validation", "accuracy")


def test_a_comparison_names_the_better_one_first(three_methods: Study) -> None:
    table = comparison_table(statistics_of(three_methods, Measure("last", "validation", "loss")))
    first = [cell.text for cell in table.rows[0]]
    assert first[:3] == ["sgd-sa", "scheduled-sgd", "\N{MINUS SIGN}0.1300"]  # 0.29 - 0.42
    assert re.fullmatch(r"\S0\.\d{4} to \S0\.\d{4}", first[3])
    assert first[4:] == ["3, 0, 0", "0.25", "0.75"]
    assert [row[0].text for row in table.rows] == ["sgd-sa", "sgd-sa", "scheduled-sgd"]


def test_what_cannot_be_compared_is_not_available(make_study: Callable[..., Study]) -> None:
    study = make_study({"sgd": {0: {}, 1: None}, "adamw": {0: None, 1: {}}})
    [row] = comparison_table(statistics_of(study, ACCURACY)).rows
    texts = [cell.text for cell in row]
    assert texts[2:] == ["n/a", "n/a", "0, 0, 0 (2 unpaired)", "n/a", "n/a"]


def test_costs_by_hand(make_study: Callable[..., Study]) -> None:
    """Per step: SGD-SA two forwards and a backward, 4 units; SGD 3; four epochs of five steps."""
    study = make_study(
        {"sgd-sa": {0: {}, 1: {"failure": "x"}}, "sgd": {0: {}, 1: {}}, "ssa": {0: None}}
    )
    texts = [[cell.text for cell in row] for row in cost_table(study).rows]
    assert texts == [
        ["sgd-sa", "40", "20", "80", "2.0 s"],
        ["sgd", "20", "20", "60", "2.0 s"],
        ["ssa", "n/a", "n/a", "n/a", "n/a"],
    ]


def test_options_that_differ_or_are_missing() -> None:
    table = difference_table({"a": {"x": 1, "y": 2, "z": 3}, "b": {"x": 1, "y": 5}})
    assert table is not None
    assert table.columns == ("option", "a", "b")
    assert [[cell.text for cell in row] for row in table.rows] == [["y", "2", "5"], ["z", "3", "–"]]
    assert difference_table({"a": {"x": 1}, "b": {"x": 1}}) is None
