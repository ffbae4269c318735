"""What a person sees of a study: lines, names as they are."""

import io
import json

import pytest
from rich.console import Console

from annealtune.studies.display import Display
from annealtune.studies.plan import make_plan

LINE = {"epoch": 2, "train_loss": 0.5, "validation_accuracy": 0.9, "temperature": None}


@pytest.fixture
def tasks(tmp_path):
    plan = make_plan({"epochs": 4}, name="x", methods=["sgd", "adamw"], seeds=[0])
    tasks = plan.tasks(tmp_path)
    for task in tasks:
        task.path.mkdir(parents=True)
        (task.path / "metrics.jsonl").write_text(json.dumps(LINE) + "\n")
    return tasks


def shown(tasks, events):
    text = io.StringIO()
    display = Display(Console(file=text, width=120))
    with display.showing(tasks, 0):
        for kind, number, detail in events:
            display.happened(kind, tasks[number], detail)
    return text.getvalue()


EVENTS = [
    ("started", 0, ""),
    ("started", 1, ""),
    ("retried", 0, "a [/b] <reason>"),
    ("started", 0, ""),
    ("finished", 1, ""),
    ("failed", 0, "a [/b] <reason>"),
]


def test_lines(tasks):
    lines = shown(tasks, EVENTS).splitlines()
    assert lines == [
        "2 of 2 runs to do",
        "[0/2] started sgd seed 0 again, 1 of 4 epochs are there",
        "[0/2] started adamw seed 0 again, 1 of 4 epochs are there",
        "[0/2] retried sgd seed 0: a [/b] <reason>",
        "[0/2] started sgd seed 0 again, 1 of 4 epochs are there",
        "[1/2] finished adamw seed 0: loss 0.5000  accuracy 90.00%  (0 s)",
        "[2/2] failed sgd seed 0: a [/b] <reason>",
    ]
