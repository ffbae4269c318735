"""No decision changes unless somebody means it to: see make.py for how to write them anew."""

import json

import pytest

from tests.golden.make import DECISIONS, METHODS, RACES, file_of, found


def golden(name):
    return json.loads(file_of(name).read_text())


@pytest.mark.parametrize("name", METHODS)
def test_the_first_hundred_decisions(name):
    expected = golden(name)
    assert len(expected) == DECISIONS
    for step, (now, then) in enumerate(zip(found(name), expected, strict=True)):
        assert now == then, f"{name}: the decision at step {step} has changed"


@pytest.mark.parametrize("name", RACES)
def test_the_first_two_races(name):
    for now, then in zip(found(name), golden(name), strict=True):
        assert now == then, f"{name}: race {then['number']} has changed"


def test_there_is_a_file_for_each_and_no_other():
    files = {path.name for path in file_of("x").parent.glob("*.json")}
    assert files == {file_of(name).name for name in (*METHODS, *RACES)}


def test_they_say_something():
    """Files in which nothing is ever decided would not notice a change."""
    accepts_all = {f"strategy-{name}" for name in ("tabu", "variable-neighborhood")}
    for name in METHODS:
        verdicts = {accepted for *_, accepted in golden(name)}
        assert verdicts == ({True} if name in accepts_all else {True, False}), name
    contents = [file_of(name).read_text() for name in METHODS]
    assert len(set(contents)) == len(contents)
    assert all(len(golden(name)) >= 1 for name in RACES)
    assert any(race["dropped"] for name in RACES for race in golden(name))
