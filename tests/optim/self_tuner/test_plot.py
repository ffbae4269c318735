"""`SelfTuner.plot`: a picture of the run without the program."""

import sys

import pytest
import torch
from torch import nn

from annealtune import SelfTuner


@pytest.fixture(scope="module")
def tuner():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    opt = SelfTuner(torch.optim.AdamW(net.parameters()), net, total_steps=300)
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
    opt = SelfTuner(torch.optim.SGD(net.parameters(), lr=0.1), net)
    assert opt.plot(tmp_path / "empty.svg").stat().st_size > 0


def test_without_matplotlib_it_says_what_to_install(tuner, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="annealtune"):
        tuner.plot(tmp_path / "run.svg")
