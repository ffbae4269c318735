"""Several studies on one page, each with a page of its own."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from annealtune.errors import ConfigError
from annealtune.studies.records import Study
from annealtune.studies.report.several import write_overview


def test_every_study_is_there_and_linked(
    study_writer: Callable[..., Study], tmp_path: Path
) -> None:
    runs = {"sgd": {0: {"epochs": 1}}}
    studies = [
        study_writer(tmp_path / "a", runs, name="The <same>"),
        study_writer(
            tmp_path / "b", {"adamw": {0: {"epochs": 1, "accuracy": 0.5}}}, name="The <same>"
        ),
        study_writer(tmp_path / "c", {"sgd": {0: None}}, name="../../c"),
    ]
    page = write_overview(studies, tmp_path / "out", figures=False)
    assert page == tmp_path / "out" / "index.html"
    text = page.read_text(encoding="utf-8")
    links = list(dict.fromkeys(re.findall(r'href="([^"#]+index.html)"', text)))
    assert links == ["the--same/index.html", "the--same-2/index.html", "c/index.html"]
    for link in links:
        assert (page.parent / link).resolve().is_relative_to(page.parent.resolve())
        assert "<!doctype html>" in (page.parent / link).read_text(encoding="utf-8")
    assert "sgd reached 88.00\u00a0% test accuracy of its one seed." in text
    assert "adamw reached 48.00\u00a0% test accuracy of its one seed." in text
    assert "there is nothing to compare" in text
    assert text.count("<svg") == 2
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert "figures/" not in text
    assert "<same>" not in text


def test_no_study_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one study, got none"):
        write_overview([], tmp_path)


def test_a_file_in_the_way(make_study: Callable[..., Study], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("the user's own")
    with pytest.raises(ConfigError, match="a file is in the way"):
        write_overview([make_study({"sgd": {0: None}})], tmp_path / "file")
