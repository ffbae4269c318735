"""The results page: whole, self-contained, escaped."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from benchmarks.quality import hero, page, page_tables
from benchmarks.quality.bases import GRIDS
from benchmarks.quality.summaries import Results, Setting

EVIL = '<script>alert("1")</script>&'
Runs = Any  # of conftest.py


class Parsed(HTMLParser):
    """Addresses that a browser would load, and whether every element ends."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href", "srcset", "data")]
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing(three: Runs) -> None:
    text = page.render(three)
    parsed = Parsed(text)
    assert parsed.open == []
    assert all(address.startswith("#") or address == "data:," for address in parsed.addresses)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert text == page.render(three)


def test_figures_come_first_then_tables(three: Runs) -> None:
    text = page.render(three)
    places = [text.index(f'id="{name}"') for name in ("hero", "sealed-half", "rates", "tables")]
    assert places == sorted(places)
    assert text.index("<svg") < text.index("<table")
    assert text.count("<figcaption><b>") == 3  # one panel a task


def test_text_of_the_records_is_escaped(three: Runs) -> None:
    three.put("low", "mechanic", None, failure=EVIL)
    three.put_grid(EVIL, 1e-2)
    three.put(EVIL, "self-tuned", 1.0, rate=1e-2)
    text = page.render(three)
    assert EVIL not in text
    assert text.count("<script>") == 1
    assert "&lt;script&gt;alert(" in text
    Parsed(text)


def test_each_half_has_its_tables(three: Runs, records: Runs) -> None:
    records.put_grid("digits", 1e-2)
    records.put("digits", "self-tuned", 1.0, rate=1e-2, final_test=2.0)
    records.put("digits", "self-tuned", 1.5, rate=1e-2, variant="guard=0")
    text = page.render(records)
    ids = ("open-half", "open-final", "open-tasks", "open-rates", "adamw-1-variants")
    assert all(f'id="{name}"' in text for name in ids)
    assert 'id="sealed-half"' not in text
    assert 'id="open-half"' not in page.render(three)
    both = page.render({**records, **three})
    assert both.index('id="sealed-half"') < both.index('id="open-half"')


def test_runs_that_no_table_can_show_are_counted(three: Runs) -> None:
    assert "in no table" not in page.render(three)
    three.put("low", "self-tuned", 1.0, base="sgd")
    three.put("fourth", "self-tuned", 1.0)
    assert "2 of them in no table" in page.render(three)


def test_a_page_without_runs() -> None:
    text = page.render({})
    assert "There is no finished comparison yet." in text
    assert Parsed(text).open == []
    assert page.readme_table({}).count("\n") == 1


def test_unknown_methods_and_bases_are_shown(three: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GRIDS, "other", GRIDS["adamw"])
    three.put_grid("low", 1e-3, base="other")
    three.put("low", "new-method", 1.0, base="other")
    three.put("low", "new-method", 1.0)
    results = Results(three)
    assert "new-method" in page_tables.methods_of(results, ["low"])
    assert "held-3e-3" not in page_tables.methods_of(results, ["low"], Setting("other"))
    assert "<summary>other</summary>" in page.render(three)


def test_markdown(three: Runs) -> None:
    table = page.readme_table(three).splitlines()
    assert table[3] == "| **self-tuned** | 1.100 | 1.210 | 67 % | 0 of 3 |"
    assert "| Prodigy | 15.3 | broken | 33 % | 1 of 3 |" in table
    three.put("low", "self-tuned", 1.2, variant="guard=0")
    text = page.markdown(three)
    assert "## Sealed tasks, AdamW" in text
    assert "| guard=0 | 1.200 | 1.200 (low) | 0 % | 0 of 1 | 1 | 1.200 | 0 of 1 | 1 |" in text


def test_a_best_rate_at_an_end_of_the_grid_is_marked(records: Runs) -> None:
    for task, best in (("low", 1e-6), ("middle", 1e-2)):
        records.put_grid(task, best)
        records.put(task, "self-tuned", 1.0)
    rows = page_tables.by_task(Results(records), ["low", "middle"]).rows
    assert [bool(row[1].detail) for row in rows] == [True, False]


def test_failures_are_listed_by_seed(three: Runs) -> None:
    three.put("low", "mechanic", None, failure="it raised")
    three.put("low", "mechanic", None, seed=1, failure="it raised")
    three.put("low", "held-at-0.1", None)
    three.put("low", "self-tuned", None, variant="guard=0")
    assert page_tables.failures(Results(three)) == [
        ("high, Prodigy, adamw, seed 0", "the loss ceased to be finite"),
        ("low, Mechanic, adamw, seeds 0, 1", "it raised"),
        ("low, guard=0, adamw, seed 0", "the loss ceased to be finite"),
    ]


def test_hero_tasks_are_evenly_spaced_by_their_best_rate(records: Runs) -> None:
    best = {"a": 1e-3, "b": 3e-3, "c": 1e-3, "d": 3e-3, "e": 1e-2, "f": 1e-5, "g": 3e-5, "h": 1e-1}
    for task, rate in best.items():
        records.put_grid(task, rate)
        records.put(task, "self-tuned", 1.0)
    # All in order: f g a c b d e h.
    assert hero.hero_tasks(Results(records), 4) == ["f", "a", "d", "h"]
    few = {key: run for key, run in records.items() if key.task in "ab"}
    assert hero.hero_tasks(Results(few)) == ["a", "b"]


@pytest.mark.parametrize(
    ("bottom", "top"), [(0.04, 3), (0.9, 6), (1.01, 1.3), (3.2, 3.9), (1, 900)]
)
def test_axes_have_a_few_round_ticks(bottom: float, top: float) -> None:
    ticks = hero.few_ticks(bottom, top)
    assert 2 <= len(ticks) <= 5
    assert all(bottom <= tick <= top for tick in ticks)
    assert all(len(f"{tick:g}") <= 5 for tick in ticks)
