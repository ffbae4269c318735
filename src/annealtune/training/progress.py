"""What a person sees of a run: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from annealtune.annealing.race import RaceInfo, rate_text
from annealtune.training.factories import is_factory

if TYPE_CHECKING:
    from annealtune.training.session import Session

_WIDEST_BAR = 40


class Progress:
    """What a run tells about itself; this one shows nothing but warnings."""

    def running(self, session: Session) -> AbstractContextManager[None]:
        """Show the run while the context lasts."""
        return nullcontext()

    def step(self, session: Session, loss: float) -> None:
        """Show one step."""

    def epoch(self, record: dict[str, Any]) -> None:
        """Show the record of an epoch."""

    def race(self, info: RaceInfo) -> None:
        """Show a race that is over."""

    def warn(self, message: str) -> None:
        """Write something that went wrong without stopping the run to standard error."""
        console = Console(stderr=True)
        console.print(f"warning: {message}", markup=False, highlight=False, soft_wrap=True)


class Lines(Progress):
    """One line an epoch, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._epochs = 0
        self._started = time.monotonic()

    @contextmanager
    def running(self, session: Session) -> Iterator[None]:
        """Say what starts or continues; of a user's own data also what it was taken for."""
        config, step = session.config, session.step
        self._epochs = config.epochs
        verb = f"continuing at step {step}" if step else "starting"
        kind = f" ({session.task.summary})" if is_factory(config.data) else ""
        self._print(
            f"{verb}: {config.method}, {config.model} on {config.data}{kind}, {config.epochs} "
            f"epochs of {len(session.train_batches)} steps, seed {config.seed}"
        )
        yield

    def epoch(self, record: dict[str, Any]) -> None:
        """Print the epoch's numbers."""
        elapsed = time.monotonic() - self._started
        self._print(f"epoch {record['epoch']}/{self._epochs}  {describe(record)}  {elapsed:.0f} s")

    def race(self, info: RaceInfo) -> None:
        """Print it in one line."""
        self._print(str(info))

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class Live(Lines):
    """A bar of all steps over a line of numbers.

    The bar shrinks with the terminal, and the line is cut where it does not fit.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._numbers: dict[str, Any] = {}

    @contextmanager
    def running(self, session: Session) -> Iterator[None]:
        """Draw the bar."""
        bar = _BarAndNumbers(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None, table_column=Column(max_width=_WIDEST_BAR)),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
            console=self._console,
        )
        with super().running(session), bar:
            self._bar, bar.numbers = bar, self._numbers
            total = session.config.epochs * len(session.train_batches)
            self._run = bar.add_task(session.config.method, total=total, completed=session.step)
            yield

    def step(self, session: Session, loss: float) -> None:
        """Move the bar."""
        now = {"train_loss": loss, **session.tally.metrics(), **session.method.readings()}
        self._numbers.update(now)
        name = f"epoch {session.epoch + 1}/{self._epochs}"
        self._bar.update(self._run, completed=session.step, description=name)

    def epoch(self, record: dict[str, Any]) -> None:
        """Show the epoch's numbers until there are newer ones."""
        self._numbers.update(record)


class _BarAndNumbers(Bars):
    """A bar and a line of numbers under it."""

    numbers: Mapping[str, Any] = {}

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the bar, then the numbers."""
        yield from super().get_renderables()
        yield Text(describe(self.numbers), no_wrap=True, overflow="ellipsis")


def _loss_text(value: float) -> str:
    """Return four decimals where they say something, a power of ten elsewhere."""
    return f"{value:.4f}" if value == 0 or 1e-4 <= abs(value) <= 1e6 else f"{value:.2e}"


# What matters more comes first: a narrow terminal cuts the rest.
_SHOWN: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("train_loss", "loss", _loss_text),
    ("rate", "rate", rate_text),
    ("validation_accuracy", "accuracy", lambda value: f"{value:.2%}"),
    ("temperature", "T", lambda value: f"{value:.3g}"),
    ("acceptance_rate", "accepted", lambda value: f"{value:.1%}"),
    ("validation_loss", "validation loss", _loss_text),
    ("radius", "radius", lambda value: f"{value:.3g}"),
)


@contextmanager
def warnings_told(progress: Progress) -> Iterator[None]:
    """Tell Python's warnings as lines of the run, by the name that the method has here."""

    def tell(message: Warning | str, *_: Any, **__: Any) -> None:
        progress.warn(str(message).replace("SelfTuner:", "self-tuned:"))

    with warnings.catch_warnings():
        warnings.filterwarnings("default", category=UserWarning)
        warnings.showwarning = tell
        yield


def decimal(value: float | None) -> str:
    """Return a loss as text; None stands for one that was not finite."""
    return "not finite" if value is None else _loss_text(value)


def told_scores(numbers: dict[str, Any], part: str) -> str:
    """Return accuracy, if there is one, and loss of a part of the data as text.

    Example:
        >>> told_scores({"test_loss": 0.5, "test_accuracy": 0.9}, "test")
        'test accuracy 90.00%, test loss 0.5000'
        >>> told_scores({"test_loss": 0.5}, "test")
        'test loss 0.5000'
    """
    accuracy = numbers.get(f"{part}_accuracy")
    loss = f"{part} loss {decimal(numbers[f'{part}_loss'])}"
    return loss if accuracy is None else f"{part} accuracy {accuracy:.2%}, {loss}"


def describe(numbers: Mapping[str, Any]) -> str:
    """Return the numbers a person watches, by the names of a record, as one short line.

    Example:
        >>> describe({"train_loss": 0.5, "validation_loss": 0.6, "rate": 0.001})
        'loss 0.5000  rate 1e-3  validation loss 0.6000'
    """
    return "  ".join(
        f"{label} {form(numbers[key])}"
        for key, label, form in _SHOWN
        if numbers.get(key) is not None and not math.isnan(numbers[key])
    )
