"""`SelfTuner.plot`: a picture of the run without the program."""

import subprocess
import sys

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from annealtune import SelfTuner
from annealtune.annealing import Setting
from annealtune.annealing.race import RaceInfo
from annealtune.optim import plot
from annealtune.optim.history import History


@pytest.fixture(scope="module")
def tuner():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    opt = SelfTuner(torch.optim.AdamW(net.parameters()), model=net, total_steps=300)
    compute_loss = opt.record(lambda x, y: nn.functional.cross_entropy(net(x), y))
    for number in range(120):
        x = torch.randn(16, 4, generator=torch.Generator().manual_seed(number))
        compute_loss(x, (x[:, 0] > x[:, 1]).long()).backward()
        opt.step()
        opt.zero_grad()
    return opt


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_the_ending_decides_the_format(tuner, tmp_path, ending, start):
    path = tuner.plot(tmp_path / f"run.{ending}")
    assert path.read_bytes().startswith(start)


def test_every_arm_and_the_rate_are_named(tuner, tmp_path):
    before = list(tuner.history.points)
    text = tuner.plot(str(tmp_path / "run.svg")).read_text()
    (race,) = tuner.races
    for arm in range(len(race.settings)):
        assert f">{race.name(arm)}" in text
    assert f">{race.name(race.winner)} won<" in text
    assert "found<" in text
    assert tuner.history.points == before


def test_before_the_first_step(tmp_path):
    net = nn.Linear(2, 1)
    opt = SelfTuner(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
    assert opt.plot(tmp_path / "empty.svg").stat().st_size > 0


def test_an_unknown_ending_names_the_known_ones(tuner, tmp_path):
    with pytest.raises(ValueError, match=r"must end in one of .*\.png.*got '.*run\.docx'"):
        tuner.plot(tmp_path / "run.docx")


def test_without_matplotlib_it_says_what_to_install():
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import torch; from annealtune import SelfTuner\n"
        "opt = SelfTuner(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1))\n"
        "try: opt.plot('run.svg')\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'annealtune[plot]'" in done.stdout, done.stderr


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draw a race of three arms; return the axes of the race and of the rates.

    The first arm wins, the second stays, the third explodes and is dropped. There were two more
    minibatches than losses: they were spoilt for all.
    """

    def draw(sign):
        losses = [[2.0, 1.5, 1.0, 0.25], [2.0, 1.75, 1.5, 1.25], [2.0, 50.0]]
        race = RaceInfo(
            step=0,
            minibatches=6,
            settings=tuple(Setting({"lr": rate}) for rate in (0.1, 0.2, 0.4)),
            scores=(sign * 0.6, sign * 1.4, sign * 50.0),
            dropped={2: "clearly worse"},
            winner=0,
            reason="the best",
            rate=0.1,
            extra_steps=6,
            restarted=False,
            losses=tuple(tuple(sign * loss for loss in own) for own in losses),
        )
        figures = []
        save = Figure.savefig

        def saved(figure, *args, **kwargs):
            figures.append(figure)
            return save(figure, *args, **kwargs)

        monkeypatch.setattr(Figure, "savefig", saved)
        plot.plot_run(tmp_path / "run.svg", History(), [race], sign=sign)
        axes = {each.get_ylabel(): each for each in reversed(figures[0].axes)}
        (shown,) = [a for a in figures[0].axes if a.get_title(loc="left").startswith("race")]
        return shown, axes["learning rate"]

    return draw


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_is_cut_away_is_what_explodes(drawn, sign):
    shown, _ = drawn(sign)
    curves = [line.get_ydata() for line in shown.lines if line.get_marker() != "x"]
    values = {sign * y for curve in curves for y in curve if y == y}
    assert values == {2.0, 1.75, 1.5, 1.25, 1.0, 0.25}  # all but the 50


def test_only_an_arm_that_was_dropped_ends_early(drawn):
    shown, rates = drawn(1.0)
    crosses = [line for line in shown.lines if line.get_marker() == "x"]
    assert [list(cross.get_xdata()) for cross in crosses] == [[2]]
    ends = {
        line.get_ydata()[0]: line.get_xdata()[-1] for line in rates.lines if len(line.get_xdata())
    }
    assert ends == {0.1: 6, 0.2: 6, 0.4: 2}


def test_a_base_that_maximizes_is_drawn_as_one(monkeypatch, tmp_path):
    given = []
    monkeypatch.setattr(plot, "plot_run", lambda *_, sign: given.append(sign))
    for maximize in (False, True):
        base = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1, maximize=maximize)
        SelfTuner(base).plot(tmp_path / "run.svg")
    assert given == [1.0, -1.0]
