"""The program: finds the command, turns errors into one or two lines and an exit code."""

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

# What [train] brings; without it the optimizers work and the program does not.
_NEEDED = (
    "typer",
    "rich",
    "pydantic",
    "tomli_w",
    "numpy",
    "safetensors",
    "filelock",
    "sklearn",
    "scipy",
    "matplotlib",
    "jinja2",
    "PIL",
)

# Which file of this room has a command. A file is imported when one of its commands is called, or
# for the list of all commands.
COMMANDS = {
    "train": "runs",
    "config": "runs",
    "evaluate": "runs",
    "inspect": "runs",
    "study": "studies",
    "report": "report",
    "reproduce": "reproduce",
}


def main() -> None:
    """Run the program.

    Exit codes: 0 done, 1 a run failed, 2 wrong usage, 128 plus the signal if it was stopped.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(_fail(f"{', '.join(missing)} missing: pip install 'annealtune[train]'", 2))
    # The module of a package.module:factory may be in the working directory.
    sys.path.append("")
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]

    from annealtune.errors import AnnealtuneError, ConfigError, RunStoppedError

    try:
        sys.exit(_program()(arguments))
    except RunStoppedError as error:
        sys.exit(_fail(str(error), error.signal_number and 128 + error.signal_number))
    except (AnnealtuneError, OSError) as error:
        if debug:
            raise
        sys.exit(_fail(str(error), 2 if isinstance(error, ConfigError) else 1))


def _program() -> Any:
    import typer
    from typer.main import get_group

    group = get_group(
        typer.Typer(
            help="Train once, tune nothing: the hyper-parameters anneal inside the run.",
            no_args_is_help=True,
            add_completion=False,
            rich_markup_mode=None,
            epilog="--debug shows the traceback of an error.",
        )
    )
    group.commands = _LazyCommands()  # type: ignore[assignment]  # nobody adds to them
    return group


class _LazyCommands(Mapping[str, Any]):
    """All commands by name, each made when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        return _commands_of(COMMANDS[name])[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


@cache
def _commands_of(file: str) -> Mapping[str, Any]:
    from typer.main import get_group

    return get_group(import_module(f"annealtune.cli.{file}").app).commands


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"annealtune: {message}\n")
    return code
