"""The program: finds its parts, turns errors into one or two lines and an exit code."""

from __future__ import annotations

import importlib
import importlib.util
import sys
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

# The modules that add commands.
_COMMANDS = (
    "annealtune.training.commands",
    "annealtune.studies.commands",
    "annealtune.studies.report_command",
    "annealtune.studies.reproduce_command",
)


def main() -> None:
    """Run the program.

    Exit codes: 0 done, 1 a run failed, 2 wrong usage, 128 plus the signal if it was stopped.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(_fail(f"{', '.join(missing)} missing: pip install 'annealtune[train]'", 2))
    # The working directory: the module of a package.module:factory may lie there.
    sys.path.append("")
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]

    from annealtune.errors import AnnealtuneError, ConfigError, RunStoppedError

    try:
        sys.exit(_app()(arguments, standalone_mode=True))
    except RunStoppedError as error:
        sys.exit(_fail(str(error), error.signal_number and 128 + error.signal_number))
    except (AnnealtuneError, OSError) as error:
        if debug:
            raise
        sys.exit(_fail(str(error), 2 if isinstance(error, ConfigError) else 1))


def _app() -> Any:
    import typer

    app = typer.Typer(
        help="Train once, tune nothing: the hyper-parameters anneal inside the run.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        epilog="--debug shows the traceback of an error.",
    )
    for name in _COMMANDS:
        importlib.import_module(name).register(app)
    return app


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"annealtune: {message}\n")
    return code


if __name__ == "__main__":
    main()
