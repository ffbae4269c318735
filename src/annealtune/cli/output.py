"""What the commands print."""

import typer

from annealtune.errors import printable


def say(message: object, *, err: bool = False) -> None:
    """Print a line to standard output, or to standard error; see `annealtune.errors.printable`."""
    typer.echo(printable(str(message)), err=err)
