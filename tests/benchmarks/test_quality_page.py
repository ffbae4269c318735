"""The results page: whole, self-contained, escaped, and plain about what does not hold."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from annealtune.studies.report.figures.style import blank
from benchmarks.quality import figures, hero, page, page_tables, reasons, targets
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


def test_the_hero_comes_first_then_targets_then_tables(three: Runs) -> None:
    text = page.render(three)
    places = [text.index(f'id="{name}"') for name in ("hero", "targets", "profile", "tables")]
    assert places == sorted(places)
    assert text.index("<svg") < text.index("<table")
    assert text.count("<figcaption><b>") == 3  # one panel a task


def test_a_line_that_does_not_hold_says_so_and_why(
    three: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(reasons.REASONS, "sealed-mean", EVIL)
    text = page.render(three)
    verdicts = [line.holds for line in targets.targets(three)]
    assert text.count(">does not hold") == verdicts.count(False) == 3
    assert text.count(">not run yet") == verdicts.count(None) == 10
    assert "&lt;script&gt;alert(" in text
    assert EVIL not in text


def test_text_of_the_records_is_escaped(three: Runs) -> None:
    three.put("low", "mechanic", None, failure=EVIL)
    three.put_grid(EVIL, 1e-2)
    three.put(EVIL, "self-tuned", 1.0, rate=1e-2)
    text = page.render(three)
    assert EVIL not in text
    assert text.count("<script>") == 1
    assert "&lt;script&gt;alert(" in text
    Parsed(text)


def test_the_claim_is_computed(three: Runs) -> None:
    claim = page.claim(Results(three))
    assert "On 3 sealed tasks" in claim
    assert "ends at 1.10 times the test score of the best of 9 fixed rates" in claim
    assert "at worst at 1.21 times" in claim
    assert "Prodigy, the best peer of 1, ends at 15.33" in claim  # (0.9 * 4 * 1000) ** (1 / 3)


def test_open_tasks_alone_are_called_in_sample(records: Runs) -> None:
    records.put_grid("digits", 1e-2)
    records.put("digits", "self-tuned", 1.0, rate=1e-2)
    assert "No sealed task has been run yet" in page.render(records)
    assert "tasks that its constants were chosen on" in page.claim(Results(records))


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
    assert table[0] == "| method | geometric mean | worst | near over 3e-3 | broken |"
    assert table[3] == "| **self-tuned** | **1.100** | 1.210 | 1.100 | 0 of 3 |"
    assert "| Prodigy | 15.3 | broken | 4.000 | 1 of 3 |" in table
    text = page.markdown(three)
    assert "**does not hold**" in text
    assert "## Sealed half, AdamW" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("| low")}
    assert len(widths) == 2  # by task, and rates chosen


def test_failures_are_listed_by_seed(three: Runs) -> None:
    three.put("low", "mechanic", None, failure="it raised")
    three.put("low", "mechanic", None, seed=1, failure="it raised")
    three.put("low", "held-at-0.1", None)
    assert page_tables.failures(Results(three)) == [
        ("high, Prodigy, adamw, seed 0", "the loss ceased to be finite"),
        ("low, Mechanic, adamw, seeds 0, 1", "it raised"),
    ]


def test_hero_tasks_follow_the_rule(records: Runs) -> None:
    best = {"a": 1e-3, "b": 3e-3, "c": 1e-3, "d": 3e-3, "e": 1e-2, "f": 1e-5, "g": 3e-5, "h": 1e-1}
    for task, rate in best.items():
        records.put_grid(task, rate)
        records.put(task, "self-tuned", 1.0)
    results = Results(records)
    # Far: lowest, highest, second lowest; near: the first three by name.
    assert hero.hero_tasks(results) == ["f", "g", "a", "c", "b", "h"]
    far = {key: run for key, run in records.items() if key.task in "efgh"}
    assert hero.hero_tasks(Results(far)) == ["f", "g", "e", "h"]
    near = {key: run for key, run in records.items() if key.task in "abcdf"}
    assert hero.hero_tasks(Results(near)) == ["f", "a", "c", "b", "d"]


def test_the_profile_draws_the_shares(three: Runs) -> None:
    results, tasks = Results(three), ["low", "middle", "high"]
    panel = figures.profile(results, tasks, ["self-tuned", "prodigy"])

    own, prodigy = panel.draw(blank()).get_lines()
    factors, shares = own.get_data()
    assert list(factors) == pytest.approx([1, 1, 1.1, 1.21, 10])
    assert list(shares) == pytest.approx([1 / 3, 1 / 3, 2 / 3, 1, 1])
    factors, shares = prodigy.get_data()
    assert list(factors) == pytest.approx([1, 1, 4, 10])
    assert list(shares) == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3])
    assert own.get_drawstyle() == "steps-post"


@pytest.mark.parametrize(
    ("bottom", "top"), [(0.04, 3), (0.9, 6), (1.01, 1.3), (3.2, 3.9), (1, 900)]
)
def test_axes_have_a_few_round_ticks(bottom: float, top: float) -> None:
    ticks = hero.few_ticks(bottom, top)
    assert 2 <= len(ticks) <= 5
    assert all(bottom <= tick <= top for tick in ticks)
    assert all(len(f"{tick:g}") <= 5 for tick in ticks)
