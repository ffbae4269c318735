"""The citation says what CITATION.cff says."""

from pathlib import Path

import yaml

from annealtune.studies.report.citation import citation


def test_the_citation_agrees_with_the_file() -> None:
    facts = yaml.safe_load((Path(__file__).parents[3] / "CITATION.cff").read_text())
    [paper] = facts["references"]
    text = citation()
    for piece in (
        f"title = {{{facts['title']}}}",
        f"version = {{{facts['version']}}}",
        f"url = {{{facts['repository-code']}}}",
        f"{{{{{facts['authors'][0]['name']}}}}}",
        f"title = {{{paper['title']}}}",
        f"year = {{{paper['year']}}}",
        f"eprint = {{{paper['identifiers'][0]['value'].removeprefix('arXiv:')}}}",
        *(f"{each['family-names']}, {each['given-names']}" for each in paper["authors"]),
    ):
        assert piece in text
