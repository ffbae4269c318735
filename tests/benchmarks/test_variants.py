"""The tuner with other constants and rules: each does what it says, in its own run alone."""

import math

import pytest

from annealtune.annealing import Setting
from annealtune.annealing import race as rules
from annealtune.annealing.race import Standings
from annealtune.optim.trial import arm_rates, races
from annealtune.optim.trial.race import Race
from benchmarks.quality import variants
from benchmarks.quality.methods import METHODS, run
from benchmarks.quality.tasks.catalogue import TASKS
from benchmarks.quality.tasks.task import Sources
from benchmarks.quality.tuned import TunedRun
from benchmarks.records import Key
from tests.benchmarks.line import Breaking, Line

LENGTH = 600  # of Line with a factor of 5
FALL = (2.0, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3)
NOISY = tuple(loss + (0.5 if n % 2 else -0.501) for n, loss in enumerate(FALL))  # hardly lower


def shifted(by):
    return tuple(loss + by for loss in FALL)


def winner(variant, *losses, incumbent=1):
    """Return who wins a race, given the losses of its arms, in rising order of their rates."""
    race = object.__new__(Race)
    race._objective = None
    race.settings = tuple(Setting({"lr": 10.0**arm}) for arm in range(len(losses)))
    with variants.applied(variant):
        race.standings = Standings(len(losses))
        for each in zip(*losses, strict=True):
            race.standings.add({arm: each[arm] for arm in race.standings.live})
            race.standings.drop_losers()
        return race.verdict(incumbent).winner


@pytest.mark.parametrize(
    ("variant", "losses", "usual", "varied"),
    [
        ("draw=1", (FALL, FALL, NOISY), 2, 1),  # hardly ahead: it gives way
        ("draw=1", (shifted(1), shifted(1), FALL), 2, 2),
        ("safer=1", (shifted(0.2), shifted(0.1), FALL, shifted(1)), 2, 1),  # near a cliff
        ("safer=1", (shifted(0.2), shifted(0.1), FALL, shifted(0.2)), 2, 2),
    ],
)
def test_verdicts(variant, losses, usual, varied):
    assert (winner("", *losses), winner(variant, *losses)) == (usual, varied)


def tuned(kind, variant):
    with variants.applied(variant):
        return METHODS["self-tuned"](kind(Sources(), length_factor=5), "adamw")


class TestRuns:
    def test_a_winner_above_is_believed_in_part(self):
        usual, half = (tuned(Line, variant)["rate"] for variant in ("", "belief=0.5"))
        assert usual > 3e-3
        assert half == pytest.approx(math.sqrt(usual * 3e-3))

    def test_without_a_warm_up(self):
        for variant, share in (("", 1 / 30), ("warm-up=0", 1.0)):
            with variants.applied(variant):
                begun = TunedRun(Line(Sources(), length_factor=5), "adamw", LENGTH)
                begun.race()
                assert begun.tuner.lr == pytest.approx(share * begun.tuner.races[-1].rate)

    def test_without_a_guard_a_run_that_breaks_is_lost(self):
        record = tuned(Breaking, "guard=0")  # and no warning is given
        assert record["final_test"] is None
        assert record["cost"] < LENGTH / 4

    def test_a_record_tells_its_variant(self, monkeypatch):
        monkeypatch.setitem(TASKS, "line", Line)
        record = run(Key("line", 0, "adamw", "self-tuned", "above=1,belief=0.5", 5.0), Sources())
        assert record["variant"] == "above=1,belief=0.5"
        assert record["rate"] == pytest.approx(3e-3 * 10**0.25)


def test_they_hold_for_their_context_alone():
    before = arm_rates.SPACING, rules.PATIENCE, Standings.verdict, Race.verdict
    with variants.applied("spacing=2,patience=3,draw=1,safer=1"):
        assert arm_rates.SPACING == races.SPACING == 2.0
        assert Standings.verdict is not before[2]
    assert before == (arm_rates.SPACING, rules.PATIENCE, Standings.verdict, Race.verdict)


@pytest.mark.parametrize("text", ["beleif=1", "stay=one", "stay", "guard=1", "draw=0"])
def test_what_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"beleif|float|guard|draw"):
        variants.parse(text)
