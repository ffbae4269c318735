"""Table 1 as CSV and LaTeX."""

import csv
import io
from collections.abc import Callable

import pytest

from annealtune.studies.records import Study
from annealtune.studies.report.table_1 import (
    ResultRow,
    result_rows,
    shown_measures,
)
from annealtune.studies.report.table_files import escape_tex, results_csv, results_tex
from annealtune.studies.statistics.measures import MEASURES
from annealtune.studies.statistics.summaries import study_statistics


def rows_of(study: Study) -> list[ResultRow]:
    return result_rows(study, study_statistics(study))


def tex_of(study: Study) -> str:
    statistics = study_statistics(study)
    return results_tex(study, result_rows(study, statistics), shown_measures(study, statistics))


def test_the_csv_has_all_digits_and_no_time(three_methods: Study) -> None:
    text = results_csv(rows_of(three_methods))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 9 + 4 * 3
    assert [name for name in rows[0] if "seconds" in name or "time" in name] == []
    first = rows[0]
    assert (first["row"], first["method"], first["seed"], first["status"]) == (
        "run",
        "sgd-sa",
        "0",
        "finished",
    )
    assert float(first["last_validation_loss"]) == 0.3
    assert (first["best_epoch"], first["forwards"], first["backwards"]) == ("3", "40", "20")
    assert first["last_test_accuracy"] == ""
    mean = next(row for row in rows if row["row"] == "mean" and row["method"] == "sgd-sa")
    assert float(mean["last_validation_accuracy"]) == pytest.approx(0.91)
    assert list(first)[8:] == [measure.key for measure in MEASURES]


def test_the_csv_keeps_odd_names_and_reasons(make_study: Callable[..., Study]) -> None:
    reason = 'line one\nline two, with "quotes"'
    study = make_study({'a,"b"\n': {0: {"failure": reason}}}, kinds={'a,"b"\n': "sgd"})
    row = next(csv.DictReader(io.StringIO(results_csv(rows_of(study)))))
    assert row["method"] == 'a,"b"\n'
    assert row["reason"] == study.runs[0].reason
    assert row["status"] == "failed"


def test_the_tex_is_a_whole_table(paper_study: Study) -> None:
    text = tex_of(paper_study)
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    body = [line for line in lines if "multicolumn" not in line]
    assert {line.count("&") for line in body} == {6}  # method, seed, five numbers
    assert len(body) == 1 + 20 + 3 * 2
    for rule in (r"\toprule", r"\bottomrule", r"\begin{tabular}{llrrrrr}", r"\end{tabular}"):
        assert text.count(rule) == 1
    assert text.count("{") == text.count("}")
    assert r"\cmidrule(lr){3-5} \cmidrule(lr){6-7}" in text
    best = next(line for line in body if line.startswith("sgd-sa & best"))
    is_vgg = paper_study.experiment["model"] == "vgg16"
    assert (r"\textbf{86.76}" if is_vgg else r"\textbf{84.11}") in best
    assert (r"\textbf{0.001084}" if is_vgg else r"\textbf{0.001231}") in best


def test_the_tex_of_a_study_without_results(make_study: Callable[..., Study]) -> None:
    text = tex_of(make_study({"sgd": {0: None}}, command="a 100% command\n\\evil"))
    assert r"sgd & 0 (missing) \\" in text
    assert text.splitlines()[0] == r"% a 100% command \evil"
    assert r"\begin{tabular}{ll}" in text


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("sgd_sa", r"sgd\_sa"),
        ("50% & $5 #1 {x}", r"50\% \& \$5 \#1 \{x\}"),
        ("a\\b", r"a\textbackslash{}b"),
        ("~^", r"\textasciitilde{}\textasciicircum{}"),
        ("<script>", r"\textless{}script\textgreater{}"),
        ("two\nlines\t\x00here", "two lines here"),
    ],
)
def test_names_are_escaped_for_tex(text: str, escaped: str) -> None:
    assert escape_tex(text) == escaped
