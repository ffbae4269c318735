"""Every example runs, without a warning, and prints what it promises."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
PATHS = sorted((ROOT / "examples").glob("*.py"))
# Modules for the program: data and a model, each trained for so many epochs, and what the last
# line but one must satisfy.
OWN = {
    "own_images": (6, r"test accuracy (\d+\.\d+)%", lambda accuracy: accuracy > 85),
    "own_table": (25, r"^test loss (\d+\.\d+)", lambda loss: loss < 0.6),
    "own_text": (3, r"test accuracy (\d+\.\d+)%", lambda accuracy: accuracy > 25),
}
SCRIPTS = [path for path in PATHS if path.stem not in OWN]

# For each example a line it prints, and what the numbers in that line must satisfy.
PROMISES = {
    "any_hyper_parameter": (
        r"test accuracy (\d+\.\d)% after (\d+) moves",
        lambda accuracy, moves: accuracy > 90 and moves == 10 * 23,
    ),
    "any_optimizer": (
        r"test accuracy (\d+\.\d)%, temperature (\S+) at the end",
        lambda accuracy, temperature: accuracy > 85 and 0 < temperature < 1,
    ),
    "continuous_function": (
        r"greedy +(\d+\.\d+) .*\nplanned \(the default\) +(\d+\.\d+)",
        lambda greedy, planned: planned < greedy,
    ),
    "default_neighborhood": (
        r"all +(\d+) (?s:.*)test accuracy (\d+\.\d)%",
        lambda moves, accuracy: moves == 15 * 20 and accuracy > 93,
    ),
    "digits_sgd_sa": (
        r"test accuracy (\d+\.\d)% after (\d+) moves",
        lambda accuracy, moves: accuracy > 93 and moves == 15 * 23,
    ),
    "nothing_to_tune": (
        r"AdamW: .*accuracy (\S+)%(?s:.*)Adagrad: .*accuracy (\S+)%(?s:.*)SGD: .*accuracy (\S+)%",
        lambda *accuracies: min(accuracies) > 95,
    ),
    "own_loop": (
        r"ratio (\d+)\ntest accuracy (\d+\.\d)%",
        lambda ratio, accuracy: ratio == 10 and accuracy > 93,
    ),
    "own_strategy": (
        r"lr=10.0 +\d+ +\S+ +(\d+\.\d)%(?s:.*)test accuracy (\d+\.\d)% with Patience",
        lambda accepted, accuracy: accepted < 20 and accuracy > 85,
    ),
    "resume": (r"identical weights: True, identical moves: True", lambda: True),
    "strategies": (
        r"simulated-annealing +(\d+\.\d)%(?s:.*)genetic +(\d+\.\d)%",
        lambda annealed, genetic: annealed > 90 and genetic > 90,
    ),
    "travelling_salesman": (
        r"greedy +(\d+\.\d+)\n.*annealed +(\d+\.\d+)",
        lambda greedy, annealed: annealed < greedy,
    ),
    "two_objectives": (
        r"by the loss: .* at 2-bit weights (\S+)\n.*at 2-bit weights: .* at 2-bit weights (\S+)",
        lambda by_loss, by_coarse_loss: by_coarse_loss < 0.9 * by_loss,
    ),
    "without_gradients": (
        r"test error (\d+\.\d)% before, (\d+\.\d)% after (\d+) moves",
        lambda before, after, moves: after < 0.7 * before and moves == 600,
    ),
}


def keeps_its_promise(name: str, printed: str) -> None:
    line, holds = PROMISES[name]
    found = re.search(line, printed)
    assert found, printed
    assert holds(*map(float, found.groups())), found.group()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_keeps_its_promise(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, which has imported torch already; a warning is an error here too."""
    monkeypatch.setenv("COLUMNS", "100")
    with torch.random.fork_rng():
        runpy.run_path(str(path), run_name="__main__")
    keeps_its_promise(path.stem, capsys.readouterr().out)


def test_every_promise_has_an_example() -> None:
    assert PROMISES.keys() | OWN.keys() == {path.stem for path in PATHS}


@pytest.mark.parametrize("name", OWN)
def test_own_data_trains_through_the_program(
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the very command of its docstring but for the epochs."""
    epochs, line, holds = OWN[name]
    monkeypatch.chdir(ROOT / "examples")
    monkeypatch.setattr(sys, "path", [*sys.path])
    train = re.search(r"^ +annealtune (train .*)$", (Path(f"{name}.py")).read_text(), re.MULTILINE)
    assert train
    words = re.sub(r"--epochs \d+ --out \w+", f"--epochs {epochs} --out {tmp_path}/run", train[1])
    with torch.random.fork_rng():
        printed = run_program(words.split(), capsys, monkeypatch)
        found = re.search(line, printed, re.MULTILINE)
        assert found, printed
        assert holds(float(found[1])), found[0]


def run_program(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> str:
    from annealtune import cli

    monkeypatch.setattr(sys, "argv", ["annealtune", *words])
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        cli.main()
    out, err = capsys.readouterr()
    assert not left.value.code, err
    return out
