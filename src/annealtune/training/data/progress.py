"""The bar that shows a download."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress
from rich.console import Console

from .download import Progress


@contextmanager
def download_bar(console: Console | None = None) -> Iterator[Progress]:
    """Show one bar per file, with size, speed and time left, while the context lasts.

    Args:
        console: Where to; standard error if not given.

    Yields:
        The callback that `load` and `fetch` take as ``progress``.
    """
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console or Console(stderr=True)) as bars:
        tasks: dict[str, progress.TaskID] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done)

        yield show
