"""The program: finds the command, turns errors into one or two lines and an exit code."""

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from typing import Annotated, Any, cast

from annealtune.cli.streams import outlive_streams
from annealtune.cli.waiting import waiting

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
    "list": "listing",
    "predict": "models",
    "export": "models",
    "study": "studies",
    "report": "report",
    "reproduce": "reproduce",
}


# What a signal interrupts before there is anything to save; after that the command sees to it.
_BEFORE = {
    "train": "stopped before the run began; nothing was written",
    "study": "stopped before the study began; nothing was written",
    "reproduce": "stopped before the study began; nothing was written",
}


def main() -> None:
    """Run the program.

    Exit codes: 0 done, 1 a run failed, 2 wrong usage, 128 plus the signal if it was stopped.
    """
    from annealtune.training.stopping import leave_on_signals

    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    command = arguments[0] if arguments else ""
    outlive_streams(output=command in _BEFORE)
    with leave_on_signals(_BEFORE.get(command, "stopped")):
        sys.exit(_run(arguments, debug=debug))


def _run(arguments: list[str], *, debug: bool) -> Any:
    """Run a command and return the exit code."""
    if arguments[:1] in (["--version"], ["-V"]):
        return _tell_version()
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        return _fail(f"{', '.join(missing)} missing: pip install 'annealtune[train]'", 2)
    # The module of a package.module:factory may be in the working directory.
    sys.path.append("")

    from annealtune.errors import AnnealtuneError, ConfigError, RunStoppedError
    from annealtune.training import is_first

    try:
        _check_words(arguments)
        _check_command(arguments)
        words = arguments or ["--help"]
        with waiting("starting") if _is_slow(words) else nullcontext():
            return _call(words)
    except RunStoppedError as error:
        code = error.signal_number and 128 + error.signal_number
        return _fail(str(error), code) if is_first() else code
    except (AnnealtuneError, OSError) as error:
        if debug:
            raise
        if not _has_something_to_say(error):
            return 2 if isinstance(error, ConfigError) else 1
        return _fail(str(error), 2 if isinstance(error, ConfigError) else 1)


def _has_something_to_say(error: Exception) -> bool:
    """Tell whether an error is news: of several processes the first speaks for all.

    Until they have joined, all of them fail alike.
    """
    from annealtune.errors import NonFiniteLossError
    from annealtune.training import is_first

    if is_first():
        return True
    world: Any = sys.modules.get("annealtune.training.world")
    alike = (NonFiniteLossError, *((world.FollowedError,) if world is not None else ()))
    return world is not None and world.has_joined and not isinstance(error, alike)


def _call(words: list[str]) -> Any:
    """Hand the words to typer.

    Raises:
        ConfigError: for words that the command does not know.
    """
    import typer

    from annealtune.errors import ConfigError

    # What typer raises for a wrong word; it has no public name.
    usage_error = cast("type[Exception]", typer.BadParameter.__mro__[1])
    try:
        return _program()(words, prog_name="annealtune", standalone_mode=False) or 0
    except usage_error as error:
        command = " ".join(["annealtune", *(set(words[:1]) & COMMANDS.keys())])
        raise ConfigError(
            f"{_explain_usage(error, words)}\n{command} --help explains the options"
        ) from None


def _is_slow(words: list[str]) -> bool:
    """Tell whether a command will import torch and say nothing for a while."""
    is_model = COMMANDS.get(words[0]) in ("runs", "models")
    return is_model and words[0] != "config" and "--help" not in words


def _program() -> Any:
    import typer
    from typer.main import get_command

    from annealtune.cli.help import FullGroup

    app = typer.Typer(
        cls=FullGroup,
        help="Train once, tune nothing: the hyper-parameters anneal inside the run.",
        rich_markup_mode=None,
        epilog="--debug shows the traceback of an error.",
    )

    @app.callback()
    def common(
        version: Annotated[
            bool, typer.Option("--version", "-V", help="Show the versions and exit.")
        ] = False,
    ) -> None:
        if version:
            raise typer.Exit(_tell_version())

    group: Any = get_command(app)
    group.commands = _LazyCommands()  # nobody adds to them
    return group


def _tell_version() -> int:
    """Print the version of the program and of what decides its results; torch is not imported."""
    from importlib.metadata import PackageNotFoundError, version
    from platform import python_version

    from annealtune import __version__

    try:
        torch = f"torch {version('torch')}"
    except PackageNotFoundError:
        torch = "no torch"
    sys.stdout.write(f"annealtune {__version__}, {torch}, Python {python_version()}\n")
    return 0


def _check_words(arguments: list[str]) -> None:
    """Refuse words that no option has a use for, and no file could hold.

    Raises:
        ConfigError: if one is empty, as that of an unset variable, or not UTF-8.
    """
    from annealtune.errors import ConfigError

    for before, word in zip(["", *arguments], arguments, strict=False):
        name, equals, value = word.partition("=")
        is_option = bool(equals) and name.startswith("--")
        if not (value if is_option else word):
            place = name if is_option else before if before.startswith("-") else "an argument"
            raise ConfigError(f"{place}: must not be empty; leave it out or give it a value")
        if not word.isascii() and word.encode(errors="ignore") != word.encode(errors="replace"):
            raise ConfigError(f"{word!r}: must be UTF-8; rename the file or folder that it names")


def _check_command(arguments: list[str]) -> None:
    """Refuse a command that does not exist.

    Raises:
        ConfigError: with the nearest one.
    """
    from annealtune.errors import ConfigError, did_you_mean
    from annealtune.training import planned_size

    name = arguments[0] if arguments else "--help"
    if name in COMMANDS and name != "train" and planned_size() > 1:
        raise ConfigError(
            f"annealtune {name}: is for one process, got {planned_size()} of them; call it "
            "without torchrun"
        )
    if not name.startswith("-") and name not in COMMANDS:
        hint = did_you_mean(name, [*COMMANDS, "--help", "--version"])
        raise ConfigError(
            f"{name!r} is not a command{hint}{' Commands' if hint else '; commands'}: "
            f"{', '.join(COMMANDS)}"
        )


def _explain_usage(error: Any, words: list[str]) -> str:
    """Return what is wrong with the words of a command."""
    from annealtune.errors import did_you_mean

    if hasattr(error, "possibilities"):  # an option that does not exist
        options = [
            spelled
            for option in error.ctx.command.params
            for spelled in (*option.opts, *option.secondary_opts)
            if spelled.startswith("-")
        ]
        hint = ""
        if {"--set", "--method"} <= {*options}:
            from annealtune.cli.flags import as_assignment

            hint = as_assignment(error.option_name, words)
        hint = hint or did_you_mean(error.option_name, options)
        return f"no such option: {error.option_name}{hint}"
    message: str = error.format_message()
    spelled = getattr(getattr(error, "param", None), "opts", [""])[0]
    if spelled in words[:-1] and spelled.startswith("-"):  # a value of the wrong kind
        value = words[words.index(spelled) + 1]
        message = f"{spelled} {value!r}: {error.message[:1].lower()}{error.message[1:]}"
    return f"{message[:1].lower()}{message[1:]}"


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
    from annealtune.errors import printable, shortened

    sys.stderr.write(f"annealtune: {shortened(printable(message))}\n")
    return code
