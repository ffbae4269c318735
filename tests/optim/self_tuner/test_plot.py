"""`SelfTuner.plot`: a picture of the run without the program."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from annealtune import SelfTuner


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
