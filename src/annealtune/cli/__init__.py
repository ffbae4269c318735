"""The program: finds the command, and turns errors into a line and an exit code.

One file a group of commands; it is imported when one of its commands is called, or for the list of
all of them. torch and other heavy packages are imported by a command once its config is valid.
"""

import importlib.util
import signal
import sys
from importlib import import_module
from typing import Any

# What [train] brings; without it the optimizers work and the program does not.
_NEEDED = (
    *("typer", "rich", "pydantic", "tomli_w", "numpy", "safetensors"),
    *("filelock", "sklearn", "scipy", "matplotlib", "jinja2", "PIL"),
)

# Which file of this room has a command.
COMMANDS = {
    "train": "runs",
    "config": "runs",
    "evaluate": "runs",
    "inspect": "runs",
    "study": "studies",
    "report": "report",
    "reproduce": "studies",
}


def main() -> None:
    """Run the program.

    Exit codes: 0 done, 1 a run failed, 2 wrong usage, 128 plus the signal if it was stopped.
    """
    from annealtune import training
    from annealtune.errors import AnnealtuneError, ConfigError, RunStoppedError

    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    # The module of a package.module:factory may be in the working directory.
    sys.path.append("")
    try:
        sys.exit(_run(arguments))
    except KeyboardInterrupt:  # before a run or a study has begun, which saves and leaves
        sys.exit(_fail("stopped", 128 + signal.SIGINT))
    except RunStoppedError as error:
        code = error.signal_number and 128 + error.signal_number
        sys.exit(_fail(error, code) if training.is_first() else code)
    except (AnnealtuneError, OSError) as error:
        if debug:
            raise
        code = 2 if isinstance(error, ConfigError) else 1
        sys.exit(_fail(error, code) if _is_news(error) else code)


def _run(arguments: list[str]) -> Any:
    """Run a command; return the exit code, or leave with it.

    Raises:
        ConfigError: for words that no command can use.
    """
    from annealtune import training
    from annealtune.errors import ConfigError

    if arguments[:1] in (["--version"], ["-V"]):
        return tell_version()
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        return _fail(f"{', '.join(missing)} missing: pip install 'annealtune[train]'", 2)
    if training.planned_size() > 1 and arguments[:1] != ["train"]:
        raise ConfigError(
            f"annealtune {' '.join(arguments[:1])}: is for one process, got "
            f"{training.planned_size()} of them; call it without torchrun"
        )
    return program()(arguments or ["--help"], prog_name="annealtune")


def program() -> Any:
    """Return all commands as one, each imported when it is asked for."""
    import typer
    from typer.core import TyperGroup
    from typer.main import get_command, get_group

    class Commands(TyperGroup):
        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in COMMANDS:
                return None
            app = import_module(f"annealtune.cli.{COMMANDS[cmd_name]}").app
            return get_group(app).commands[cmd_name]

    app = typer.Typer(
        cls=Commands,
        help="Train once, tune nothing: the hyper-parameters anneal inside the run.",
        epilog="--version shows the versions, --debug the traceback of an error.",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )

    app.callback()(lambda: None)  # many commands, however few are known by now
    group: Any = get_command(app)
    group.commands = dict.fromkeys(COMMANDS)  # the names, for the list and for typos
    return group


def tell_version() -> int:
    """Print the version of the program and of what decides its results; torch is not imported."""
    from importlib.metadata import version
    from platform import python_version

    from annealtune import __version__

    versions = f"annealtune {__version__}, torch {version('torch')}, Python {python_version()}"
    sys.stdout.write(f"{versions}\n")
    return 0


def _is_news(error: Exception) -> bool:
    """Tell whether to say it: of several processes the first speaks for all.

    Another one speaks of what it alone has seen.
    """
    from annealtune import training
    from annealtune.errors import ConfigError, NonFiniteLossError

    if training.is_first():
        return True
    from annealtune.training.world import FollowedError

    return not isinstance(error, ConfigError | NonFiniteLossError | FollowedError)


def _fail(error: Exception | str, code: int) -> int:
    sys.stderr.write(f"annealtune: {error}\n")
    return code
