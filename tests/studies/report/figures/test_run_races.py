"""The drawing of a race: who won, who was dropped, who broke."""

from annealtune.annealing import Setting
from annealtune.annealing.race import RaceInfo
from annealtune.studies.report.figures.run_races import race_panels
from annealtune.studies.report.figures.style import blank, style


def texts_of(**changes):
    race = RaceInfo(
        step=0,
        minibatches=10,
        settings=tuple(Setting({"lr": rate}) for rate in (0.4, 0.1, 0.02)),
        scores=(3.0, 0.5, 0.8),
        dropped={0: "clearly worse at minibatch 3"},
        winner=1,
        reason="the lowest loss",
        rate=0.1,
        extra_steps=12,
        restarted=False,
        second=2,
        # Two of the ten minibatches were spoilt: no arm has a loss of them.
        losses=((2.0, 3.0, 4.0), (1.0, *[0.5] * 7), (1.0, *[0.8] * 7)),
    )
    [(panel, _)] = race_panels([RaceInfo(**{**vars(race), **changes})])
    with style():
        axes = panel.draw(blank())
    return {text.get_text().strip() for text in axes.texts}


def test_who_stayed_is_not_dropped_when_minibatches_were_spoilt():
    assert texts_of() == {"0.4 dropped", "0.1 won", "0.02"}


def test_without_a_winner_all_broke():
    assert texts_of(winner=None, second=None) == {"0.4 broke", "0.1 broke", "0.02 broke"}
