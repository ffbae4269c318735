"""The examples for other people's loops run, and print what they promise."""

from __future__ import annotations

import re
import runpy
import warnings
from pathlib import Path

import pytest
import torch

PATHS = sorted((Path(__file__).parents[2] / "examples" / "frameworks").glob("*.py"))

# For each example a line it prints, and what the numbers in that line must satisfy.
PROMISES = {
    "accelerate_loop": (
        r"(\d+) steps, test accuracy (\d+\.\d)%",
        lambda steps, accuracy: steps == 12 * 44 // 2 and accuracy > 95,
    ),
    "fine_tune_bert": (
        r"ratio (\d+\.\d), accuracy (\d+\.\d)%",
        lambda ratio, accuracy: ratio == 10 and accuracy > 95,
    ),
    "ignite_digits": (
        r"(\d+) steps, accuracy (\d+\.\d)%",
        lambda steps, accuracy: steps == 12 * 23 and accuracy > 95,
    ),
    "keras_digits": (
        r"(\d+) steps, accuracy (\d+\.\d)%",
        lambda steps, accuracy: steps == 12 * 23 and accuracy > 90,
    ),
    "lightning_digits": (
        r"(\d+) steps, accuracy (\d+\.\d)%",
        lambda steps, accuracy: steps == 12 * 23 and accuracy > 95,
    ),
    "optuna_width": (
        r"width (\d+), accuracy (\d+\.\d)%, rate (\S+)",
        lambda width, accuracy, rate: width > 8 and accuracy > 93 and 1e-4 < rate < 0.1,
    ),
    "skorch_digits": (
        r"accuracy (\d+\.\d)% over (\d+) parts",
        lambda accuracy, parts: accuracy > 90 and parts == 3,
    ),
}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_an_example_keeps_its_promise(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a warning from annealtune; the frameworks may warn."""
    monkeypatch.setenv("KERAS_BACKEND", "torch")  # one example sets it for good
    with warnings.catch_warnings(record=True) as caught, torch.random.fork_rng():
        warnings.simplefilter("always")
        runpy.run_path(str(path), run_name="__main__")
    assert [w for w in caught if "Tuner" in str(w.message)] == []
    line, holds = PROMISES[path.stem]
    printed = capsys.readouterr().out
    found = re.search(line, printed)
    assert found, printed
    assert holds(*map(float, found.groups())), found.group()
