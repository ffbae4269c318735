"""The tuner with other constants and rules: each does what it says, in its own run alone."""

import pytest

from annealtune.annealing import race as rules
from annealtune.optim import race
from benchmarks.quality import variants
from benchmarks.quality.methods import METHODS, run
from benchmarks.quality.tasks.catalogue import TASKS
from benchmarks.quality.tasks.task import Sources
from benchmarks.quality.tuned import TunedRun
from benchmarks.records import Key
from tests.benchmarks.line import Breaking, Line

LENGTH = 600  # of Line with a factor of 5


def tuned(kind, variant):
    with variants.applied(variant):
        return METHODS["self-tuned"](kind(Sources(), length_factor=5), "adamw")


def test_without_a_warm_up():
    for variant, share in (("", 1 / 30), ("warm-up=0", 1.0)):
        with variants.applied(variant):
            begun = TunedRun(Line(Sources(), length_factor=5), "adamw", LENGTH)
            begun.race()
            assert begun.tuner.lr == pytest.approx(share * begun.tuner.races[-1].rate)


def test_without_a_guard_a_run_that_breaks_is_lost():
    record = tuned(Breaking, "guard=0")  # and no warning is given
    assert record["final_test"] is None
    assert record["cost"] < LENGTH / 4


@pytest.mark.parametrize("name", variants.NAMES)
def test_every_one_has_something_to_change(name):
    only = variants.RULES[name][1] if name in variants.RULES else None
    with variants.applied(f"{name}={2 if only is None else only}"):
        if name in variants.RULES:
            assert METHODS["self-tuned"](Line(Sources(), length_factor=5), "adamw")["test"]


def test_a_record_tells_its_variant(monkeypatch):
    monkeypatch.setitem(TASKS, "line", Line)
    record = run(Key("line", 0, "adamw", "self-tuned", "spacing=2,warm-up=0", 5.0), Sources())
    assert record["variant"] == "spacing=2,warm-up=0"
    assert record["rate"] == pytest.approx(3e-3 * 2**2)


def test_they_hold_for_their_context_alone():
    before = race.SPACING, rules._PATIENCE, race.Races._cautious
    with variants.applied("spacing=2,patience=3,cautious=0"):
        assert race.SPACING == 2.0
        assert race.Races._cautious is not before[2]
    assert before == (race.SPACING, rules._PATIENCE, race.Races._cautious)


@pytest.mark.parametrize("text", ["beleif=1", "grace=one", "grace", "guard=1", "cautious=1"])
def test_what_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"beleif|float|guard|cautious"):
        variants.parse(text)
