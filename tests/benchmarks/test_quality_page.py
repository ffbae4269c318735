"""The results page: whole, self-contained, escaped; every table from the records."""

import re

from benchmarks.quality import figures, page
from benchmarks.quality.summaries import Results
from benchmarks.records import Key

EVIL = '<script>alert("1")</script>&'


def test_the_page_loads_nothing_and_is_made_again_alike(three):
    text = page.render(three)
    addresses = re.findall(r'(?:src|href|srcset)="([^"]*)"', text)
    assert all(address.startswith("#") or address == "data:," for address in addresses)
    assert not re.search(r"@import|url\((?!#)", text)
    assert text.count("<figcaption><b>") == 3  # one panel a task
    assert text == page.render(three)
    assert "There is no finished comparison yet." in page.render({})


def test_text_of_the_records_is_escaped(three):
    three.put("low", "mechanic", None, failure=EVIL)
    three.put_grid(EVIL, 1e-2)
    three.put(EVIL, "self-tuned", 1.0, rate=1e-2)
    text = page.render(three)
    assert EVIL not in text
    assert text.count("<script>") == 1
    assert "&lt;script&gt;alert(" in text


def test_each_half_has_its_tables(three, records):
    records.put_grid("digits", 1e-2)
    records.put("digits", "self-tuned", 1.0, rate=1e-2, final_test=2.0)
    records.put("digits", "self-tuned", 1.5, rate=1e-2, variant="guard=0")
    text = page.render(records)
    ids = ("open-half", "open-final", "open-tasks", "open-rates", "adamw-1-variants")
    assert all(f'id="{name}"' in text for name in ids)
    assert 'id="sealed-half"' not in text
    assert 'id="open-half"' not in page.render(three)


def rows_of(text, title):
    """The rows of a table in Markdown."""
    _, _, table = text.partition(f"## {title}\n")
    lines = table.partition("\n## ")[0].splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][2:]


def test_markdown(three):
    rows = rows_of(page.markdown(three), "Sealed tasks, AdamW")
    names = ["cosine, best rate", "**self-tuned**", "fixed 3e-3", "Prodigy"]
    assert [row[0] for row in rows] == names
    assert rows[1][1:6] == ["1.100 (0.868 to 1.394)", "1.210 (high)", "67 %", "0 of 3", "3"]
    assert rows[3][2:5] == ["broken (high)", "33 %", "1 of 3"]


def test_a_variant_stands_beside_ours_paired_over_tasks(three):
    for task, ratio in (("low", 1.1), ("middle", 1.32)):
        three.put(task, "self-tuned", ratio, variant="guard=0")
    three.put("low", "self-tuned", 0.9, variant="decay=0.5")
    rows = rows_of(page.markdown(three), "Variants over AdamW")
    assert [row[0] for row in rows] == ["decay=0.5", "guard=0", "as it is"]
    # 1.1 / 1.0 and 1.32 / 1.1, whose interval is Student's over two tasks.
    assert rows[1][1].startswith("1.205")
    assert (rows[1][2], rows[1][5]) == ("1.320 (middle)", "2")
    assert rows[1][6:8] == ["1.149 (0.661 to 1.997)", "0 of 2"]
    assert rows[0][6:8] == ["0.900", "1 of 1"]
    assert rows[2][1].startswith("1.100")


def test_failures_are_listed_by_seed(three):
    for seed in (0, 1):
        three.put("low", "mechanic", None, seed=seed, failure="it raised")
    three.put("low", "held-at-0.1", None)
    three.put("low", "self-tuned", None, variant="guard=0")
    assert page.failures(Results(three)) == [
        ("high, Prodigy, adamw, seed 0", "the loss ceased to be finite"),
        ("low, Mechanic, adamw, seeds 0, 1", "it raised"),
        ("low, guard=0, adamw, seed 0", "the loss ceased to be finite"),
    ]


def test_hero_tasks_are_evenly_spaced_by_their_best_rate(records):
    best = {"a": 1e-3, "b": 3e-3, "c": 1e-3, "d": 3e-3, "e": 1e-2, "f": 1e-5, "g": 3e-5, "h": 1e-1}
    for task, rate in best.items():
        records.put_grid(task, rate)
        records.put(task, "self-tuned", 1.0)
    # All in order: f g a c b d e h.
    assert figures.hero_tasks(Results(records), 4) == ["f", "a", "d", "h"]


def test_runs_made_again_stand_beside_the_kept_ones(three):
    made = {"cpu": "Z80, NEON", "torch": "9.9", "commit": "c" * 40}
    key = Key("low", 0, "adamw", "self-tuned")
    again = [{key: {**three[key], **made, "test": test}} for test in (1.0, 2.0)]
    origin = "Z80, NEON, torch 9.9, commit cccccccccccc"
    assert rows_of(page.markdown(three, again), "Made again") == [
        [origin, "1 of 1", "1 of 1", "1.000", "1.000", "1.000 (low)"],
        [origin, "0 of 1", "1 of 1", "2.000", "2.000", "2.000 (low)"],
    ]
    assert "Made again" not in page.markdown(three)
