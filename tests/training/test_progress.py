"""What a person sees: bars on a terminal, one line an epoch elsewhere."""

import io
import math
import re

import pytest
from rich.console import Console

from annealtune.training import run
from annealtune.training.progress import Lines, Live, Progress, decimal, describe


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=200, force_terminal=True, color_system=None)


@pytest.fixture
def plain():
    return Console(file=io.StringIO(), width=80)


def drawn(console):
    """Every line that was ever on the screen, without control characters."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())
    return [line for line in re.split(r"[\r\n]+", text) if line.strip()]


class TestLive:
    def test_draws_a_bar_with_what_a_person_watches(self, tiny, place, console):
        options = {"temperature": 0.5}
        run(tiny(**{"sgd-sa": options}), place, progress=Live(console))
        bar, numbers = drawn(console)[-2:]
        assert bar.startswith("epoch 3/3")
        assert "18/18" in bar
        for name in ("loss", "validation loss", "accuracy", "rate", "T 0.5", "accepted"):
            assert re.search(rf"\b{name}\b", numbers), name
        assert re.search(r"\d:\d\d", bar), "time left"

    @pytest.mark.parametrize("width", [80, 40])
    @pytest.mark.parametrize(("method", "named"), [("self-tuned", "rate"), ("sgd-sa", "T")])
    def test_bars_steps_and_time_left_fit(self, tiny, place, method, named, width):
        console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
        run(tiny(method=method, epochs=2), place, progress=Live(console))
        bar, numbers = drawn(console)[-2:]
        assert re.search(r"━━━━+ +12/12 +\d\d:\d\d", bar)
        assert re.search(r"loss \d+\.\d{4}  rate \S+", numbers)
        assert (f"  {named} " in numbers) == (width > 40 or named == "rate")
        assert "…" not in bar
        assert max(len(bar), len(numbers)) <= width

    def test_a_race_is_a_line_above_the_bar(self, tiny, place):
        console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
        run(tiny(method="self-tuned", epochs=24), place, progress=Live(console))
        lines = [line for line in drawn(console) if line.startswith("race")]
        assert len(lines) == 1
        assert re.match(r"race 1: 3 arms, \d+ steps, \S+ won, \S+ second", lines[0])

    def test_continues_where_the_run_was_left(self, tiny, place, console):
        class Leaving(Progress):
            def epoch(self, record):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(tiny(), place, progress=Leaving())
        run(tiny(), place, progress=Live(console))
        shown = [line for line in drawn(console) if "/18" in line]
        assert "6/18" in shown[0]

    @pytest.mark.parametrize("method", ["ssa", "adamw"])
    def test_shows_what_the_method_has(self, tiny, place, console, method):
        run(tiny(method=method, epochs=1), place, progress=Live(console))
        last = drawn(console)[-1]
        assert ("radius 0.01" in last) == (method == "ssa")
        assert ("rate " in last) == (method == "adamw")
        assert ("accepted" in last) == (method == "ssa")


class TestLines:
    def test_one_line_an_epoch(self, tiny, place, plain):
        run(tiny(**{"sgd-sa": {"temperature": 0.5}}), place, progress=Lines(plain))
        first, *epochs = plain.file.getvalue().splitlines()
        assert first == "starting: sgd-sa, small-cnn-w8 on digits, 3 epochs of 6 steps, seed 0"
        assert len(epochs) == 3
        for number, line in enumerate(epochs, 1):
            assert re.fullmatch(
                rf"epoch {number}/3  loss \d+\.\d{{4}}  rate \S+  accuracy \d+\.\d\d%  T 0\.5  "
                r"accepted \d+\.\d%  validation loss \d+\.\d{4}  \d+ s",
                line,
            ), line
        assert "\x1b" not in plain.file.getvalue()


def test_a_warning_is_one_line_however_long(capsys):
    Progress().warn("[/x] " + "word " * 100)
    err = capsys.readouterr().err
    assert err.startswith("warning: [/x] word")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (89898300757.3333, "8.99e+10"),
        (1e-4, "0.0001"),
        (0.0, "0.0000"),
        (math.inf, "inf"),
    ],
)
def test_losses_of_every_size(loss, text):
    assert decimal(loss) == text
    shown = describe({"train_loss": loss, "validation_loss": loss})
    assert shown == f"loss {text}  validation loss {text}"
