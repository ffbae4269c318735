"""The page of a study: whole, self-contained, escaped, repeatable, honest about what is missing."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from annealtune.errors import ConfigError, RunError
from annealtune.studies.records import Study, read_study
from annealtune.studies.report.study_page import subtitle, write_overview, write_report

EVIL = '<script>alert("1")</script>&'
Make = Callable[..., Study]


@pytest.fixture(scope="module")
def study(study_writer: Make, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Every figure, a failed run, an unfinished one, and a name that wants to be a program."""
    return study_writer(
        tmp_path_factory.mktemp("reports") / "study",
        {
            EVIL: {s: {"accuracy": 0.9 + s / 50, "metric": {"rate": 0.1 + s}} for s in range(2)},
            "../scheduled": {s: {"accuracy": 0.88} for s in range(2)},
            "ssa": {0: {"accuracy": 0.3}, 1: {"failure": f"broke {EVIL}", "done": 1}},
            "sgd": {0: {"accuracy": 0.5}, 1: {"done": 2}},
        },
        kinds={EVIL: "sgd-sa", "../scheduled": "scheduled-sgd"},
        name=EVIL,
        command=f"annealtune study '{EVIL}'",
    )


@pytest.fixture(scope="module")
def page(study: Study, parse: Any) -> Any:
    return parse(write_report(study))


def test_the_files_of_a_report(study: Study, page: Any) -> None:
    directory = study.path / "report"
    assert page.path == directory / "index.html"
    names = {path.name for path in directory.iterdir()}
    assert names == {"index.html", "table.csv", "table.tex", "figures"}
    figures = {path.name for path in (directory / "figures").iterdir()}
    names = {Path(name).stem for name in figures}
    assert figures == {f"{name}.{ending}" for name in names for ending in ("svg", "pdf")}
    assert all(re.fullmatch("[a-z0-9-]+", name) for name in names)
    assert {(figure["id"] or "").removeprefix("panel-") for figure in page.all("figure")} == names
    assert names >= {"hero", "rates", "curves-validation-loss", "curves-training-accuracy"}
    assert names >= {"accept-probability", "accept-worsening", "accept-temperature"}
    assert names >= {"accept-worsening-moves", "settings-1", "settings-3"}


def test_nothing_is_loaded_from_outside(page: Any) -> None:
    for tag, attributes in page.elements:
        assert tag not in {"iframe", "object", "embed", "audio", "video", "base", "form"}
        assert not attributes.keys() & {"src", "srcset", "action", "poster", "background"}
        href = attributes.get("href") or attributes.get("xlink:href") or "#"
        if tag == "a":
            assert re.match(r"#|table\.(csv|tex)$|figures/[a-z0-9-]+\.(svg|pdf)$", href)
        else:
            assert href.startswith(("#", "data:")), (tag, href)
    assert not re.search(r"@import|url\((?!#)", page.source)
    policy = next(m["content"] for m in page.all("meta") if "http-equiv" in m)
    assert policy.startswith("default-src 'none'")


def test_links_lead_somewhere_and_ids_are_unique(page: Any) -> None:
    assert len(page.ids) == len(set(page.ids)) > 60
    for link in (attributes["href"] for attributes in page.all("a")):
        is_here = link.startswith("#")
        assert link[1:] in page.ids if is_here else (page.path.parent / link).is_file()
    used = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page.source)
    assert {one or other for one, other in used} <= set(page.ids)


def test_wide_figures_have_a_form_for_phones(page: Any) -> None:
    narrow = [svg for svg in page.all("svg") if svg.get("class") == "narrow"]
    assert len(narrow) == 2  # the hero and the rates
    assert len(page.all("svg")) == len(page.all("figure")) + 2
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in page.all("svg"))


def test_names_are_escaped_everywhere(page: Any) -> None:
    assert page.all("script") == [{}]
    assert page.text.count(EVIL) > 10
    assert EVIL not in page.source
    for svg in (page.path.parent / "figures").glob("*.svg"):
        assert "<script" not in svg.read_text(encoding="utf-8")


def test_table_1_and_the_main_test_are_open(page: Any) -> None:
    before, _, after = page.source.partition('id="table-1"')
    assert before.count("<details") == before.count("</details")
    assert after.index("<table") < after.index("<details")
    [opened] = [each["id"] for each in page.all("details") if "open" in each]
    assert opened == "best-test-accuracy"


def test_runs_without_a_result_and_the_origin_are_named(page: Any) -> None:
    assert f"failed: broke {EVIL}" in page.text
    assert "not finished: begun, 2 of 4 epochs" in page.text
    assert "6 finished" in page.text
    for words in (f"annealtune study '{EVIL}'", "batch_size", "x86_64"):
        assert words in page.text


@pytest.mark.slow
def test_the_same_records_give_the_same_bytes(study: Study, page: Any, tmp_path: Path) -> None:
    again = write_report(read_study(study.path), tmp_path / "again").parent
    first = {p.relative_to(page.path.parent): p for p in page.path.parent.rglob("*.*")}
    assert first.keys() == {p.relative_to(again) for p in again.rglob("*.*")}
    assert [n for n, path in first.items() if path.read_bytes() != (again / n).read_bytes()] == []


def test_a_page_does_not_grow_with_the_epochs(make_study: Make) -> None:
    study = make_study({"sgd": {0: {}}})
    [run] = study.runs
    sizes = []
    for epochs in (1000, 100_000):
        lines = tuple({**run.metrics[e % 4], "epoch": e} for e in range(1, epochs + 1))
        long = dataclasses.replace(study, runs=(dataclasses.replace(run, metrics=lines),))
        sizes.append(write_report(long, figures=False).stat().st_size)
    assert sizes[1] < 1.3 * sizes[0] < 1_000_000


# --- what a page says -----------------------------------------------------------------------------


def test_the_paper_is_named_on_its_own_pages_alone(
    study_writer: Make, paper_study: Study, tmp_path: Path, parse: Any
) -> None:
    kinds = ("sgd-sa", "ssa", "sgd", "scheduled-sgd")
    own = study_writer(tmp_path / "of a user", {kind: {0: {}} for kind in kinds})
    assert "paper" not in parse(write_report(own, figures=False)).text
    page = parse(write_report(paper_study, figures=False))
    assert "Table 1: seed by seed" in page.text
    figure = 4 if paper_study.experiment["model"] == "vgg16" else 3
    assert {"figure-2", f"figure-{figure}", "figure-long", "temperature"} <= set(page.ids)
    assert "best epoch chosen on test set" in page.text


def test_figure_1_has_its_pair_alone(make_study: Make, parse: Any) -> None:
    """Labels are the user's own; what stands behind them decides."""
    kinds = {"no gradients": "ssa", "constant": "sgd"}
    runs = {label: {0: {"epochs": 2}} for label in kinds}
    study = make_study(runs, kinds=kinds, name="regime-fashion-mnist-ssa")
    page = parse(write_report(study, figures=False))
    names = {figure["id"] for figure in page.all("figure")}
    assert "panel-figure-1-validation-loss" in names
    assert "panel-curves-validation-loss" not in names  # it would show the same


def test_validation_examples_are_not_training_examples(make_study: Make) -> None:
    """4,136 images with a share of 0.2418 for validation are trained on by 3,136."""
    sizes = {"train_size": 4136, "validation_fraction": 1000 / 4136}
    study = make_study({"sgd": {0: None}}, experiment=sizes)
    assert "3,136 training examples, 1,000 for validation" in subtitle(study)
    study.configs["sgd"]["validate_on"] = "test"
    assert "4,136 training examples, batches" in subtitle(study)


def test_runs_that_know_only_losses(make_study: Make, parse: Any) -> None:
    run = {"accuracy": None, "loss": 0.3}
    study = make_study({m: dict.fromkeys(range(2), run) for m in ("sgd", "self-tuned")})
    page = parse(write_report(study, figures=False))
    assert "test loss, best epoch" in page.text
    assert "accuracy" not in page.text.lower()
    assert 'id="panel-hero"' in page.source


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ({"sgd": {0: None, 1: {"done": 0}}}, "1 not begun, 1 not finished"),
        ({"sgd": {0: {}}}, "1 method × 1 seed"),
        ({"sgd": {0: {"loss": None}, 1: {}}, "adamw": {0: {}, 1: None}}, "n/a"),
        ({"sgd-sa": {0: {"metric": {"temperature": 0.0}}}}, "88.00 %"),
        ({"sgd": {0: {"loss": 1e30}, 1: {"epochs": 1}}}, "1.00e+30"),
    ],
)
def test_a_study_that_is_not_whole(make_study: Make, parse: Any, runs: Any, words: str) -> None:
    page = parse(write_report(make_study(runs), figures=False))
    assert words in page.text
    assert "nan" not in page.text.lower()
    assert "None" not in page.text
    assert "figures/" not in page.source


# --- several studies, and where they are written --------------------------------------------------


def test_every_study_of_an_overview_is_there_and_linked(
    study_writer: Make, tmp_path: Path, parse: Any
) -> None:
    runs = {"sgd": {0: {"epochs": 1}}}
    studies = [
        study_writer(tmp_path / "a", runs, name="The <same>"),
        study_writer(tmp_path / "b", {"adamw": {0: {"epochs": 1}}}, name="The <same>"),
        study_writer(tmp_path / "c", {"sgd": {0: None}}, name="../../c"),
    ]
    page = parse(write_overview(studies, tmp_path / "out", figures=False))
    links = [link for each in page.all("a") if not (link := each["href"]).startswith("#")]
    assert links == ["the-same/index.html", "the-same-2/index.html", "c/index.html"]
    assert all((tmp_path / "out" / link).is_file() for link in links)
    assert len(page.all("svg")) == 2
    assert len(page.ids) == len(set(page.ids))
    assert "<same>" not in page.source


def test_a_file_in_the_way(make_study: Make, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("the user's own")
    for out in (file, file / "below"):
        with pytest.raises(ConfigError, match="--out"):
            write_report(make_study({"sgd": {}}, seeds=[]), out)
    assert file.read_text() == "the user's own"


def test_a_disk_that_refuses(make_study: Make, tmp_path: Path) -> None:
    (tmp_path / "out" / "table.csv").mkdir(parents=True)  # cannot be replaced by a file
    with pytest.raises(RunError, match=r"table\.csv"):
        write_report(make_study({"sgd": {0: None}}), tmp_path / "out")
    assert not (tmp_path / "out" / "index.html").exists()  # the page comes last


def test_writing_again_replaces_and_leaves_no_scratch(make_study: Make, tmp_path: Path) -> None:
    study, out = make_study({"sgd": {0: None}}), tmp_path / "out"
    page = write_report(study, out)
    page.write_text("old")
    (out / "note.txt").write_text("the user's own")
    write_report(study, out)
    assert page.read_text().lstrip().startswith("<!doctype html>")
    names = {path.name for path in out.iterdir()}
    assert names == {"index.html", "table.csv", "table.tex", "note.txt"}
