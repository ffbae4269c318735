"""The page: whole, self-contained, escaped, repeatable, and honest about what is missing."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from annealtune.studies.records import Study, read_study
from annealtune.studies.report.figures.gallery import plates
from annealtune.studies.report.page import render_page
from annealtune.studies.report.writing import write_report
from annealtune.studies.statistics.summaries import study_statistics

EVIL = '<script>alert("1")</script>&'
CITED = "url = {https://github.com/annealtune/annealtune}"  # a text, not a link
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """What a browser would find: elements, their attributes, text without scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.text += data.replace("\u00a0", " ")

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page_of(study: Study) -> Page:
    """The page of a study, without its figures: they take longest."""
    return Page(render_page(study, study_statistics(study), None, [], {}))


# --- a whole report -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study(study_writer: Callable[..., Study], tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Every figure, a failed run, an unfinished one, and a name that wants to be a program."""
    seeds = range(2)
    return study_writer(
        tmp_path_factory.mktemp("reports") / "study",
        {
            EVIL: {
                0: {"accuracy": 0.9, "metric": {"rate": 0.1}},
                1: {"accuracy": 0.92, "metric": {"rate": 0.2}},
            },
            "../scheduled": {seed: {"accuracy": 0.88} for seed in seeds},
            "ssa": {0: {"accuracy": 0.3}, 1: {"failure": f"broke {EVIL}", "done": 1}},
            "sgd": {0: {"accuracy": 0.5}, 1: {"done": 2}},
        },
        kinds={EVIL: "sgd-sa", "../scheduled": "scheduled-sgd"},
        name=EVIL,
        command=f"annealtune study '{EVIL}'",
    )


@pytest.fixture(scope="module")
def written(study: Study) -> Path:
    return write_report(study)


@pytest.fixture(scope="module")
def page(written: Path) -> Page:
    return Page(written.read_text(encoding="utf-8"))


def test_the_files_of_a_report(study: Study, written: Path) -> None:
    assert written == study.path / "report" / "index.html"
    assert {path.name for path in written.parent.iterdir()} == {
        "index.html",
        "table.csv",
        "table.tex",
        "figures",
    }
    figures = {path.name for path in (written.parent / "figures").iterdir()}
    assert {Path(name).stem for name in figures if name.endswith(".svg")} == {
        Path(name).stem for name in figures if name.endswith(".pdf")
    }
    assert all(re.fullmatch(r"[a-z0-9-]+\.(svg|pdf)", name) for name in figures)
    assert len(figures) == 2 * 15
    assert {"hero.svg", "hero.pdf"} <= figures


def test_nothing_is_loaded_from_outside(written: Path, page: Page) -> None:
    for tag, attributes in page.elements:
        assert tag not in {"iframe", "object", "embed", "audio", "video", "base", "form"}
        for name in ("src", "srcset", "action", "poster", "background"):
            assert name not in attributes
        href = attributes.get("href") or attributes.get("xlink:href") or "#"
        if tag == "a":
            assert re.match(r"#|table\.(csv|tex)$|figures/[a-z0-9-]+\.(svg|pdf)$", href)
        else:
            assert href.startswith(("#", "data:")), (tag, href)
    text = written.read_text(encoding="utf-8").replace(CITED, "")
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", text.replace("// ", ""))
    policy = next(m["content"] for m in page.all("meta") if "http-equiv" in m)
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_every_link_leads_somewhere(written: Path, page: Page) -> None:
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    for attributes in page.all("a"):
        href = attributes["href"] or ""
        assert href[1:] in ids if href.startswith("#") else (written.parent / href).is_file()


def test_ids_are_unique(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids)) > 60


def test_every_figure_is_on_the_page(written: Path, page: Page) -> None:
    figures = {(figure["id"] or "").removeprefix("panel-") for figure in page.all("figure")}
    assert figures == {path.stem for path in (written.parent / "figures").glob("*.svg")}
    narrow = [svg for svg in page.all("svg") if svg.get("class") == "narrow"]
    assert len(page.all("svg")) == len(figures) + len(narrow)
    assert len(narrow) == 2  # the hero and the rates have a form for phones
    assert all(svg["role"] == "img" for svg in page.all("svg"))


def test_names_are_escaped_everywhere(written: Path, page: Page) -> None:
    assert [attributes for attributes in page.all("script") if attributes] == []
    assert len(page.all("script")) == 1
    assert page.text.count(EVIL) > 10
    assert EVIL not in written.read_text(encoding="utf-8")
    tex = (written.parent / "table.tex").read_text(encoding="utf-8")
    assert r"\textless{}script\textgreater{}" in tex
    for svg in (written.parent / "figures").glob("*.svg"):
        assert "<script" not in svg.read_text(encoding="utf-8")


def test_failed_runs_and_their_reasons_are_named(page: Page) -> None:
    assert f"failed: broke {EVIL}" in page.text
    assert "not finished: begun, 2 of 4 epochs" in page.text
    assert "6 of 8 runs finished: 1 failed, 1 not finished." in page.text


def test_the_origin_is_named(page: Page) -> None:
    assert f"annealtune study '{EVIL}'" in page.text
    for word in ("batch_size", "x86_64", "3.11.7", "digits"):
        assert word in page.text


@pytest.mark.slow
def test_the_same_records_give_the_same_bytes(study: Study, written: Path, tmp_path: Path) -> None:
    again = write_report(read_study(study.path), tmp_path / "again").parent
    first = {p.relative_to(written.parent): p for p in written.parent.rglob("*") if p.is_file()}
    second = {p.relative_to(again): p for p in again.rglob("*") if p.is_file()}
    assert first.keys() == second.keys()
    assert [name for name in first if first[name].read_bytes() != second[name].read_bytes()] == []


def test_writing_again_replaces_and_leaves_no_scratch(
    make_study: Callable[..., Study], tmp_path: Path
) -> None:
    study = make_study({"sgd": {0: None}})
    out = tmp_path / "out"
    page = write_report(study, out)
    page.write_text("old")
    (out / "note.txt").write_text("the user's own")
    write_report(study, out)
    assert page.read_text().startswith("<!doctype html>")
    names = {path.name for path in out.iterdir()}
    assert names == {"index.html", "table.csv", "table.tex", "note.txt"}


@pytest.mark.slow
def test_a_large_study_stays_below_a_megabyte(make_study: Callable[..., Study]) -> None:
    """10 seeds, 4 methods, 100 epochs, each line as jagged as can be."""
    methods = ("sgd-sa", "scheduled-sgd", "random-rate", "ssa")
    study = make_study({m: {s: {"epochs": 100} for s in range(10)} for m in methods})
    for run in study.runs:
        noise = (hash_of(run.method, run.seed, k) for k in range(10**9))
        file = run.path / "metrics.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            for key in line.keys() - {"epoch", "step", "forwards", "backwards"}:
                line[key] = next(noise)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = write_report(read_study(study.path))
    assert page.stat().st_size < 1_000_000
    assert sum(path.stat().st_size for path in page.parent.rglob("*")) < 4_000_000


def hash_of(*values: Any) -> float:
    """A number between 0 and 1 that looks random and is the same every day."""
    import hashlib

    digest = hashlib.sha256(repr(values).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


# --- words, folds and figures ---------------------------------------------------------------------


def test_figures_come_before_tables_and_tables_are_folded(written: Path, page: Page) -> None:
    text = written.read_text(encoding="utf-8")
    assert text.index('id="panel-hero"') < text.index("<nav") < text.index("<table")
    assert text.rindex("</svg>") < text.index("<table")
    opened = 0
    for tag in re.findall(r"<(/?(?:details|table))\b", text):
        opened += {"details": 1, "/details": -1}.get(tag, 0)
        assert tag != "table" or opened == 1
    assert not [attributes for attributes in page.all("details") if "open" in attributes]


def test_without_files_there_are_no_links_to_them(
    make_study: Callable[..., Study], tmp_path: Path
) -> None:
    study = make_study({"sgd": {0: {}}})
    page = write_report(study, tmp_path / "out", figures=False)
    assert {path.name for path in page.parent.iterdir()} == {"index.html", "table.csv", "table.tex"}
    text = page.read_text(encoding="utf-8")
    assert "figures/" not in text
    assert 'id="panel-hero"' in text


def test_the_paper_is_named_on_its_own_pages_alone(
    study_writer: Callable[..., Study], paper_study: Study, tmp_path: Path
) -> None:
    kinds = ("sgd-sa", "ssa", "sgd", "scheduled-sgd")
    own = study_writer(tmp_path / "of a user", {kind: {0: {}} for kind in kinds})
    said = []
    for study in (own, paper_study):
        statistics = study_statistics(study)
        captions = [plate._replace(panels=()) for plate in plates(study, statistics)]
        text = Page(render_page(study, statistics, None, captions, {})).text
        said.append(text.replace("cite the software and the paper", ""))
    assert "paper" not in said[0]
    assert "Table 1 of the paper" in said[1]
    assert re.search("Figure [34] of the paper", said[1])


def test_runs_that_know_only_losses(make_study: Callable[..., Study]) -> None:
    runs = {
        m: {s: {"accuracy": None, "loss": 0.3} for s in range(2)} for m in ("sgd", "self-tuned")
    }
    text = write_report(make_study(runs), figures=False).read_text(encoding="utf-8")
    page = Page(text)
    assert "test loss, best epoch" in page.text
    assert "accuracy" not in page.text.lower()
    assert "nan" not in page.text.lower()
    assert 'id="panel-hero"' in text


def test_no_number_is_longer_than_anybody_reads(make_study: Callable[..., Study]) -> None:
    huge = 123456789012345678901234567890.0
    study = make_study(
        {"sgd": {0: {"loss": huge}, 1: {"loss": 0.1 + 0.2}}, "adamw": {0: {}, 1: {}}}
    )
    text = write_report(study, figures=False).read_text(encoding="utf-8")
    body = text[text.index("<body>") : text.index("<script>")]
    seen = re.sub(r"<[^>]*>", " ", body) + " ".join(re.findall(r"data-points='([^']*)'", body))
    assert "1.23e+29" in seen
    assert max(map(len, re.findall(r"\d+", seen))) <= 8


# --- studies that are not whole -------------------------------------------------------------------


def test_a_study_without_a_finished_run(make_study: Callable[..., Study]) -> None:
    page = page_of(make_study({"sgd": {0: None, 1: {"done": 0}}, "adamw": {0: None, 1: None}}))
    assert "there is nothing to compare" in page.text
    assert "0 of 4 runs finished: 1 not finished, 3 not begun." in page.text
    assert "There is nothing to draw" in page.text


def test_a_study_of_one_run(make_study: Callable[..., Study]) -> None:
    page = page_of(make_study({"sgd": {0: {}}}))
    assert "1 method × 1 seed" in page.text
    assert "88.00 %" in page.text
    assert "nan" not in page.text.lower()


def test_a_missing_metric_is_not_available(make_study: Callable[..., Study]) -> None:
    study = make_study({"sgd": {0: {"loss": None}, 1: {"loss": 0.5}}, "adamw": {0: {}, 1: {}}})
    page = page_of(study)
    assert "n/a" in page.text
    assert "nan" not in page.text.lower()
    assert "None" not in page.text


def test_a_damaged_run_is_a_failed_one(make_study: Callable[..., Study]) -> None:
    study = make_study({"sgd": {0: {}, 1: {}}})
    (study.runs[1].path / "metrics.jsonl").write_text("{broken\n")
    page = page_of(read_study(study.path))
    assert "failed: metrics.jsonl is damaged: line 1" in page.text
    assert "1 of 2 runs finished: 1 failed." in page.text


def test_a_search_for_the_best_seed(make_study: Callable[..., Study]) -> None:
    study = make_study({"sgd-sa": {0: {"done": 2}, 1: {}, 2: {"failure": "broke"}}})
    scores = [
        {"seed": 1, "best_epoch": 2, "validation_accuracy": 0.8, "validation_loss": 1},
        {"seed": 0, "best_epoch": 1, "validation_accuracy": 0.7, "validation_loss": 2},
    ]
    failed = [{"seed": 2, "reason": "broke"}]
    log = {
        "kind": "best-seed",
        "method": "sgd-sa",
        "vary": "seed",
        "rungs": [
            {"epochs": 2, "scores": scores, "failed": failed, "kept": [1], "pruned": [0]},
            {"epochs": 4, "scores": scores[:1], "failed": [], "kept": [1], "pruned": []},
        ],
        "winner": {
            "seed": 1,
            "best_epoch": 3,
            "validation_accuracy": 0.91,
            "test_accuracy": 0.88,
        },
        "epochs_trained": 6,
        "epochs_without_pruning": 12,
    }
    (study.path / "search.json").write_text(json.dumps(log))
    page = page_of(read_study(study.path))
    assert "The search chose seed 1 of sgd-sa: validation accuracy 91.00 %" in page.text
    assert "On the test set, which chose nothing, it reached 88.00 %." in page.text
    assert "6 epochs instead of 12" in page.text
    for words in ("goes on", "given up", "wins", "failed: broke", "Over the seeds"):
        assert words in page.text
    assert re.search(r"sgd-sa\s*0\s*pruned after epoch 2", page.text)
    assert "1 of 3 runs finished: 1 failed, 1 pruned." in page.text


@pytest.mark.parametrize(
    "log",
    [
        {"rungs": []},
        {"rungs": [{"epochs": 1, "pruned": [], "scores": [None], "failed": 3}], "winner": 1},
    ],
)
def test_a_search_that_has_not_ended(make_study: Callable[..., Study], log: dict[str, Any]) -> None:
    study = make_study({"sgd-sa": {0: {"done": 2}}})
    (study.path / "search.json").write_text(json.dumps(log))
    assert "The search for the best seed has not ended." in page_of(read_study(study.path)).text


def test_a_search_among_runs_that_know_only_losses(make_study: Callable[..., Study]) -> None:
    study = make_study({"sgd-sa": {1: {"accuracy": None}}})
    score = {"seed": 1, "best_epoch": 3, "validation_loss": 0.2}
    rung = {"epochs": 4, "scores": [score], "failed": [], "kept": [1], "pruned": []}
    log = {"method": "sgd-sa", "rungs": [rung], "winner": score | {"test_loss": 0.35}}
    (study.path / "search.json").write_text(json.dumps(log))
    page = page_of(read_study(study.path))
    assert "seed 1 of sgd-sa: validation loss 0.2000 at its best epoch, 3." in page.text
    assert "which chose nothing, it reached 0.3500." in page.text
    assert "best validation loss so far" in page.text


def test_options_in_which_methods_differ(make_study: Callable[..., Study]) -> None:
    methods = [
        {
            "label": "warm",
            "config": {"method": "sgd-sa", "epochs": 3, "sgd-sa": {"lr": [0.1, 0.2]}},
        },
        {"label": "cold", "config": {"method": "sgd-sa", "epochs": 3, "sgd-sa": {"lr": [0.1]}}},
    ]
    page = page_of(make_study({"warm": {0: {}}, "cold": {0: {}}}, methods=methods))
    assert re.search(r"warm\s*sgd-sa\.lr\s*0\.1, 0\.2", page.text)
    assert re.search(r"epochs\s*3", page.text)
    assert "Where the methods differ" in page.text
