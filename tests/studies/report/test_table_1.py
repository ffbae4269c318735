"""Table 1: its rows, its winners, what stands for a run without a result; as CSV and LaTeX."""

import csv
import io
from collections.abc import Callable

import pytest

from annealtune.studies.records import Study
from annealtune.studies.report.table_1 import (
    ResultRow,
    escape_tex,
    result_rows,
    results_csv,
    results_table,
    results_tex,
    shown_measures,
    winners,
)
from annealtune.studies.report.tables import Table
from annealtune.studies.statistics import MEASURES, Measure, study_statistics

ACCURACY = Measure("last", "validation", "accuracy")
PAPER_LOSS = Measure("last", "validation", "paper_loss")


def rows_of(study: Study) -> list[ResultRow]:
    return result_rows(study, study_statistics(study))


def table_of(study: Study) -> Table:
    return results_table(study, rows_of(study), shown_measures(study, study_statistics(study)))


def tex_of(study: Study) -> str:
    return results_tex(study, rows_of(study), shown_measures(study, study_statistics(study)))


def bold_places(study: Study, measure: Measure) -> set[tuple[str, str]]:
    """The winners as method and seed, or method and kind of line."""
    rows = rows_of(study)
    return {
        (rows[i].method, str(rows[i].run.seed) if rows[i].run else rows[i].kind)
        for i, each in winners(rows)
        if each == measure
    }


def test_the_paper_s_winners(paper_study: Study) -> None:
    """Section 4: a lower loss for all seeds; for ResNet34 seeds 3, 4 and 6 are less accurate."""
    is_vgg = paper_study.experiment["model"] == "vgg16"
    ours = {("sgd-sa", str(seed)) for seed in range(10)} | {("sgd-sa", "best")}
    assert bold_places(paper_study, PAPER_LOSS) >= ours
    lost = set() if is_vgg else {"3", "4", "6"}
    expected = {("scheduled-sgd" if s in lost else "sgd-sa", s) for s in map(str, range(10))}
    assert {place for place in bold_places(paper_study, ACCURACY) if place[1].isdigit()} == expected
    assert ("sgd-sa", "best") in bold_places(paper_study, ACCURACY)


def test_nobody_wins_alone_or_where_all_are_equal(make_study: Callable[..., Study]) -> None:
    study = make_study(
        {
            "sgd": {0: {"accuracy": 0.9}, 1: {"accuracy": 0.7}},
            "adamw": {0: {"accuracy": 0.9}, 1: {"failure": "killed"}},
        }
    )
    assert bold_places(study, ACCURACY) == set()


def test_two_share_a_victory(make_study: Callable[..., Study]) -> None:
    study = make_study(
        {"a": {0: {"accuracy": 0.9}}, "b": {0: {"accuracy": 0.9}}, "c": {0: {"accuracy": 0.8}}},
        kinds=dict.fromkeys("abc", "sgd"),
    )
    shared = {(method, line) for method in "ab" for line in ("0", "mean", "best")}
    assert bold_places(study, ACCURACY) == shared


def test_a_mean_of_fewer_seeds_is_no_winner(make_study: Callable[..., Study]) -> None:
    study = make_study(
        {
            "sgd": {0: {"accuracy": 0.9}, 1: {"failure": "the hard seed"}},
            "adamw": {0: {"accuracy": 0.95}, 1: {"accuracy": 0.5}},
        }
    )
    assert bold_places(study, ACCURACY) == {("adamw", "0")}


def test_the_rows_of_the_table(three_methods: Study) -> None:
    kinds = [row.kind for row in rows_of(three_methods)]
    assert kinds == ["run"] * 9 + ["mean"] * 3 + ["deviation"] * 3 + ["best"] * 3
    table = table_of(three_methods)
    assert table.columns[:2] == ("method", "seed")
    assert sum(width for _, width in table.groups) == len(table.columns)
    assert [title for title, _ in table.groups[1:]] == [
        "last epoch, validation set",
        "best epoch, validation set",
        "best epoch, test set",
    ]
    assert [cell.text for cell in table.rows[0][:3]] == ["sgd-sa", "0", "90.00 %"]
    assert all(len(row) == len(table.columns) for row in (*table.rows, *table.summary))


def test_where_the_test_set_validates_its_numbers_stand_once(paper_study: Study) -> None:
    table = table_of(paper_study)
    titles = [title for title, _ in table.groups[1:]]
    assert titles == ["last epoch, test set", "best epoch, test set"]
    assert len(table.columns) == 2 + 6


def test_a_crashed_run_is_a_row_that_says_so(make_study: Callable[..., Study]) -> None:
    study = make_study({"sgd": {0: {}, 1: {"failure": "out of memory", "done": 1}, 2: None}})
    _, failed, missing = table_of(study).rows
    assert (failed[2].text, failed[2].span) == ("failed: out of memory", 6)
    assert missing[2].text == "not begun"


def test_a_study_without_results_has_a_table_of_states(make_study: Callable[..., Study]) -> None:
    table = table_of(make_study({"sgd": {0: None, 1: {"done": 2}}}))
    assert table.columns == ("method", "seed", "state")
    assert [row[2].text for row in table.rows] == [
        "not begun",
        "not finished: begun, 2 of 4 epochs",
    ]
    assert table.summary == ()


def test_the_csv_has_all_digits_and_no_time(three_methods: Study) -> None:
    rows = list(csv.DictReader(io.StringIO(results_csv(rows_of(three_methods)))))
    assert len(rows) == 9 + 3 * 3
    assert [name for name in rows[0] if "seconds" in name or "time" in name] == []
    first = rows[0]
    told = [first[key] for key in ("row", "method", "seed", "status")]
    assert told == ["run", "sgd-sa", "0", "finished"]
    assert float(first["last_validation_loss"]) == 0.3
    assert (first["best_epoch"], first["forwards"], first["backwards"]) == ("3", "40", "20")
    mean = next(row for row in rows if row["row"] == "mean" and row["method"] == "sgd-sa")
    assert float(mean["last_validation_accuracy"]) == pytest.approx(0.91)
    assert list(first)[8:] == [measure.key for measure in MEASURES]


def test_the_csv_keeps_odd_names_and_reasons(make_study: Callable[..., Study]) -> None:
    reason = 'line one\nline two, with "quotes"'
    study = make_study({'a,"b"\n': {0: {"failure": reason}}}, kinds={'a,"b"\n': "sgd"})
    row = next(csv.DictReader(io.StringIO(results_csv(rows_of(study)))))
    told = (row["method"], row["reason"], row["status"])
    assert told == ('a,"b"\n', study.runs[0].reason, "failed")


def test_the_tex_is_a_whole_table(paper_study: Study) -> None:
    text = tex_of(paper_study)
    body = [line for line in text.splitlines() if line.endswith(r"\\") and "multi" not in line]
    assert {line.count("&") for line in body} == {6}  # method, seed, five numbers
    assert len(body) == 1 + 20 + 3 * 2
    for rule in (r"\toprule", r"\bottomrule", r"\begin{tabular}{llrrrrr}", r"\end{tabular}"):
        assert text.count(rule) == 1
    assert text.count("{") == text.count("}")
    best = next(line for line in body if line.startswith("sgd-sa & best"))
    is_vgg = paper_study.experiment["model"] == "vgg16"
    assert (r"\textbf{86.76 \%}" if is_vgg else r"\textbf{84.11 \%}") in best
    assert (r"\textbf{0.001084}" if is_vgg else r"\textbf{0.001231}") in best


def test_the_tex_of_a_study_without_results(make_study: Callable[..., Study]) -> None:
    text = tex_of(make_study({"sgd": {0: None}}, command="a 100% command\n\\evil"))
    assert r"sgd & 0 & not begun \\" in text
    assert text.splitlines()[0] == r"% a 100% command \evil"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("50% & $5 #1 {x_y}", r"50\% \& \$5 \#1 \{x\_y\}"),
        ("a\\b ~^", r"a\textbackslash{}b \textasciitilde{}\textasciicircum{}"),
        ("<script>", r"\textless{}script\textgreater{}"),
        ("two\nlines\t\x00here", "two lines here"),
    ],
)
def test_names_are_escaped_for_tex(text: str, escaped: str) -> None:
    assert escape_tex(text) == escaped
