"""The command that lists runs and studies. It imports no torch."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from annealtune.annealing.race_info import rate_text
from annealtune.cli.output import say
from annealtune.studies.listing import Entry, Listing, list_directory

PLACES = (Path("runs"), Path("studies"))
# From here on what a run is stands beside its path, else below it.
_WIDE = 120
_IN_A_PIPE = 10_000
_MOST_METHODS = 3
_STYLES = {
    "finished": "green",
    "running": "cyan",
    "unfinished": "yellow",
    "failed": "red",
    "damaged": "red",
}

Directory = Annotated[
    Path | None,
    typer.Argument(
        metavar="DIR", help="Where to look; a study lists its runs.  [default: runs and studies]"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

app = typer.Typer(rich_markup_mode=None)


@app.command("list")
def list_runs(directory: Directory = None, as_json: AsJson = False) -> None:
    """List the runs and studies below a directory: state, rate and scores."""
    places = [place for place in PLACES if place.is_dir()] if directory is None else [directory]
    found = [list_directory(place) for place in places]
    entries = [entry for listing in found for entry in listing.entries]
    if as_json:
        say(json.dumps([entry.to_dict() for entry in entries], indent=2))
        return
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=_IN_A_PIPE)  # a line a run, for grep
    if entries:
        console.print(_table(entries, is_wide=console.width >= _WIDE))
    else:
        where = " and ".join(map(str, PLACES if directory is None else places))
        say(f"no runs or studies in {where}; list DIR looks elsewhere, train starts a run")
    _tell_skipped(found)


def _table(entries: Iterable[Entry], *, is_wide: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("run or study", overflow="fold")
    if is_wide:
        table.add_column("what")
    for name in ("epochs", "state", "rate", "valid.", "test"):
        table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
    for entry in entries:
        what = Text(_what(entry), style="dim")
        path = Text(str(entry.path))
        names = (path, what) if is_wide else (Text("\n").join((path, what)),)
        table.add_row(
            *names,
            f"{entry.done}/{'?' if entry.planned is None else entry.planned}",
            Text(entry.state, style=_STYLES[entry.state]),
            "" if entry.rate is None else rate_text(entry.rate),
            _score(entry, "validation"),
            _score(entry, "test"),
        )
    return table


def _what(entry: Entry) -> str:
    task = f"{entry.model} on {entry.data}" if entry.data else ""
    method = entry.method
    if entry.kind == "study" and method:
        count = method.count(",") + 1
        method = f"study of {method if count <= _MOST_METHODS else f'{count} methods'}"
    words = ", ".join(filter(None, (method, task)))
    return f"{words}; {entry.reason}" if entry.reason and words else entry.reason or words


def _score(entry: Entry, part: str) -> str:
    """Return an accuracy, or the loss where there is none."""
    accuracy = entry.scores.get(f"{part}_accuracy")
    loss = entry.scores.get(f"{part}_loss")
    if accuracy is not None:
        return f"{accuracy:.1%}"
    return "" if loss is None else f"{loss:.3g}"


def _tell_skipped(found: Iterable[Listing]) -> None:
    skipped = [str(path) for listing in found for path in listing.skipped]
    if skipped:
        shown = ", ".join(skipped[:3]) + (" ..." if len(skipped) > 3 else "")
        say(f"skipped, no run or study in them: {shown}", err=True)
